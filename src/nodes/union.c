// SPDX-License-Identifier: Apache-2.0
#include "nodes/union.h"

#include <sys/stat.h>

#include "base/io.h"
#include "commit/journal.h"
#include "commit/run_lists.h"
#include "nodes/fold.h"
#include "nodes/merger.h"
#include "prefix/heads.h"
#include "prefix/runs.h"

/* Runs of the union and of a node have ids of the same epoch, and readers store both in one
 * directory. No node makes so many runs of its own. */
#define UNION_RUN (1ull << 23)
#define BUSY_ROWS 4096u

/* --- the state of a head ---------------------------------------------------------------------- */

struct adopting {
    struct view_adoption *adoption;
    struct busy *busy;
    uint64_t rows;
};

static int add_row(const struct run_row *row, void *arg)
{
    struct adopting *adopting = arg;
    if (++adopting->rows % BUSY_ROWS == 0)
        busy_say(adopting->busy);
    return view_adopt_row(adopting->adoption, row);
}

static int adopt_rows(struct union_names *names, struct view *view, const struct head *head)
{
    struct adopting adopting = {.busy = names->busy};
    struct view_state state;
    struct view_head of_view;
    view_state_of_head(head, &state, &of_view);
    int r = view_adopt_begin(view, &adopting.adoption);
    if (r == 0)
        r = runs_merge(names->prefix->local, head->runs, head->run_count, true, add_row, &adopting);
    if (r == 0)
        r = view_adopt_end(adopting.adoption, &state, &of_view);
    view_adopt_done(adopting.adoption);
    return r;
}

static int make_directories(const struct local *local, char **ret_view)
{
    *ret_view = xasprintf("%s/view", local->path);
    if (mkdir(local->path, 0700) < 0 && errno != EEXIST)
        return -errno;
    TRY(io_remove_tree(*ret_view));
    if (mkdir(*ret_view, 0700) < 0)
        return -errno;
    return run_directory_make(local);
}

static int fill_view(struct union_names *names, struct view *view)
{
    struct prefix *prefix = names->prefix;
    const struct head *head = &prefix->head;
    struct lost_object lost;
    /* a head may exist before the first name does */
    if (head->run_count == 0)
        return view_track(view);
    TRY(runs_fetch(prefix, head->runs, head->run_count, &lost));
    return adopt_rows(names, view, head);
}

int union_open(struct union_names *names)
{
    struct local *local = names->prefix->local;
    struct view_options options = {.cache_bytes = UNION_CACHE_BYTES, .create = true};
    _cleanup_free_ char *path = NULL;
    check(!names->merge);
    TRY(make_directories(local, &path));
    TRY(view_open(path, &options, local->sb.created, &local->view));
    int r = fill_view(names, local->view);
    if (r < 0) {
        view_close(local->view);
        local->view = NULL;
        return r;
    }
    names->merge = merge_new(local->view);
    return 0;
}

void union_close(struct union_names *names)
{
    struct local *local = names->prefix->local;
    if (!names->merge)
        return;
    merge_free(names->merge);
    view_close(local->view);
    names->merge = NULL;
    local->view = NULL;
}

/* --- operations ------------------------------------------------------------------------------- */

struct applying {
    struct merge *merge;
    const struct stays *stays;
};

static int apply_told(uint64_t epoch, const struct record *rec, void *arg)
{
    const struct applying *applying = arg;
    const struct merge_op op = {.rec = rec,
                                .owns = stays_owns(applying->stays, epoch, rec->ino),
                                .owns2 = stays_owns(applying->stays, epoch, rec->ino2)};
    return merge_record(applying->merge, &op);
}

int union_apply(struct union_names *names, struct stays *stays, const struct head *head)
{
    struct applying applying = {names->merge, stays};
    merge_set_cut(names->merge, head->cut);
    return fold_feeds(stays, head_round(head), apply_told, &applying);
}

/* --- the next head ---------------------------------------------------------------------------- */

/* A session may last for years: ids beyond the room beside its epoch continue above it. */
static uint64_t new_run_id(struct union_names *names)
{
    uint64_t number = ++names->next_run;
    return number / UNION_RUN << 48 | names->prefix->local->epoch << 24 | UNION_RUN |
           number % UNION_RUN;
}

