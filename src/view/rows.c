// SPDX-License-Identifier: Apache-2.0
#include "view/rows.h"

#include "base/log.h"

#define INO_COUNTER_MASK ((1ull << 48) - 1)
#define VERSION_MAX (1ull << 62) /* a seal adds 1 */

bool entry_is_sane(const struct chunk_entry *entry)
{
    if (entry->ref_count > CHUNK_REFS_MAX || entry->depth > CHUNK_DEPTH_MAX)
        return false;
    return (entry->ref_count > 0) == (entry->depth > 0) && !entry_refers_to(entry, &entry->name);
}

bool entry_refers_to(const struct chunk_entry *entry, const struct chunk_name *base)
{
    for (size_t i = 0; i < entry->ref_count; i++)
        if (chunk_name_equal(&entry->refs[i].name, base))
            return true;
    return false;
}

bool entry_ref_is_first(const struct chunk_entry *entry, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (chunk_name_equal(&entry->refs[j].name, &entry->refs[i].name))
            return false;
    return true;
}

int compare_listed(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct listed));
}

void list_encode(struct listed_chunks *list, struct bytes *value)
{
    size_t kept = 0;
    check(list->count > 0);
    vector_sort(list, compare_listed);
    for (size_t i = 0; i < list->count; i++)
        if (i == 0 || compare_listed(&list->at[kept - 1], &list->at[i]) != 0)
            list->at[kept++] = list->at[i];
    list->count = kept;
    uint8_t *p = bytes_extend(value, 1 + kept * LISTED_LEN);
    *p = VIEW_VALUE_VERSION;
    memcpy(p + 1, list->at, kept * LISTED_LEN);
}

int list_decode(const void *p, size_t len, struct listed_chunks *list)
{
    const uint8_t *bytes = p;
    if (len <= 1 || (len - 1) % LISTED_LEN != 0 || *bytes != VIEW_VALUE_VERSION)
        return -EUCLEAN;
    vector_add_all(list, (const struct listed *)(bytes + 1), (len - 1) / LISTED_LEN);
    for (size_t i = 1; i < list->count; i++)
        if (compare_listed(&list->at[i - 1], &list->at[i]) >= 0)
            return -EUCLEAN;
    return 0;
}

/* The parts of a key after its type, in this order. */
static const struct form {
    unsigned numbers; /* numbers of 8 bytes */
    bool has_chunk, has_dependent;
    size_t name_max; /* 0: no name */
} forms['Z' - 'A' + 1] = {
    [KEY_INODE - 'A'] = {.numbers = 1},
    [KEY_NAME - 'A'] = {.numbers = 1, .name_max = NAME_LEN_MAX},
    [KEY_COOKIE - 'A'] = {.numbers = 2},
    [KEY_XATTR - 'A'] = {.numbers = 1, .name_max = NAME_LEN_MAX},
    [KEY_LINK - 'A'] = {.numbers = 1},
    [KEY_PAGE - 'A'] = {.numbers = 3},
    [KEY_BLOB - 'A'] = {.numbers = 3},
    [KEY_CHUNK - 'A'] = {.has_chunk = true},
    [KEY_PLACED - 'A'] = {.numbers = 1},
    [KEY_PACK - 'A'] = {.numbers = 1},
    [KEY_ORPHAN - 'A'] = {.numbers = 1},
    [KEY_STAND_IN - 'A'] = {.numbers = 1},
    [KEY_REMOTE_CHUNK - 'A'] = {.has_chunk = true},
    [KEY_REMOTE_PLACED - 'A'] = {.numbers = 1},
    [KEY_REMOTE_PACK - 'A'] = {.numbers = 1},
    [KEY_DEPENDENT - 'A'] = {.has_chunk = true, .has_dependent = true},
    [KEY_PENDING_UPLOAD - 'A'] = {.has_chunk = true},
    [KEY_TOUCHED - 'A'] = {.name_max = RUN_KEY_MAX},
};

