// SPDX-License-Identifier: Apache-2.0
#include "view/db.h"

#include "base/cause.h"
#include "base/log.h"

#define STALL_STEP_US 2000
#define READ_TRIES 2
#define STALL_TRIES 5000 /* 10 s; then the writer retries later */

static bool is_corruption(const char *message)
{
    return strncmp(message, "Corruption", strlen("Corruption")) == 0;
}

/* A missing file of the database will not come back; an unreadable sector may become readable. */
int db_error(const char *doing, char *message)
{
    bool is_damage = is_corruption(message) || strstr(message, strerror(ENOENT));
    int r = is_damage ? -EUCLEAN : -EIO;
    log_error("view: %s: %s", doing, message);
    cause_note("the view: %s: %s; mount again: it is made anew where it is damaged", doing,
               message);
    rocksdb_free(message);
    return r;
}

int view_note_damage(struct view *view, int r)
{
    if (r == -EUCLEAN)
        atomic_store(&view->is_damaged, true);
    return r;
}

/* db_error() for a read, whose failure the view remembers. */
static int read_error(struct view *view, char *message)
{
    int r = view_note_damage(view, db_error("cannot read", message));
    if (r == -EIO)
        atomic_store(&view->is_unreadable, true);
    return r;
}

void snap_begin(struct snap *s, struct view *view)
{
    *s = (struct snap){.view = view, .readers = 1, .read = rocksdb_readoptions_create()};
    s->error = view_use_begin(view);
    if (view->db)
        s->snapshot = rocksdb_create_snapshot(view->db);
    rocksdb_readoptions_set_snapshot(s->read, s->snapshot);
}

void snap_end(struct snap *s)
{
    rocksdb_readoptions_destroy(s->read);
    if (s->snapshot)
        rocksdb_release_snapshot(s->view->db, s->snapshot);
    view_use_end(s->view);
}

/* RocksDB would block until it has compacted enough: for ever, if the disk is full. */
static int write_stalled(struct view *view, rocksdb_writebatch_t *batch,
                         const rocksdb_writeoptions_t *options, char **ret_message)
{
    for (int tries = 0; tries < STALL_TRIES; tries++) {
        *ret_message = NULL;
        rocksdb_write(view->db, (rocksdb_writeoptions_t *)(uintptr_t)options, batch, ret_message);
        if (!*ret_message ||
            strncmp(*ret_message, "Result incomplete", strlen("Result incomplete")) != 0)
            return 0;
        rocksdb_free(*ret_message);
        *ret_message = NULL;
        (void)usleep(STALL_STEP_US);
    }
    log_error("view: cannot write: its database is behind with its compactions");
    return -EAGAIN;
}

int db_write(struct view *view, rocksdb_writebatch_t *batch, const rocksdb_writeoptions_t *options)
{
    char *message;
    if (!view->db || atomic_load(&view->has_failed))
        return -EIO;
    int r = write_stalled(view, batch, options ? options : view->write, &message);
    if (r == 0 && message) {
        atomic_store(&view->has_failed, true);
        r = view_note_damage(view, db_error("cannot write", message));
    }
    return r;
}

/* Reads a block again if it does not verify: a transient misread of the disk is no damage. */
static void get_verified(struct view *view, rocksdb_readoptions_t *options, const struct key *key,
                         struct value *ret_value, char **ret_message)
{
    for (int tries = 0; tries < READ_TRIES; tries++) {
        rocksdb_free(*ret_message);
        *ret_message = NULL;
        ret_value->data = rocksdb_get(view->db, options, (const char *)key->bytes, key->len,
                                      &ret_value->len, ret_message);
        if (!*ret_message || !is_corruption(*ret_message))
            return;
    }
}

int db_get(struct view *view, const struct snap *snap, const struct key *key,
           struct value *ret_value)
{
    char *message = NULL;
    int r = snap ? snap->error : view_use_begin(view);
    if (r == 0)
        get_verified(view, snap ? snap->read : view->read, key, ret_value, &message);
    if (!snap)
        view_use_end(view);
    if (r < 0)
        return r;
    if (message)
        return read_error(view, message);
    return ret_value->data ? 0 : -ENOENT;
}

