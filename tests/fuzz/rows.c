// SPDX-License-Identifier: Apache-2.0
/* Rows of runs, as a remote gives them, and those of the view alone. An input is a length, a key of
 * that length, and a value. */
#include "fuzz.h"
#include "view/pack_list.h"
#include "view/rows.h"

static void again_chunk(const struct run_row *row, const struct chunk_row *chunk)
{
    uint8_t again[CHUNK_RUN_VALUE_LEN_MAX];
    check((chunk->refs > 0 || chunk->entry.pack) && chunk->entry.ref_count <= CHUNK_REFS_MAX);
    check(chunk->entry.raw_len <= CHUNK_SIZE_MAX && chunk->entry.stored_len <= CHUNK_SIZE_MAX);
    size_t len = chunk_run_encode(chunk, again);
    check(len == row->value_len && memcmp(again, row->value, len) == 0);
}

static void again_pack(const struct run_row *row, const struct remote_pack_row *pack)
{
    uint8_t again[REMOTE_PACK_RUN_VALUE_LEN];
    check(remote_pack_run_encode(&pack->pub, again) == row->value_len &&
          memcmp(again, row->value, sizeof again) == 0);
}

static void again_page(const struct run_row *row, const struct piece_list *pieces)
{
    uint64_t page = key_get_u64(row->key, KEY_U64_LEN), end = page * VIEW_PAGE_LEN;
    uint8_t *again;
    size_t len;
    for (size_t i = 0; i < pieces->count; i++) {
        check(pieces->at[i].length > 0 && pieces->at[i].offset >= end);
        end = pieces->at[i].offset + pieces->at[i].length;
    }
    check(end <= (page + 1) * VIEW_PAGE_LEN);
    page_encode(page, pieces, &again, &len);
    check(len == row->value_len && memcmp(again, row->value, len) == 0);
    free(again);
}

static void again_entry(const struct run_row *row)
{
    struct view_entry entry;
    const char *name;
    size_t name_len, len;
    uint8_t again[COOKIE_VALUE_HEADER_LEN + NAME_LEN_MAX];
    if (*(const uint8_t *)row->key == KEY_NAME) {
        check(name_decode(row->value, row->value_len, &entry) == 0);
        len = name_encode(&entry, again);
    } else {
        uint64_t cookie = key_get_u64(row->key, KEY_U64_LEN);
        check(cookie_decode(cookie, row->value, row->value_len, &entry, &name, &name_len) == 0);
        check(name_len > 0 && name_len <= NAME_LEN_MAX);
        len = cookie_encode(&entry, name, name_len, again);
    }
    check(len == row->value_len && memcmp(again, row->value, len) == 0);
}

static void again_plain(const struct run_row *row, const struct piece_list *pieces,
                        const struct inode_row *inode)
{
    uint8_t again[INODE_VALUE_LEN];
    switch (*(const uint8_t *)row->key) {
    case KEY_INODE:
        check(inode_encode(inode, again) == row->value_len &&
              memcmp(again, row->value, sizeof again) == 0);
        break;
    case KEY_NAME:
    case KEY_COOKIE:
        again_entry(row);
        break;
    case KEY_PAGE:
        again_page(row, pieces);
        break;
    default:
        break;
    }
}

/* Whatever its key is, the value is given to each decoder of rows that only the view has. A flag
 * that is not 0 is read as 1. */
#define GONE_AT 49u
#define REMOTE_FLAGS_AT 1u

static void same(int r, const uint8_t *value, size_t len, const uint8_t *again, size_t again_len)
{
    check(r == -EUCLEAN || r == 0);
    check(r < 0 || (len == again_len && memcmp(value, again, len) == 0));
}

static void own_remote_pack(uint64_t pack, const uint8_t *value, size_t len)
{
    uint8_t again[REMOTE_PACK_VALUE_LEN], wanted[REMOTE_PACK_VALUE_LEN] = {0};
    struct remote_pack_row row;
    int r = remote_pack_row_decode(pack, value, len, &row);
    check(row.pub.pack == pack);
    if (len <= sizeof wanted && len > GONE_AT) {
        memcpy(wanted, value, len);
        wanted[GONE_AT] = value[GONE_AT] != 0;
    }
    same(r, wanted, len, again, remote_pack_row_encode(&row, again));
}