/* The cut that the existing runs reach; rounds may pass without a run. */
static uint64_t runs_cut(const struct head *head)
{
    return head->run_count > 0 ? head->runs[head->run_count - 1].cut : 0;
}

static int write_run(struct union_names *names, struct view_cut *cut, struct run_info *info,
                     bool *ret_has_rows)
{
    const struct local *local = names->prefix->local;
    struct run_file file;
    uint64_t missing;
    memcpy(info->history, local->sb.history, sizeof info->history);
    int r = run_file_begin(&file, local, names->prefix->room, info);
    if (r == 0)
        r = view_cut_rows(cut, 0, run_file_add, &file, &missing);
    *ret_has_rows = file.rows > 0;
    if (r == 0 && *ret_has_rows)
        r = run_file_finish(&file, info);
    run_file_done(&file);
    if (r < 0 || !*ret_has_rows)
        run_file_abandon(local, info);
    return r;
}

static int merge_runs(struct union_names *names, struct run_info *runs, size_t *count, size_t first)
{
    const struct run_info info = {.id = new_run_id(names), .cut = runs[*count - 1].cut};
    return runs_merge_from(names->prefix->local, names->prefix->room, &info, runs, count, first);
}

/* Writes the cut's rows to a run, which may be merged with earlier runs, like those of a single
 * writer. */
static int put_rows(struct union_names *names, struct view_cut *cut, struct head *head)
{
    struct prefix *prefix = names->prefix;
    struct run_info runs[HEAD_RUNS_MAX + 1];
    size_t count = view_cut_is_whole(cut) ? 0 : head->run_count;
    struct run_info own = {
        .id = new_run_id(names), .base_cut = count > 0 ? runs_cut(head) : 0, .cut = head->cut};
    bool has_rows;
    memcpy(runs, head->runs, count * sizeof *runs);
    TRY(write_run(names, cut, &own, &has_rows));
    if (!has_rows)
        return 0;
    runs[count++] = own;
    size_t first = runs_first_to_merge(runs, count, UINT64_MAX);
    if (first < count - 1)
        TRY(merge_runs(names, runs, &count, first));
    TRY(run_put(prefix, &runs[count - 1]));
    memset(head->runs, 0, sizeof head->runs);
    memcpy(head->runs, runs, count * sizeof *runs);
    head->run_count = (uint32_t)count;
    return 0;
}

/* Returns an epoch above those of all stores, as their numbers occur in the head. */
static uint64_t epoch_of(const struct prefix *prefix, const struct head *head)
{
    uint64_t epoch = max_u64(prefix->local->epoch, prefix->head.epoch);
    if (head->writer_count > 0)
        epoch = max_u64(epoch, head->writers[head->writer_count - 1].epoch);
    return max_u64(epoch, max_u64(ID_EPOCH(head->max_id), ID_EPOCH(head->max_ino)));
}

static void describe(const struct union_names *names, struct head *head)
{
    struct prefix *prefix = names->prefix;
    struct view_state state = view_state(prefix->local->view);
    head_sign(prefix, head);
    head->number = prefix->head.number + 1;
    head->incompat = prefix_features(prefix) | SUPERBLOCK_INCOMPAT_NODES;
    head->files = state.files;
    head->logical_bytes = state.logical_bytes;
    head->max_ino = max_u64(head->max_ino, state.max_ino);
    head->epoch = epoch_of(prefix, head);
}

/* Removes runs that the head does not name from this machine. A failure is harmless. */
static void tidy(const struct union_names *names)
{
    const struct prefix *prefix = names->prefix;
    if (local_head_write(prefix->local, &prefix->head) == 0)
        runs_tidy_own(prefix->local, prefix->room, &prefix->head);
}

int union_publish(struct union_names *names, struct head *head)
{
    struct prefix *prefix = names->prefix;
    struct view *view = prefix->local->view;
    struct view_cut *cut = NULL;
    uint32_t runs = prefix->head.run_count;
    int r = view_cut_open(view, &cut);
    describe(names, head);
    if (r == 0)
        r = put_rows(names, cut, head);
    if (r == 0)
        r = head_put(prefix, head);
    if (r == 0)
        prefix->head = *head;
    if (r == 0)
        r = view_published(view, cut, head->number);
    view_cut_close(cut);
    if (r == 0 && prefix->head.run_count <= runs)
        tidy(names);
    return r;
}