int db_get_inode(struct view *view, const struct snap *snap, uint64_t ino, struct inode_row *row)
{
    _cleanup_value_ struct value value = {0};
    int r = db_get(view, snap, key_u64(NEW_KEY, KEY_INODE, ino), &value);
    return r < 0 ? r : inode_decode(ino, value.data, value.len, row);
}

void db_set_compactions(struct view *view, bool enabled)
{
    const char *key = "disable_auto_compactions", *value = enabled ? "false" : "true";
    char *message = NULL;
    rocksdb_set_options(view->db, 1, &key, &value, &message);
    if (!message)
        return;
    log_warn("view: cannot set when to compact: %s", message);
    rocksdb_free(message);
}

void scan_open_at(struct scan *scan, const struct snap *snap, const struct key *prefix,
                  const struct key *from)
{
    *scan = (struct scan){.view = snap->view, .end = *prefix, .read = rocksdb_readoptions_create()};
    key_end(&scan->end);
    rocksdb_readoptions_set_snapshot(scan->read, snap->snapshot);
    rocksdb_readoptions_set_iterate_upper_bound(scan->read, (const char *)scan->end.bytes,
                                                scan->end.len);
    scan->error = snap->error;
    if (!scan->error)
        scan->iter = rocksdb_create_iterator(snap->view->db, scan->read);
    scan_seek(scan, from);
}

void scan_open(struct scan *scan, const struct snap *snap, const struct key *prefix)
{
    scan_open_at(scan, snap, prefix, prefix);
}

void scan_type(struct scan *scan, const struct snap *snap, enum key_type type)
{
    scan_open(scan, snap, key_type(NEW_KEY, type));
}

void scan_view(struct scan *scan, struct view *view, const struct key *prefix,
               const struct key *from)
{
    struct snap snap;
    snap_begin(&snap, view);
    scan_open_at(scan, &snap, prefix, from ? from : prefix);
    scan->own = snap;
}

void scan_view_type(struct scan *scan, struct view *view, enum key_type type)
{
    scan_view(scan, view, key_type(NEW_KEY, type), NULL);
}

void scan_seek(struct scan *scan, const struct key *key)
{
    scan->has_begun = false;
    if (scan->iter)
        rocksdb_iter_seek(scan->iter, (const char *)key->bytes, key->len);
}

bool scan_valid(struct scan *scan)
{
    if (!scan->iter || !rocksdb_iter_valid(scan->iter))
        return false;
    scan->key = (const uint8_t *)rocksdb_iter_key(scan->iter, &scan->key_len);
    scan->value = (const uint8_t *)rocksdb_iter_value(scan->iter, &scan->value_len);
    return true;
}

void scan_next(struct scan *scan)
{
    rocksdb_iter_next(scan->iter);
}

int scan_step(struct scan *scan)
{
    if (scan->has_begun)
        scan_next(scan);
    scan->has_begun = scan_valid(scan);
    return scan->has_begun ? 1 : scan_error(scan);
}

int scan_decode(struct scan *scan)
{
    const struct run_row raw = {scan->key, scan->key_len, scan->value, scan->value_len};
    return row_decode(&raw, &scan->row);
}

int scan_row(struct scan *scan)
{
    int r = scan_step(scan);
    return r > 0 && scan_decode(scan) < 0 ? -EUCLEAN : r;
}

int iter_error(struct view *view, rocksdb_iterator_t *iter)
{
    char *message = NULL;
    rocksdb_iter_get_error(iter, &message);
    return message ? read_error(view, message) : 0;
}

int scan_error(struct scan *scan)
{
    return scan->iter ? iter_error(scan->view, scan->iter) : scan->error;
}

void scan_close(struct scan *scan)
{
    if (scan->iter)
        rocksdb_iter_destroy(scan->iter);
    rocksdb_readoptions_destroy(scan->read);
    row_done(&scan->row);
    if (scan->own.view)
        snap_end(&scan->own);
}
