// SPDX-License-Identifier: Apache-2.0
/* Reads of single rows. */
#include "base/cause.h"
#include "base/log.h"
#include "view/db.h"

struct view *look_view(const struct look *look)
{
    return look->txn ? look->txn->view : look->snap ? look->snap->view : look->view;
}

int look_get(const struct look *look, const struct key *key, struct value *ret_value)
{
    return look->txn ? txn_get(look->txn, key, ret_value)
                     : db_get(look_view(look), look->snap, key, ret_value);
}

int look_has(const struct look *look, const struct key *key)
{
    _cleanup_value_ struct value value = {0};
    int r = look_get(look, key, &value);
    return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

int look_chunk(const struct look *look, enum key_type type, const struct chunk_name *name,
               struct chunk_row *ret)
{
    _cleanup_value_ struct value value = {0};
    TRY(look_get(look, key_of_name(NEW_KEY, type, name), &value));
    int r = chunk_row_decode(name, value.data, value.len, ret);
    return look->txn ? r : view_note_damage(look_view(look), r);
}

int look_known_chunk(const struct look *look, enum key_type type, const struct chunk_name *name,
                     struct chunk_row *ret)
{
    *ret = (struct chunk_row){.entry = {.name = *name}};
    int r = look_chunk(look, type, name, ret);
    return r == -ENOENT ? 0 : r;
}

int look_remote_pack(const struct look *look, uint64_t pack, struct remote_pack_row *ret)
{
    _cleanup_value_ struct value value = {0};
    int r = look_get(look, key_u64(NEW_KEY, KEY_REMOTE_PACK, pack), &value);
    return r < 0 ? r : remote_pack_row_decode(pack, value.data, value.len, ret);
}

int look_pending(const struct look *look, const struct chunk_name *name, uint64_t *ret_bytes)
{
    _cleanup_value_ struct value value = {0};
    int r = look_get(look, key_of_name(NEW_KEY, KEY_PENDING_UPLOAD, name), &value);
    return r < 0 ? r : pending_upload_decode(value.data, value.len, ret_bytes);
}

int look_chunk_mark(const struct look *look, const struct chunk_name *name, struct touched_row *ret)
{
    _cleanup_value_ struct value value = {0};
    int r = look_get(look, key_chunk_mark(NEW_KEY, name), &value);
    return r < 0 ? r : touched_decode(value.data, value.len, ret);
}

void txn_put_chunk(struct txn *txn, enum key_type type, const struct chunk_row *row)
{
    uint8_t value[CHUNK_VALUE_LEN_MAX];
    txn_put(txn, key_of_name(NEW_KEY, type, &row->entry.name), value, chunk_row_encode(row, value));
}

/* --- reads of the newest state ---------------------------------------------------------------- */

/* Logs a value that does not decode; errors of the database are in the log already. */
static int note_damaged(struct view *view, int r, const char *what, uint64_t id)
{
    if (r != -EUCLEAN)
        return r;
    atomic_store(&view->is_damaged, true);
    log_error("view: %s %llu is damaged", what, (unsigned long long)id);
    cause_note("in the view, %s %llu is damaged; it is made anew", what, (unsigned long long)id);
    return r;
}

int view_inode(struct view *view, uint64_t ino, struct view_inode *ret_inode)
{
    struct inode_row row;
    int r = db_get_inode(view, NULL, ino, &row);
    if (r == 0)
        *ret_inode = row.pub;
    return note_damaged(view, r, "inode", ino);
}

int view_lookup(struct view *view, uint64_t parent, const char *name, size_t name_len,
                struct view_entry *ret_entry)
{
    if (name_len > NAME_LEN_MAX)
        return -ENOENT;
    _cleanup_value_ struct value value = {0};
    int r = db_get(view, NULL, key_named(NEW_KEY, KEY_NAME, parent, name, name_len), &value);
    return r < 0 ? r
                 : note_damaged(view, name_decode(value.data, value.len, ret_entry),
                                "a name in directory", parent);
}

/* Copies the bytes of a value that belongs to inode `ino` into the caller's buffer. */
static ssize_t view_copy_bytes(struct view *view, uint64_t ino, const struct value *value,
                               void *buf, size_t size, bool ask_length)
{
    const uint8_t *bytes;
    size_t len;
    TRY(note_damaged(view, bytes_decode(value->data, value->len, &bytes, &len), "a value of inode",
                     ino));
    if (ask_length && size == 0)
        return (ssize_t)len;
    if (len > size)
        return -ERANGE;
    if (len)
        memcpy(buf, bytes, len);
    return (ssize_t)len;
}

int view_stand_in(struct view *view, uint64_t ino, struct view_stand_in *ret)
{
    _cleanup_value_ struct value value = {0};
    TRY(db_get(view, NULL, key_u64(NEW_KEY, KEY_STAND_IN, ino), &value));
    return note_damaged(view, stand_in_decode(value.data, value.len, ret),
                        "the stand-in of directory", ino);
}

ssize_t view_readlink(struct view *view, uint64_t ino, char *buf, size_t size)
{
    _cleanup_value_ struct value value = {0};
    int r = db_get(view, NULL, key_u64(NEW_KEY, KEY_LINK, ino), &value);
    return r < 0 ? r : view_copy_bytes(view, ino, &value, buf, size, false);
}

ssize_t view_getxattr(struct view *view, uint64_t ino, const char *name, size_t name_len, void *buf,
                      size_t size)
{
    if (name_len > NAME_LEN_MAX)
        return -ENODATA;
    _cleanup_value_ struct value value = {0};
    int r = db_get(view, NULL, key_named(NEW_KEY, KEY_XATTR, ino, name, name_len), &value);
    if (r == -ENOENT) {
        struct inode_row row;
        r = db_get_inode(view, NULL, ino, &row);
        return r < 0 ? r : -ENODATA;
    }
    return r < 0 ? r : view_copy_bytes(view, ino, &value, buf, size, true);
}

int view_local_chunk(struct view *view, const struct chunk_name *name, struct view_local_chunk *ret)
{
    struct chunk_row row = {0};
    _cleanup_value_ struct value value = {0};
    TRY(db_get(view, NULL, key_chunk(NEW_KEY, name), &value));
    TRY(note_damaged(view, chunk_row_decode(name, value.data, value.len, &row),
                     "the entry of a chunk of pack", row.entry.pack));
    *ret = (struct view_local_chunk){row.entry, row.refs, row.dependents};
    return 0;
}

int view_chunk(struct view *view, const struct chunk_name *name, struct chunk_entry *ret_entry,
               uint64_t *ret_refs)
{
    struct view_local_chunk chunk;
    TRY(view_local_chunk(view, name, &chunk));
    *ret_entry = chunk.entry;
    *ret_refs = chunk.refs;
    return 0;
}

int view_pack(struct view *view, uint64_t pack, struct view_pack *ret_pack)
{
    _cleanup_value_ struct value value = {0};
    struct pack_row row;
    TRY(db_get(view, NULL, key_u64(NEW_KEY, KEY_PACK, pack), &value));
    TRY(note_damaged(view, pack_row_decode(pack, value.data, value.len, &row),
                     "the account of pack", pack));
    *ret_pack = row.pub;
    return 0;
}
