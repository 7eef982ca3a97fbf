// SPDX-License-Identifier: Apache-2.0
#include "view/rows.h"

#include "base/log.h"
#include "view/bases.h"

#define INO_COUNTER_MASK ((1ull << 48) - 1)
#define VERSION_MAX (1ull << 62) /* seals add 1 to it */

bool row_comes_next(struct key *last, const struct run_row *row)
{
    if (row->key_len == 0 || row->key_len > sizeof last->bytes)
        return false;
    int order = memcmp(last->bytes, row->key, last->len < row->key_len ? last->len : row->key_len);
    if (order > 0 || (order == 0 && last->len >= row->key_len))
        return false;
    last->len = 0;
    key_add_bytes(last, row->key, row->key_len);
    return true;
}

static int check_inode(const struct run_row *row, struct inode_row *ret_inode)
{
    int r = inode_decode(key_get_u64(row->key, 1), row->value, row->value_len, ret_inode);
    return r == 0 && ret_inode->pub.version > VERSION_MAX ? -EUCLEAN : r;
}

static bool row_has_named_key(const struct run_row *row)
{
    return row->key_len > KEY_U64_LEN && row->key_len <= KEY_U64_LEN + NAME_LEN_MAX;
}

static int check_cookie(const struct run_row *row)
{
    struct view_entry entry;
    const char *name;
    size_t len;
    if (row->key_len != KEY_U64_U64_LEN)
        return -EUCLEAN;
    return cookie_decode(key_get_u64(row->key, KEY_U64_LEN), row->value, row->value_len, &entry,
                         &name, &len);
}

static int check_name(const struct run_row *row)
{
    struct view_entry entry;
    return row_has_named_key(row) ? name_decode(row->value, row->value_len, &entry) : -EUCLEAN;
}

static int check_row_bytes(const struct run_row *row, bool key_fits)
{
    const uint8_t *bytes;
    size_t len;
    return key_fits ? bytes_decode(row->value, row->value_len, &bytes, &len) : -EUCLEAN;
}

int row_check_plain(const struct run_row *row, struct piece_list *scratch,
                    struct inode_row *ret_inode)
{
    bool is_page = row->key_len == PAGE_KEY_LEN, is_number = row->key_len == KEY_U64_LEN;
    switch (*(const uint8_t *)row->key) {
    case KEY_INODE:
        return is_number ? check_inode(row, ret_inode) : -EUCLEAN;
    case KEY_NAME:
        return check_name(row);
    case KEY_COOKIE:
        return check_cookie(row);
    case KEY_PAGE:
        scratch->count = 0;
        return is_page ? page_decode(key_get_u64(row->key, KEY_U64_LEN), row->value, row->value_len,
                                     scratch)
                       : -EUCLEAN;
    case KEY_BLOB:
        return check_row_bytes(row, is_page);
    case KEY_XATTR:
        return check_row_bytes(row, row_has_named_key(row));
    case KEY_LINK:
        return check_row_bytes(row, is_number);
    case KEY_ORPHAN:
        return check_row_bytes(row, is_number && row->value_len == 1);
    default:
        return -EUCLEAN;
    }
}

int row_chunk_name(const struct run_row *row, struct chunk_name *ret)
{
    if (row->key_len != CHUNK_KEY_LEN)
        return -EUCLEAN;
    memcpy(ret, (const uint8_t *)row->key + 1, sizeof *ret);
    return 0;
}

static bool chunk_is_sane(const struct chunk_row *row)
{
    const struct chunk_entry *e = &row->entry;
    if (e->raw_len > CHUNK_SIZE_MAX || e->stored_len > CHUNK_SIZE_MAX || !entry_is_sane(e))
        return false;
    if (e->pack == 0)
        return row->refs > 0 && e->offset == 0 && e->ref_count == 0;
    return e->raw_len > 0 && e->offset <= INT64_MAX;
}

int row_read_chunk(const struct run_row *row, struct chunk_row *ret)
{
    struct chunk_name name;
    int r = row_chunk_name(row, &name);
    if (r == 0)
        r = chunk_run_decode(&name, row->value, row->value_len, ret);
    return r == 0 && !chunk_is_sane(ret) ? -EUCLEAN : r;
}

int row_read_pack(const struct run_row *row, struct remote_pack_row *ret)
{
    if (row->key_len != KEY_U64_LEN || key_get_u64(row->key, 1) == 0)
        return -EUCLEAN;
    return remote_pack_run_decode(key_get_u64(row->key, 1), row->value, row->value_len, ret);
}

void row_numbers_note(struct row_numbers *numbers, const struct run_row *row)
{
    const uint8_t *key = row->key;
    if (key[0] == KEY_INODE)
        numbers->ino = max_u64(numbers->ino, key_get_u64(key, 1) & INO_COUNTER_MASK);
    if (key[0] == KEY_COOKIE)
        numbers->cookie = max_u64(numbers->cookie, key_get_u64(key, KEY_U64_LEN));
    if (key[0] == KEY_REMOTE_PACK)
        numbers->pack = max_u64(numbers->pack, key_get_u64(key, 1));
}

int row_numbers_check(const struct row_numbers *numbers, const struct view_state *state,
                      uint64_t max_id)
{
    if (numbers->ino <= state->max_ino && numbers->pack <= max_id &&
        numbers->cookie <= state->applied_seq)
        return 0;
    log_error("view: the rows from the remote have numbers that come after the head's");
    return -EUCLEAN;
}
