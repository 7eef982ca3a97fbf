// SPDX-License-Identifier: Apache-2.0
/* Tables of the remote that do not agree: view_check() reports each broken row. */
#include "../expect.h"
#include "remote_fixture.h"
#include "view/db.h"

TestSuite(view_remote_check, .init = begin_full_remote, .fini = end_remote);

static void note_line(const char *line, void *arg)
{
    char *all = arg;
    if (strlen(all) + strlen(line) < 4000)
        strcat(strcat(all, line), "\n");
}

static struct value saved;

static void save(const struct key *key)
{
    int r = db_get(f.view, NULL, key, &saved);
    cr_assert(r == 0 || r == -ENOENT);
}

/* view_check() says `what`; then the row is as it was. */
static void expect_report(const struct key *key, const char *what)
{
    char all[4096] = "";
    int found = view_check(f.view, note_line, all);
    cr_expect(found > 0 && strstr(all, what), "%d, \"%s\" is not in: %s", found, what, all);
    if (saved.data)
        raw_put(key, saved.data, saved.len);
    else
        raw_delete(key);
    value_done(&saved);
    assert_i64(check_count(f.view), 0);
}

static void expect_deletion(const struct key *key, const char *what)
{
    save(key);
    raw_delete(key);
    expect_report(key, what);
}

static void expect_value(const struct key *key, const void *value, size_t len, const char *what)
{
    save(key);
    raw_put(key, value, len);
    expect_report(key, what);
}

static void expect_byte(const struct key *key, size_t at, int add_to, const char *what)
{
    save(key);
    _cleanup_free_ char *changed = xmalloc(saved.len);
    memcpy(changed, saved.data, saved.len);
    cr_assert_lt(at, saved.len);
    changed[at] = (char)(changed[at] + add_to);
    raw_put(key, changed, saved.len);
    expect_report(key, what);
}

static void break_chunks(void)
{
    struct key key, chunk_key;
    uint8_t pending[PENDING_UPLOAD_VALUE_LEN];
    struct chunk_name one = chunk_of(1), six = chunk_of(6), nine = chunk_of(9);
    key_of_name(&chunk_key, KEY_REMOTE_CHUNK, &one);
    expect_deletion(&chunk_key, "lying in the remote or pending upload is 0, counted 1");
    expect_deletion(&chunk_key, "remote pack 100: placed chunks is 3, counted 2");
    expect_byte(&chunk_key, 14, 1, "being listed in its remote pack is 0, counted 1");
    expect_byte(&chunk_key, 3, 5, "an entry of type R does not decode");
    expect_byte(&chunk_key, 16, 1, "remote pack 100: live bytes");
    key_u64(&key, KEY_REMOTE_PLACED, 100);
    expect_deletion(&key, "being listed in its remote pack is 0, counted 1");
    expect_byte(&key, 0, 1, "an entry of type S does not decode");
    expect_byte(&key, 1, 1, "being listed in its remote pack is 0, counted 1");
    key_u64(&key, KEY_REMOTE_PLACED, 777);
    expect_value(&key, "\1start", 6, "a list of remote pack of 777, which does not exist");
    key_u64(&key, KEY_REMOTE_PLACED, 102);
    expect_value(&key, "\1start", 6,
                 "remote pack 102: lists, of a pack that goes, is 1, counted 0");
    key_u64(&key, KEY_REMOTE_PACK, 102);
    expect_byte(&key, 25, 1,
                "remote pack 102: placed chunks, of a pack that goes, is 1, counted 0");
    key_of_name(&key, KEY_PENDING_UPLOAD, &six);
    expect_deletion(&key, "lying in the remote or pending upload is 0, counted 1");
    expect_deletion(&key, "number of pending chunks is 1, counted 0");
    expect_byte(&key, 1, 1, "stored bytes pending upload is 1007, counted 1006");
    expect_byte(&key, 1, 1, "bytes of pending chunks is 1006, counted 1007");
    key_of_name(&key, KEY_PENDING_UPLOAD, &one);
    expect_value(&key, pending, pending_upload_encode(1001, pending),
                 "lying in the remote or pending upload is 2, counted 1");
    key_of_name(&key, KEY_PENDING_UPLOAD, &nine);
    expect_value(&key, pending, pending_upload_encode(0, pending),
                 "pending upload is 1, counted 0");
}

static void break_packs_and_counters(void)
{
    struct key key, of, mark;
    struct chunk_name six = chunk_of(6);
    key_u64(&key, KEY_REMOTE_PACK, 100);
    expect_deletion(&key, "live bytes in remote pack of 100, which does not exist");
    expect_byte(&key, 1, 1, "remote: bytes of packs");
    expect_byte(&key, 13, 1, "remote pack 100: live bytes is");
    expect_byte(&key, 21, 1, "remote pack 100: live chunks is 4, counted 3");
    expect_byte(&key, 25, 1, "remote pack 100: placed chunks is 4, counted 3");
    expect_byte(&key, 41, 1, "remote: number of packs is 2, counted 1");
    expect_byte(&key, 49, 1, "remote: number of packs is 2, counted 1");
    key_type(&key, KEY_REMOTE_STATE);
    expect_byte(&key, 19, 1, "remote: number of packs is 3, counted 2");
    expect_byte(&key, 27, 1, "remote: bytes of packs");
    expect_byte(&key, 35, 1, "remote: number of pending chunks is 2, counted 1");
    expect_byte(&key, 43, 1, "remote: bytes of pending chunks is 1007, counted 1006");
    expect_byte(&key, 0, 1, "an entry of type W does not decode");
    expect_deletion(&key, "an entry of type R, but no remote is known");
    key_chunk(&of, &six);
    key_touched(&mark, of.bytes, of.len);
    expect_deletion(&mark, "being marked while pending upload is 0, counted 1");
    expect_byte(&mark, 4, 1, "a row of type H changed with change");
    key_u64(&of, KEY_PACK, 10);
    key_touched(&mark, of.bytes, of.len);
    expect_value(&mark, "\1", 1, "an entry of type T does not decode");
}

Test(view_remote_check, each_broken_row_is_reported)
{
    assert_i64(check_count(f.view), 0);
    break_chunks();
    break_packs_and_counters();
}
