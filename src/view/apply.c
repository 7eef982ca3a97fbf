// SPDX-License-Identifier: Apache-2.0
/* Applying a batch of records: one transaction, written whole or not at all. */
#include <inttypes.h>
#include <sys/stat.h>

#include "base/log.h"
#include "view/apply.h"
#include "view/pack_list.h"

/* Creates the inode and the first name of a file. `row` gets the stored row. */
static int seal_birth(struct txn *txn, const struct record *rec, struct inode_row *row)
{
    *row = (struct inode_row){
        .pub = {.ino = rec->ino, .attrs = rec->attrs, .nlink = 1, .parent = rec->parent}};
    TRY(inode_create(txn, row));
    struct view_entry entry = {.ino = rec->ino, .cookie = rec->cookie, .type = S_IFREG};
    TRY(name_add(txn, rec->parent, rec->name, rec->name_len, &entry));
    return dir_change(
        txn, rec->parent,
        &(struct dir_change){
            .time = rec->attrs.btime, .now = rec->time, .later_only = true, .entries = 1});
}

/* Returns the inode that the seal is for; creates it if this is the first. */
static int seal_inode(struct txn *txn, const struct record *rec, struct inode_row *row)
{
    if (!S_ISREG(rec->attrs.mode) || rec->attrs.size > VIEW_OFFSET_MAX)
        return txn_damage(txn, "not a file, or an impossible size");
    int r =
        rec->flags & RECORD_BIRTH ? seal_birth(txn, rec, row) : txn_get_inode(txn, rec->ino, row);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "no such inode") : r;
    if (!S_ISREG(row->pub.attrs.mode))
        return txn_damage(txn, "the inode is not a file");
    return rec->version > row->pub.version ? 0 : txn_damage(txn, "the version is not newer");
}

static void seal_attrs(struct txn *txn, const struct record *rec, struct inode_row *row)
{
    struct attrs old = row->pub.attrs;
    if (row->pub.nlink > 0) /* orphans are not counted */
        txn->state.logical_bytes += rec->attrs.size - old.size;
    row->pub.attrs = rec->attrs;
    row->pub.attrs.rdev = old.rdev;
    row->pub.attrs.btime = old.btime;
    row->pub.version = rec->version;
}

static int apply_seal(struct txn *txn, const struct record *rec)
{
    int r = pending_add(txn, rec);
    struct piece_list pieces = pending_take(txn, rec);
    struct inode_row row;
    if (r == 0)
        r = seal_inode(txn, rec, &row);
    if (r == 0 && !(rec->flags & RECORD_ELIDED))
        r = content_replace(txn, &row, rec->version, rec->keep, rec->attrs.size, &pieces);
    vector_free(&pieces);
    if (r < 0)
        return r;
    seal_attrs(txn, rec, &row);
    txn_put_inode(txn, &row);
    return 0;
}

/* Applies a version whose content is not in this view. */
static int apply_version(struct txn *txn, const struct record *rec)
{
    struct inode_row row;
    TRY(seal_inode(txn, rec, &row));
    seal_attrs(txn, rec, &row);
    row.pub.blocks_bytes = rec->length;
    row.pages = rec->count;
    txn_put_inode(txn, &row);
    return 0;
}

static int apply_stand_in(struct txn *txn, const struct record *rec)
{
    uint8_t value[STAND_IN_VALUE_LEN_MAX];
    struct key key;
    key_u64(&key, KEY_STAND_IN, rec->ino);
    if (rec->ino2 == rec->ino) {
        txn_delete(txn, &key);
        return 0;
    }
    struct view_stand_in stand_in = {.ino = rec->ino2,
                                     .parent = rec->parent,
                                     .mode = rec->attrs.mode,
                                     .uid = rec->attrs.uid,
                                     .gid = rec->attrs.gid,
                                     .name_len = rec->name_len};
    memcpy(stand_in.name, rec->name, rec->name_len);
    txn_put(txn, &key, value, stand_in_encode(&stand_in, value));
    return 0;
}

static int apply_setattr(struct txn *txn, const struct record *rec)
{
    struct inode_row row;
    int r = txn_get_inode(txn, rec->ino, &row);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "no such inode") : r;
    record_set_attrs(rec, &row.pub.attrs);
    txn_put_inode(txn, &row);
    return 0;
}

