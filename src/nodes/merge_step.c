// SPDX-License-Identifier: Apache-2.0
#include "nodes/merge_internal.h"

static int no_index(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                    void *fn_arg, bool *ret_was_made, void *arg)
{
    (void)pack;
    (void)fn;
    (void)fn_arg;
    (void)ret_was_made;
    (void)arg;
    return -ENOENT;
}

static int note_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    (void)name;
    (void)name_len;
    *(struct view_entry *)arg = *entry;
    return 1;
}

int merge_first_entry(struct merge *m, uint64_t dir, uint64_t after, struct view_entry *ret)
{
    ret->ino = 0;
    TRY(view_readdir(m->view, dir, after, note_entry, ret));
    return ret->ino ? 0 : -ENOENT;
}

/* A cookie is taken if an operation was refused that had moved the cookie to another name. */
int merge_settle_cookie(struct merge *m, uint64_t dir, uint64_t *cookie)
{
    struct view_entry entry;
    int r = merge_first_entry(m, dir, *cookie - 1, &entry);
    if (r == 0 && entry.cookie == *cookie)
        *cookie = m->rec->seq;
    return r == -ENOENT ? 0 : r;
}

int merge_apply(struct merge *m, struct record rec)
{
    rec.seq = m->rec->seq;
    rec.time = m->rec->time;
    size_t len = record_encoded_len(&rec);
    _cleanup_free_ uint8_t *bytes = xmalloc(len);
    record_encode(&rec, bytes);
    struct view_batch batch = {
        .records = bytes, .records_len = len, .cut_seq = m->cut, .pack_index = no_index};
    int r = view_apply(m->view, &batch);
    if (r != -EUCLEAN || view_is_damaged(m->view))
        return r;
    m->counts.impossible++; /* nothing was changed: a bug of one node must not stop all others */
    return 0;
}

int merge_refuse(struct merge *m)
{
    m->counts.refused++;
    return 0;
}

int merge_look_up(struct merge *m, const struct place *place, struct view_entry *ret)
{
    return view_lookup(m->view, place->parent, place->name, place->len, ret);
}
