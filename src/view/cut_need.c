// SPDX-License-Identifier: Apache-2.0
/* A cut's need of the remote: as it was when the cut was opened, with what was sent for it since.
 * That may rest on chunks which nothing needed then: those of files that were written over. */
#include "view/bases.h"
#include "view/cut.h"

int cut_chunk(struct view_cut *cut, const struct chunk_name *name, struct chunk_row *ret)
{
    struct key key;
    _cleanup_value_ struct value value = {0};
    *ret = (struct chunk_row){.entry = {.name = *name}};
    key_chunk(&key, name);
    int r = db_get(cut->view, &cut->snap, &key, &value);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    return chunk_row_decode(name, value.data, value.len, ret);
}

int cut_needs(struct view_cut *cut, const struct chunk_name *name, uint64_t refs)
{
    const struct look then = {.view = cut->view, .snap = &cut->snap};
    if (cut->is_alone)
        return refs > 0;
    return chunk_is_needed(&then, name, refs);
}

static int rests_on(struct view_cut *cut, const struct chunk_name *base, unsigned levels);

static int needs_or_rests_on(struct view_cut *cut, const struct chunk_name *name, unsigned levels)
{
    struct chunk_row row;
    int r = cut_chunk(cut, name, &row);
    if (r == 0)
        r = cut_needs(cut, name, row.refs);
    return r ? r : rests_on(cut, name, levels);
}

/* A dependent of now counts, be it alive or not: it may have died since it was sent. */
static int rests_on(struct view_cut *cut, const struct chunk_name *base, unsigned levels)
{
    struct key prefix;
    int r = 0;
    if (levels == 0 || cut->is_alone || !atomic_load(&cut->view->has_dependents))
        return 0;
    _cleanup_snap_ struct snap now;
    _cleanup_scan_ struct scan scan;
    key_of_name(&prefix, KEY_DEPENDENT, base);
    snap_begin(&now, cut->view);
    scan_open(&scan, &now, &prefix);
    for (; r == 0 && scan_valid(&scan); scan_next(&scan)) {
        struct chunk_name name;
        if (scan.key_len != DEPENDENT_KEY_LEN)
            return -EUCLEAN;
        memcpy(&name, scan.key + scan.key_len - sizeof name, sizeof name);
        r = needs_or_rests_on(cut, &name, levels - 1);
    }
    return r ? r : scan_error(&scan);
}

int cut_rests_on(struct view_cut *cut, const struct chunk_name *name)
{
    return rests_on(cut, name, CHUNK_DEPTH_MAX);
}

int cut_reports(struct view_cut *cut, const struct chunk_name *name, uint64_t refs)
{
    int r = cut_needs(cut, name, refs);
    return r ? r : cut_rests_on(cut, name);
}

int view_cut_has_dependents(struct view_cut *cut, const struct chunk_name *name, bool *ret)
{
    const struct look then = {.view = cut->view, .snap = &cut->snap};
    const struct snap *snap;
    int r = cut_read_begin(cut, &snap);
    if (r == 0)
        r = base_has(&then, name, NEEDED);
    if (r == 0)
        r = base_has(&then, name, UNNEEDED);
    cut_read_end(cut);
    *ret = r > 0;
    return r < 0 ? r : 0;
}

/* --- what may be referred to ------------------------------------------------------------------ */

/* The change that the chunk's row was marked with last; 0: it has no mark. */
static int change_of(struct view *view, const struct chunk_name *name, uint64_t *ret)
{
    struct key key, mark;
    _cleanup_value_ struct value value = {0};
    struct touched_row row = {0};
    key_chunk(&key, name);
    key_touched(&mark, key.bytes, key.len);
    int r = db_get(view, NULL, &mark, &value);
    if (r == 0)
        r = touched_decode(value.data, value.len, &row);
    *ret = row.change;
    return r == -ENOENT ? 0 : r;
}

static int is_needed_now(struct view *view, const struct chunk_name *name)
{
    const struct look now = {.view = view};
    struct chunk_entry local;
    uint64_t refs = 0;
    int r = view_chunk(view, name, &local, &refs);
    return r < 0 && r != -ENOENT ? r : chunk_is_needed(&now, name, refs);
}

/* Did the cut need the chunk, and is where it lies what its rows tell: where it lay then, or, if it
 * lay nowhere, where it does when they are made? 1, 0 or -errno. */
static int cut_needed_there(struct view_cut *cut, const struct chunk_entry *entry)
{
    const struct look then = {.view = cut->view, .snap = &cut->snap};
    const struct snap *snap;
    struct chunk_row row, placed;
    int r = cut_read_begin(cut, &snap);
    if (r == 0)
        r = cut_chunk(cut, &entry->name, &row);
    if (r == 0)
        r = cut_needs(cut, &entry->name, row.refs);
    if (r > 0) {
        int place = remote_row_at(&then, &entry->name, &placed);
        bool is_there = place == -ENOENT || (place == 0 && placed.entry.pack == entry->pack &&
                                             placed.entry.offset == entry->offset);
        r = place < 0 && place != -ENOENT ? place : is_there;
    }
    cut_read_end(cut);
    return r;
}

/* Will the cut's rows tell of the chunk, once something that is sent for the cut rests on it? What
 * is needed now was needed at the cut if no mark has come since; else only the snapshot knows. What
 * nothing needs, now or then, is told of if it has a mark that is as old as the cut; and so must be
 * what it rests on. The mark is looked for last: whatever happens meanwhile leaves one. 1, 0 or
 * -errno. */
static int may_report(struct view_cut *cut, const struct chunk_entry *entry, unsigned levels)
{
    uint64_t change;
    int needed = is_needed_now(cut->view, &entry->name);
    int r = needed < 0 ? needed : change_of(cut->view, &entry->name, &change);
    if (r < 0)
        return r;
    if (change > cut->remote.changes)
        return cut_needed_there(cut, entry);
    if (needed)
        return 1;
    r = change > 0 && levels > 0 && !cut->remote.pub.is_whole;
    for (size_t i = 0; i < entry->ref_count && r > 0; i++) {
        struct chunk_entry base;
        r = view_remote_place(cut->view, &entry->refs[i].name, &base);
        r = r == -ENOENT ? 0 : r < 0 ? r : may_report(cut, &base, levels - 1);
    }
    return r;
}

int view_cut_base(struct view_cut *cut, const struct chunk_name *name,
                  struct chunk_entry *ret_entry)
{
    const struct look now = {.view = cut->view};
    int r = view_remote_place(cut->view, name, ret_entry);
    if (r == 0)
        r = entry_is_incomplete(&now, ret_entry);
    if (r != 0)
        return r < 0 ? r : -ENOENT;
    r = may_report(cut, ret_entry, CHUNK_DEPTH_MAX + 1);
    return r < 0 ? r : r > 0 ? 0 : -ENOENT;
}
