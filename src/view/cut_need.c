// SPDX-License-Identifier: Apache-2.0
/* Which chunks a cut needs in the remote: those needed when it was opened, and the bases of chunks
 * that were sent for it since. These bases may belong to overwritten files, which nothing needed
 * then. */
#include "view/bases.h"
#include "view/cut.h"

int cut_chunk(struct view_cut *cut, const struct chunk_name *name, struct chunk_row *ret)
{
    return look_known_chunk(&(struct look){.snap = &cut->snap}, KEY_CHUNK, name, ret);
}

int cut_needs(struct view_cut *cut, const struct chunk_name *name, uint64_t refs)
{
    const struct look then = {.snap = &cut->snap};
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

/* Every current dependent counts, even an unneeded one: it may have been needed when it was
 * sent. */
static int rests_on(struct view_cut *cut, const struct chunk_name *base, unsigned levels)
{
    if (levels == 0 || cut->is_alone || !atomic_load(&cut->view->has_dependents))
        return 0;
    _cleanup_scan_ struct scan scan;
    scan_view(&scan, cut->view, key_of_name(NEW_KEY, KEY_DEPENDENT, base), NULL);
    return EACH_ROW(&scan, needs_or_rests_on(cut, &scan.row.dependent, levels - 1));
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
    _cleanup_hold_ struct snap *snap = &cut->snap;
    *ret = false;
    int r = snap_resume(snap);
    return r < 0 ? r : base_has_any(&(struct look){.snap = snap}, name, ret);
}

/* --- bases for chunks that are sent ----------------------------------------------------------- */

/* *ret: the change that last marked the chunk's row; 0: not marked. */
static int change_of(struct view *view, const struct chunk_name *name, uint64_t *ret)
{
    struct touched_row row = {0};
    int r = look_chunk_mark(&view->now, name, &row);
    *ret = row.change;
    return r == -ENOENT ? 0 : r;
}

/* Was the chunk needed at the cut, and will the cut's rows contain this place? That is its place at
 * the cut or, if it had none, the place when the rows are made. 1, 0 or -errno. */
static int cut_needed_there(struct view_cut *cut, const struct chunk_entry *entry)
{
    _cleanup_hold_ struct snap *snap = &cut->snap;
    const struct look then = {.snap = snap};
    struct chunk_row row, placed;
    int r = snap_resume(snap);
    if (r == 0)
        r = cut_chunk(cut, &entry->name, &row);
    if (r == 0)
        r = cut_needs(cut, &entry->name, row.refs);
    if (r <= 0)
        return r;
    r = look_chunk(&then, KEY_REMOTE_CHUNK, &entry->name, &placed);
    if (r < 0)
        return r == -ENOENT ? 1 : r;
    return placed.entry.pack == entry->pack && placed.entry.offset == entry->offset;
}

/* Will the cut's rows contain the chunk, once a chunk that depends on it is sent for the cut? If it
 * is needed now and was not marked since the cut, it was needed at the cut; if it was marked since,
 * only the snapshot knows. A chunk that was never needed is in the rows if it has a mark no newer
 * than the cut, and its bases are in the rows. The mark is read last, since a concurrent change
 * leaves one. 1, 0 or -errno. */
static int may_report(struct view_cut *cut, const struct chunk_entry *entry, unsigned levels)
{
    struct chunk_row local;
    uint64_t change;
    int needed = look_needed(&cut->view->now, &entry->name, &local);
    TRY(needed < 0 ? needed : change_of(cut->view, &entry->name, &change));
    if (change > cut->remote.changes)
        return cut_needed_there(cut, entry);
    if (needed)
        return 1;
    int r = change > 0 && levels > 0 && !cut->remote.pub.is_whole;
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
    int r = view_remote_place(cut->view, name, ret_entry);
    if (r == 0)
        r = entry_is_incomplete(&cut->view->now, ret_entry);
    if (r != 0)
        return r < 0 ? r : -ENOENT;
    r = may_report(cut, ret_entry, CHUNK_DEPTH_MAX + 1);
    return r < 0 ? r : r > 0 ? 0 : -ENOENT;
}