static void own_remote(const uint8_t *value, size_t len)
{
    uint8_t again[REMOTE_STATE_VALUE_LEN_MAX], wanted[REMOTE_STATE_VALUE_LEN_MAX] = {0};
    struct remote_state_row row;
    int r = remote_state_row_decode(value, len, &row);
    if (len <= sizeof wanted && len > REMOTE_FLAGS_AT + 1) {
        memcpy(wanted, value, len);
        for (size_t i = REMOTE_FLAGS_AT; i < REMOTE_FLAGS_AT + 2; i++)
            wanted[i] = value[i] != 0;
    }
    same(r, wanted, len, again, remote_state_row_encode(&row, again));
}

static void own_counts(uint64_t pack, const uint8_t *value, size_t len)
{
    uint8_t again[STATE_VALUE_LEN_MAX];
    struct view_state state = {0};
    struct pack_row row;
    struct touched_row touched;
    uint64_t bytes;
    int r = state_decode(value, len, &state);
    r = r == -ESTALE ? -EUCLEAN : r; /* of an earlier version */
    same(r, value, len, again, state_encode(&state, again));
    r = pack_row_decode(pack, value, len, &row);
    check(row.pub.pack == pack);
    same(r, value, len, again, pack_row_encode(&row, again));
    r = touched_decode(value, len, &touched);
    same(r, value, len, again, touched_encode(&touched, again));
    r = pending_upload_decode(value, len, &bytes);
    same(r, value, len, again, pending_upload_encode(bytes, again));
}

/* Places in the remote: a chunk that nothing refers to is fine there. */
static void own_place(const uint8_t *value, size_t len)
{
    static const struct chunk_name name = {{1, 2, 3}};
    uint8_t again[CHUNK_VALUE_LEN_MAX];
    struct chunk_row row;
    int r = chunk_row_decode(&name, value, len, &row);
    check(row.entry.ref_count <= CHUNK_REFS_MAX &&
          memcmp(&row.entry.name, &name, sizeof name) == 0);
    same(r, value, len, again, chunk_row_encode(&row, again));
}

static void own_list(const uint8_t *value, size_t len)
{
    struct listed_chunks listed = {0};
    struct bytes again = {0};
    int r = list_decode(value, len, &listed);
    if (r == 0)
        list_encode(&listed, &again);
    same(r, value, len, again.at, again.count);
    vector_free(&listed);
    vector_free(&again);
}

static void own(const struct run_row *row)
{
    uint64_t pack = row->key_len >= KEY_U64_LEN ? key_get_u64(row->key, 1) : 0;
    own_remote_pack(pack, row->value, row->value_len);
    own_remote(row->value, row->value_len);
    own_counts(pack, row->value, row->value_len);
    own_place(row->value, row->value_len);
    own_list(row->value, row->value_len);
}

/* Numbers are taken from the keys of rows that were found good. */
static void note(const struct run_row *row)
{
    struct row_numbers numbers = {0};
    struct view_state state = {0};
    row_numbers_note(&numbers, row);
    state.max_ino = numbers.ino;
    state.applied_seq = numbers.cookie;
    const struct view_head head = {.max_id = numbers.pack};
    check(row_numbers_check(&numbers, &state, &head) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    size_t key_len = input_u16(&in) % (RUN_KEY_MAX + 1);
    if (key_len == 0 || key_len > in.left)
        return 0;
    uint8_t *key = exact_copy(input_bytes(&in, key_len), key_len),
            *value = exact_copy(in.at, in.left);
    struct run_row row = {.key = key, .key_len = key_len, .value = value, .value_len = in.left};
    struct key last = {0};
    struct piece_list scratch = {0};
    struct inode_row inode = {0};
    struct chunk_row chunk;
    struct remote_pack_row pack;
    check(!row_comes_next(&last, &row) || (last.len == key_len && !row_comes_next(&last, &row)));
    if (row_check_plain(&row, &scratch, &inode) == 0) {
        again_plain(&row, &scratch, &inode);
        note(&row);
    }
    if (row_read_chunk(&row, &chunk) == 0)
        again_chunk(&row, &chunk);
    if (row_read_pack(&row, &pack) == 0) {
        again_pack(&row, &pack);
        if (*key == KEY_REMOTE_PACK)
            note(&row);
    }
    own(&row);
    vector_free(&scratch);
    free(key);
    free(value);
    return 0;
}