static int apply_xattr(struct txn *txn, const struct record *rec)
{
    struct inode_row row;
    int r = txn_get_inode(txn, rec->ino, &row);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "no such inode") : r;
    struct key key;
    key_named(&key, KEY_XATTR, rec->ino, rec->name, rec->name_len);
    r = txn_has(txn, &key);
    if (r < 0 && r != -ENOENT)
        return r;
    bool had = r == 0;
    if (rec->type == REC_REMOVEXATTR && !had)
        return txn_damage(txn, "no such xattr");
    if (rec->type == REC_REMOVEXATTR) {
        txn_delete(txn, &key);
        row.pub.xattrs--;
    } else {
        txn_put_bytes(txn, &key, rec->value, rec->value_len);
        row.pub.xattrs += !had;
    }
    row.pub.attrs.ctime = rec->time;
    txn_put_inode(txn, &row);
    return 0;
}

static int apply_record(struct txn *txn, const struct record *rec, const struct view_batch *batch)
{
    switch (rec->type) {
    case REC_SEAL:
        return apply_seal(txn, rec);
    case REC_VERSION:
        return apply_version(txn, rec);
    case REC_STAND_IN:
        return apply_stand_in(txn, rec);
    case REC_EXTENTS:
        return pending_add(txn, rec);
    case REC_MAKE:
        return apply_make(txn, rec);
    case REC_LINK:
        return apply_link(txn, rec);
    case REC_UNLINK:
        return apply_unlink(txn, rec);
    case REC_RENAME:
        return apply_rename(txn, rec);
    case REC_SETATTR:
        return apply_setattr(txn, rec);
    case REC_SETXATTR:
    case REC_REMOVEXATTR:
        return apply_xattr(txn, rec);
    case REC_REAP:
        return apply_reap(txn, rec);
    case REC_PACK:
        return apply_pack(txn, rec, batch);
    case REC_DROP:
        return apply_drop(txn, rec);
    default:
        return txn_damage(txn, "a record of the stage's log");
    }
}

static void log_record(const struct txn *txn, const struct record *rec, int error)
{
    log_error("view: cannot apply %s, seq %" PRIu64 ", inode %" PRIu64 ", pack %" PRIu64 ": %s",
              record_type_name(rec->type), rec->seq, rec->ino, rec->pack,
              txn->why ? txn->why : strerror(-error));
}

static int apply_records(struct txn *txn, const struct view_batch *batch)
{
    size_t at = 0;
    while (at < batch->records_len) {
        struct record rec;
        size_t len;
        int r =
            record_decode((const char *)batch->records + at, batch->records_len - at, &rec, &len);
        if (r < 0) {
            log_error("view: the record at byte %zu of a batch is damaged: %s", at, strerror(-r));
            return r == -EBADMSG ? -EUCLEAN : r;
        }
        r = apply_record(txn, &rec, batch);
        if (r < 0) {
            log_record(txn, &rec, r);
            return r;
        }
        at += len;
    }
    return 0;
}

static int apply_all(struct txn *txn, const struct view_batch *batch)
{
    if (batch->cut_seq < txn->state.applied_seq) {
        log_error("view: batch %" PRIu64 " is older than what is applied, %" PRIu64, batch->cut_seq,
                  txn->state.applied_seq);
        return -EUCLEAN;
    }
    txn->cut = batch->cut_seq;
    int r = apply_records(txn, batch);
    if (pending_drop(txn) && r == 0) {
        log_error("view: batch %" PRIu64 " has extents of a version without its seal",
                  batch->cut_seq);
        r = -EUCLEAN;
    }
    if (r < 0)
        return r;
    pack_account_store(txn);
    remote_pack_store(txn);
    TRY(lists_store(txn));
    txn->state.applied_seq = batch->cut_seq;
    memcpy(txn->state.chain, batch->chain, sizeof txn->state.chain);
    return txn_commit(txn);
}

int view_apply(struct view *view, const struct view_batch *batch)
{
    struct txn txn;
    txn_begin(&txn, view);
    int r = apply_all(&txn, batch);
    txn_end(&txn);
    return r;
}