static int decode_key(const struct form *form, const struct run_row *raw, struct view_row *row)
{
    uint64_t *const numbers[] = {&row->id, &row->id2, &row->id3};
    const uint8_t *at = (const uint8_t *)raw->key + 1;
    size_t len = form->numbers * sizeof(uint64_t) + form->has_chunk * sizeof row->chunk +
                 form->has_dependent * (1 + sizeof row->dependent);
    row->name_len = raw->key_len - 1 - len;
    if (raw->key_len < 1 + len || row->name_len > form->name_max ||
        (row->name_len == 0 && form->name_max))
        return -EUCLEAN;
    row->name = (const char *)at + len;
    for (unsigned i = 0; i < form->numbers; i++)
        *numbers[i] = key_get_u64(at, i * sizeof(uint64_t));
    if (form->has_chunk)
        memcpy(&row->chunk, at, sizeof row->chunk);
    if (!form->has_dependent)
        return 0;
    row->need = at[sizeof row->chunk];
    memcpy(&row->dependent, at + sizeof row->chunk + 1, sizeof row->dependent);
    return row->need < ABSENT ? 0 : -EUCLEAN;
}

static int decode_value(uint8_t type, const void *value, size_t len, struct view_row *row)
{
    switch (type) {
    case KEY_INODE:
        return inode_decode(row->id, value, len, &row->inode);
    case KEY_NAME:
        return name_decode(value, len, &row->entry);
    case KEY_COOKIE:
        return cookie_decode(row->id2, value, len, &row->entry, &row->name, &row->name_len);
    case KEY_XATTR:
    case KEY_LINK:
    case KEY_BLOB:
        return bytes_decode(value, len, &row->bytes, &row->bytes_len);
    case KEY_ORPHAN:
        return len == 1 ? bytes_decode(value, len, &row->bytes, &row->bytes_len) : -EUCLEAN;
    case KEY_STAND_IN:
        return stand_in_decode(value, len, &row->stand_in);
    case KEY_PAGE:
        row->id3 = ~row->id3;
        row->pieces.count = 0;
        return page_decode(row->id2, value, len, &row->pieces);
    case KEY_CHUNK:
    case KEY_REMOTE_CHUNK:
        return chunk_row_decode(&row->chunk, value, len, &row->placed);
    case KEY_PLACED:
    case KEY_REMOTE_PLACED:
        row->listed.count = 0;
        return list_decode(value, len, &row->listed);
    case KEY_PACK:
        return pack_row_decode(row->id, value, len, &row->pack);
    case KEY_REMOTE_PACK:
        return remote_pack_row_decode(row->id, value, len, &row->remote_pack);
    case KEY_DEPENDENT:
        return dependent_decode(value, len, &row->depth);
    case KEY_PENDING_UPLOAD:
        return pending_upload_decode(value, len, &row->pending_bytes);
    case KEY_TOUCHED:
        return touched_decode(value, len, &row->touched);
    default:
        return -EUCLEAN;
    }
}

int row_decode(const struct run_row *raw, struct view_row *row)
{
    unsigned type = raw->key_len ? *(const uint8_t *)raw->key : 0;
    if (type < 'A' || type > 'Z' || decode_key(&forms[type - 'A'], raw, row) < 0)
        return -EUCLEAN;
    return decode_value((uint8_t)type, raw->value, raw->value_len, row);
}

void row_done(struct view_row *row)
{
    vector_free(&row->pieces);
    vector_free(&row->listed);
}

char *row_name(const struct view_row *row, char *buf)
{
    memcpy(buf, row->name, row->name_len);
    buf[row->name_len] = '\0';
    return buf;
}

/* --- rows of runs ----------------------------------------------------------------------------- */

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

int row_check_plain(const struct run_row *raw, struct piece_list *scratch,
                    struct inode_row *ret_inode)
{
    struct view_row row = {.pieces = *scratch};
    uint8_t type = raw->key_len ? *(const uint8_t *)raw->key : 0;
    int r = is_published_type(type) ? row_decode(raw, &row) : -EUCLEAN;
    *scratch = row.pieces;
    *ret_inode = row.inode;
    return r == 0 && row.inode.pub.version > VERSION_MAX ? -EUCLEAN : r;
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
                      const struct view_head *head)
{
    if (numbers->ino <= state->max_ino && numbers->pack <= head->max_id &&
        (numbers->cookie <= state->applied_seq || head->has_nodes))
        return 0;
    log_error("view: the rows from the remote have numbers that come after the head's");
    return -EUCLEAN;
}
