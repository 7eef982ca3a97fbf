// SPDX-License-Identifier: Apache-2.0
/* The view and the remote of remote_fixture.h. */
#include "remote_fixture.h"
#include "view/apply.h"
#include "view/db.h"
#include "../expect.h"

struct fixture f;
struct test_remote remote;

void begin_view(void)
{
    fixture_open(&f);
}

void end_view(void)
{
    expect_check_ok(f.view);
    expect_replay_same(&f);
    fixture_close(&f);
}

void begin_remote(void)
{
    fixture_open(&f);
    remote = (struct test_remote){0};
}

void begin_tracking(void)
{
    begin_remote();
    assert_i64(view_track(f.view), 0);
}

void end_remote(void)
{
    expect_check_ok(f.view);
    remote_done(&remote);
    fixture_close(&f);
}

void add_file_of(uint64_t ino, const char *name, const uint32_t *ids, uint32_t count)
{
    struct extent e[16];
    add_file(&f, ino, ROOT_INO, name, 0);
    for (uint32_t i = 0; i < count; i++)
        e[i] = chunk_extent(i * MIB, MIB, ids[i], 0);
    add_seal(&f, ino, 2, 0, count * MIB, e, count);
}

struct chunk_entry remote_entry(uint64_t pack, uint32_t id, uint64_t offset)
{
    return (struct chunk_entry){.name = chunk_of(id),
                                .pack = pack,
                                .offset = offset,
                                .stored_len = 1000 + id,
                                .raw_len = CHUNK_SIZE_MAX,
                                .encoding = ENCODING_LZ4};
}

struct chunk_entry remote_entry_on(uint64_t pack, uint32_t id, uint64_t offset, unsigned depth,
                                   const uint32_t *bases, uint32_t count)
{
    struct chunk_entry entry = remote_entry(pack, id, offset);
    entry.depth = (uint8_t)depth;
    entry.ref_count = (uint8_t)count;
    entry.encoding = count ? ENCODING_TWIN : ENCODING_LZ4;
    for (uint32_t i = 0; i < count; i++)
        entry.refs[i] = (struct chunk_ref){chunk_of(bases[i]), 0, CHUNK_SIZE_MAX};
    return entry;
}

static void place_as(uint8_t encoding, uint64_t pack, const uint32_t *ids, uint32_t count)
{
    struct chunk_entry entries[16];
    for (uint32_t i = 0; i < count; i++) {
        entries[i] = remote_entry(pack, ids[i], 64 + 2000ull * i);
        entries[i].encoding = encoding;
    }
    assert_i64(view_remote_placed(f.view, pack, 64 + 2000ull * count, entries, count), 0);
}

void place(uint64_t pack, const uint32_t *ids, uint32_t count)
{
    place_as(ENCODING_LZ4, pack, ids, count);
}

void raw_put(const struct key *key, const void *value, size_t len)
{
    char *message = NULL;
    rocksdb_put(f.view->db, f.view->write, (const char *)key->bytes, key->len, value, len,
                &message);
    cr_assert_null(message);
}

void raw_delete(const struct key *key)
{
    char *message = NULL;
    rocksdb_delete(f.view->db, f.view->write, (const char *)key->bytes, key->len, &message);
    cr_assert_null(message);
}

uint64_t remote_pack_of(struct view *view, uint32_t id)
{
    struct chunk_name name = chunk_of(id);
    struct chunk_entry entry;
    bool published;
    int r = view_remote_chunk(view, &name, &entry, &published);
    cr_assert(r == 0 || r == -ENOENT);
    return r == 0 ? entry.pack : 0;
}

bool is_published(uint32_t id)
{
    struct chunk_name name = chunk_of(id);
    struct chunk_entry entry;
    bool published = false;
    return view_remote_chunk(f.view, &name, &entry, &published) == 0 && published;
}

struct view_remote_pack remote_pack(uint64_t id)
{
    struct view_remote_pack pack;
    assert_i64(view_remote_pack(f.view, id, &pack), 0);
    return pack;
}

void give_up_pack(uint64_t pack)
{
    struct txn txn;
    txn_begin(&txn, f.view);
    assert_i64(remote_pack_forget_placed(&txn, pack), 0);
    remote_pack_leave_count(&txn);
    txn.remote_pack.pub.gone = txn.remote_pack_dirty = true;
    remote_pack_store(&txn);
    assert_i64(txn_commit(&txn), 0);
    txn_end(&txn);
}

struct view_cut *cut_now(void)
{
    struct view_cut *cut;
    assert_i64(view_cut_open(f.view, &cut), 0);
    return cut;
}

uint64_t publish(struct view_cut *cut, int64_t now)
{
    uint64_t missing = remote_make(&remote, cut, now);
    remote_publish(&remote, f.view, cut);
    view_cut_close(cut);
    expect_check_ok(f.view);
    return missing;
}

static int follow_row(const struct run_row *row, void *arg)
{
    return view_follow_row(arg, row);
}

void follow_newest(struct view *view, bool by_all)
{
    struct view_follow *follow;
    assert_i64(view_follow_begin(view, by_all, NULL, NULL, &follow), 0);
    assert_i64(by_all ? remote_rows(&remote, follow_row, follow)
                      : remote_newest_rows(&remote, follow_row, follow),
               0);
    assert_i64(view_follow_end(follow, &remote.state,
                               &(struct view_head){.number = remote.head, .max_id = UINT64_MAX}),
               0);
    view_follow_done(follow);
}

struct view *open_peer(const char *suffix, char **ret_path)
{
    struct view *peer;
    *ret_path = xasprintf("%s.%s", f.path, suffix);
    open_adopted(&remote, *ret_path, &peer);
    return peer;
}

void close_peer(struct view *peer, char *path)
{
    expect_check_ok(peer);
    view_close(peer);
    remove_tree(path);
    free(path);
}

void expect_adopted(void (*look)(struct view *view))
{
    char *path;
    struct view *peer = open_peer("adopted", &path);
    expect_check_ok(peer);
    look(peer);
    close_peer(peer, path);
}

static void look_same(struct view *view)
{
    _cleanup_free_ char *is = dump_shared(view), *expected = dump_shared(f.view);
    assert_str(is, expected);
}

void expect_same_adopted(void)
{
    expect_adopted(look_same);
}

void begin_full_remote(void)
{
    struct extent e[6];
    for (uint32_t i = 0; i < 6; i++)
        e[i] = chunk_extent(i * MIB, MIB, 1 + i, 0);
    begin_tracking();
    add_pack(&f, 10, (const uint32_t[]){1, 2, 3, 4, 5, 6, 7}, 7);
    add_dir(&f, 2, ROOT_INO, "dir");
    add_file(&f, 3, 2, "file", 0);
    add_seal(&f, 3, 2, 0, 6 * MIB, e, 6);
    add_file(&f, 4, 2, "inline", 0);
    add_seal_inline(&f, 4, 2, 0, 10, 0, "0123456789");
    add_file(&f, 5, 2, "orphan", 0);
    add_unlink(&f, 5, 2, "orphan", RECORD_ORPHAN);
    add_xattr(&f, 3, "user.x", "v");
    add_make(&f, 6, ROOT_INO, "link", (struct attrs){.mode = S_IFLNK | 0777}, "target");
    apply_ok(&f);
    place_as(ENCODING_RAW, 100, (const uint32_t[]){1, 2, 3}, 3);
    place_as(ENCODING_RAW, 101, (const uint32_t[]){4, 5}, 2);
    place_as(ENCODING_RAW, 102, (const uint32_t[]){7}, 1);
    (void)publish(cut_now(), 5);
}
