#include "meta/view_db.h"

#include "base/cause.h"
#include "base/log.h"

int db_error(const char *doing, char *message)
{
    int r = strncmp(message, "Corruption", strlen("Corruption")) == 0 ? -EUCLEAN : -EIO;
    log_error("view: %s: %s", doing, message);
    cause_note("the view: %s: %s; mount again: it is made anew where it is damaged", doing, message);
    rocksdb_free(message);
    return r;
}

void snap_begin(struct snap *s, struct view *view)
{
    s->view = view;
    s->snapshot = rocksdb_create_snapshot(view->db);
    s->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_snapshot(s->read, s->snapshot);
}

void snap_end(struct snap *s)
{
    rocksdb_readoptions_destroy(s->read);
    rocksdb_release_snapshot(s->view->db, s->snapshot);
}

int db_get(struct view *view, const struct snap *snap, const struct key *key, struct value *ret_value)
{
    char *message = NULL;
    ret_value->data = rocksdb_get(view->db, snap ? snap->read : view->read, (const char *)key->bytes,
                                  key->len, &ret_value->len, &message);
    if (message)
        return db_error("cannot read", message);
    return ret_value->data ? 0 : -ENOENT;
}

int db_get_inode(struct view *view, const struct snap *snap, uint64_t ino, struct inode_row *row)
{
    struct key key;
    key_u64(&key, KEY_INODE, ino);
    _cleanup_value_ struct value value = {0};
    int r = db_get(view, snap, &key, &value);
    return r < 0 ? r : inode_decode(ino, value.data, value.len, row);
}

/* The smallest key above all that begin with `prefix`. There is one: type bytes are letters. */
static void prefix_end(struct key *k)
{
    while (k->bytes[k->len - 1] == 0xff)
        k->len--;
    k->bytes[k->len - 1]++;
}

void scan_open_at(struct scan *scan, const struct snap *snap, const struct key *prefix, const struct key *from)
{
    *scan = (struct scan){.end = *prefix, .read = rocksdb_readoptions_create()};
    prefix_end(&scan->end);
    rocksdb_readoptions_set_snapshot(scan->read, snap->snapshot);
    rocksdb_readoptions_set_iterate_upper_bound(scan->read, (const char *)scan->end.bytes, scan->end.len);
    scan->iter = rocksdb_create_iterator(snap->view->db, scan->read);
    scan_seek(scan, from);
}

void scan_open(struct scan *scan, const struct snap *snap, const struct key *prefix)
{
    scan_open_at(scan, snap, prefix, prefix);
}

void scan_seek(struct scan *scan, const struct key *key)
{
    rocksdb_iter_seek(scan->iter, (const char *)key->bytes, key->len);
}

bool scan_valid(struct scan *scan)
{
    if (!rocksdb_iter_valid(scan->iter))
        return false;
    scan->key = (const uint8_t *)rocksdb_iter_key(scan->iter, &scan->key_len);
    scan->value = (const uint8_t *)rocksdb_iter_value(scan->iter, &scan->value_len);
    return true;
}

void scan_next(struct scan *scan)
{
    rocksdb_iter_next(scan->iter);
}

int iter_error(rocksdb_iterator_t *iter)
{
    char *message = NULL;
    rocksdb_iter_get_error(iter, &message);
    return message ? db_error("cannot read", message) : 0;
}

int scan_error(struct scan *scan)
{
    return iter_error(scan->iter);
}

void scan_close(struct scan *scan)
{
    rocksdb_iter_destroy(scan->iter);
    rocksdb_readoptions_destroy(scan->read);
}
