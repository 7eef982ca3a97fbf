// SPDX-License-Identifier: Apache-2.0
#include "dense/condense.h"

#include <sys/stat.h>
#include <uthash.h>

#include "base/clock.h"
#include "base/vector.h"
#include "dense/condense_chunk.h"
#include "dense/internal.h"
#include "dense/series.h"

/* Required time since the last read or operation; no longer than reduce_after. */
#define QUIET_NS (2ll * SECOND_NS)
#define REST_NS_MIN (5ll * SECOND_NS) /* after a walk that found nothing; limited like QUIET_NS */
#define REST_SHARE 50                 /* and at least so many times the duration of the walk */
#define DRAFTS_MAX (32 * MIB)         /* allowed bytes of open drafts: there may always be a log */
#define ROUND_FILES 512u              /* examined in one round */
#define LOOK_BYTES (256 * MIB)        /* of one file */
#define NEWEST_MAX 4096u              /* series cached during a walk */
/* names of a directory between two checks for other activity */
#define LOOK_EVERY 256u

/* When the newest file of a series was modified. */
struct newest {
    UT_hash_handle hh;
    int64_t mtime;
    char path[]; /* of the series */
};

struct condense {
    uint64_t ino, at;  /* the next file, and offset in it */
    bool is_known_old; /* the file at `ino` is known to be old */
    bool found;        /* this walk has condensed something */
    int64_t spent_ns;  /* duration of this walk so far */
    int64_t again_at;  /* monotonic ns */
    struct newest *newest;
};

struct condense *condense_new(void)
{
    return xcalloc(1, sizeof(struct condense));
}

static void forget_newest(struct condense *c)
{
    struct newest *newest, *next;
    HASH_ITER(hh, c->newest, newest, next)
    {
        HASH_DEL(c->newest, newest);
        free(newest);
    }
}

void condense_free(struct condense *condense)
{
    if (condense)
        forget_newest(condense);
    free(condense);
}

/* --- is now a good time? ---------------------------------------------------------------------- */

/* So with reduce_after=0s a file becomes dense as soon as nothing is being written. */
static int64_t at_most_reduce_after(const struct store *store, int64_t ns)
{
    return ns < store->local.options.reduce_after_ns ? ns : store->local.options.reduce_after_ns;
}

/* Between two operations of a program there may be a moment without pending ones. If the clock was
 * set back, the elapsed time is unknown. */
static bool is_quiet(struct store *store)
{
    int64_t since = clock_realtime_ns() - history_last_time(store->commit.history);
    return since < 0 || since >= at_most_reduce_after(store, QUIET_NS);
}

static bool nobody_writes(struct store *store)
{
    uint64_t seq;
    int64_t happened;
    return !history_oldest(store->commit.history, &seq, &happened) &&
           !horizon_is_urgent(store->commit.horizon) &&
           stage_dirty_bytes(store->local.stage) <= DRAFTS_MAX && is_quiet(store);
}

static bool nobody_reads(struct store *store)
{
    return packs_quiet_ns(store->commit.packs) >= at_most_reduce_after(store, QUIET_NS);
}

/* Does no thread write, wait or read? */
static bool may_go_on(struct store *store)
{
    return nobody_writes(store) && nobody_reads(store);
}

static bool may_begin(struct store *store)
{
    const struct dense_remote *remote = &store->dense->remote;
    return store->local.options.reduce == REDUCE_DENSE &&
           (store->local.sb.incompat & SUPERBLOCK_INCOMPAT_DENSE) &&
           remote->has_ours(remote->remote) && view_remote(store->local.view).pending_chunks == 0 &&
           may_go_on(store) && !packs_are_dropping(store->commit.packs) &&
           packs_limit_is_paid(store->commit.packs) && room_for_moving(store->commit.room);
}

/* --- is a file old? --------------------------------------------------------------------------- */

/* Looks up the first name of a path, then the rest. */
static int find_path(struct view *view, const char *path, size_t len, struct view_inode *ret)
{
    struct view_entry entry = {.ino = ROOT_INO};
    int r = 0;
    for (size_t at = 0; at < len && r == 0;) {
        size_t name = 0;
        at += path[at] == '/';
        while (at + name < len && path[at + name] != '/')
            name++;
        if (name)
            r = view_lookup(view, entry.ino, path + at, name, &entry);
        at += name;
    }
    return r < 0 ? r : view_inode(view, entry.ino, ret);
}

static int look_at_member(struct store *store, const struct series *series, const char *name,
                          int64_t *newest)
{
    struct view_inode inode;
    _cleanup_free_ char *path = series_member(series, name);
    int r = path ? find_path(store->local.view, path, strlen(path), &inode) : -ENOENT;
    if (r == 0 && S_ISREG(inode.attrs.mode))
        *newest = inode.attrs.mtime > *newest ? inode.attrs.mtime : *newest;
    return r == -ENOENT ? 0 : r;
}

/* Skips names of other series: a directory may have as many series as files. */
static int find_newest(struct store *store, const struct series *series, int64_t *ret)
{
    char name[SERIES_NAME_LEN + 1];
    struct view_inode directory;
    *ret = INT64_MIN;
    int r = find_path(store->local.view, series->path, series->directory_len, &directory);
    series_first_name(series, name);
    for (size_t looks = 1; r == 0; looks++) {
        if (looks % LOOK_EVERY == 0 && !may_go_on(store))
            return -ECANCELED;
        r = view_next_name(store->local.view, directory.ino, series->prefix_len, name);
        if (r == 0)
            r = look_at_member(store, series, name, ret);
        if (r == 0)
            r = series_next_name(series, name) ? 0 : -ENOENT;
    }
    return r == -ENOENT ? 0 : r;
}

/* Cached during a walk: newer files that appear meanwhile only make fewer files count as old than
 * really are. */
static int get_newest(struct store *store, const struct series *series, int64_t *ret)
{
    struct condense *c = store->dense->condense;
    struct newest *newest = NULL;
    size_t len = strlen(series->path);
    HASH_FIND(hh, c->newest, series->path, len, newest);
    if (!newest) {
        TRY(find_newest(store, series, ret));
        if (HASH_COUNT(c->newest) >= NEWEST_MAX)
            forget_newest(c);
        newest = xcalloc(1, sizeof *newest + len + 1);
        newest->mtime = *ret;
        memcpy(newest->path, series->path, len);
        HASH_ADD_KEYPTR(hh, c->newest, newest->path, len, newest);
    }
    *ret = newest->mtime;
    return 0;
}

/* Files of other ranks of the same checkpoint may be in the series, too, but they are written
 * within the interval. 1, 0 or -errno. */
static int is_old(struct store *store, const struct view_inode *inode)
{
    struct series series[SERIES_MAX];
    _cleanup_free_ char *path = view_path(store->local.view, inode->ino);
    unsigned count = path ? series_of(path, series) : 0;
    int r = 0;
    for (unsigned i = 0; i < count; i++) {
        int64_t newest;
        if (r == 0)
            r = get_newest(store, &series[i], &newest);
        if (r == 0)
            r = newest > inode->attrs.mtime && (uint64_t)newest - (uint64_t)inode->attrs.mtime >=
                                                   (uint64_t)store->local.options.reduce_after_ns;
        series_done(&series[i]);
    }
    return r;
}

/* --- a round ---------------------------------------------------------------------------------- */

struct round {
    struct store *store;
    struct condense_chunk chunks[CONDENSE_ROUND_CHUNKS];
    size_t count, bytes;
    uint64_t reached; /* end of the part of the file that was examined */
    int error;
};

static bool has_room(const struct round *round)
{
    return round->count < CONDENSE_ROUND_CHUNKS &&
           round->bytes + CHUNK_SIZE_MAX <= CONDENSE_ROUND_BYTES;
}

/* References are counted per extent page. */
static uint64_t uses_of(const struct extent *e)
{
    return (e->offset + e->length - 1) / VIEW_PAGE_LEN - e->offset / VIEW_PAGE_LEN + 1;
}

static bool is_listed(const struct round *round, const struct chunk_name *name)
{
    for (size_t i = 0; i < round->count; i++)
        if (chunk_name_equal(&round->chunks[i].entry.name, name))
            return true;
    return false;
}

static int list_part(const struct view_extent *part, void *arg)
{
    struct round *round = arg;
    const struct extent *e = &part->extent;
    if (!has_room(round))
        return 1;
    round->reached = e->offset + e->length;
    if (e->kind != EXTENT_CHUNK || is_listed(round, &e->chunk))
        return 0;
    struct condense_chunk *chunk = &round->chunks[round->count];
    int r = condense_choose(round->store, &e->chunk, uses_of(e), chunk);
    if (r > 0) {
        round->count++;
        round->bytes += chunk->entry.raw_len;
    }
    return r < 0 ? r : 0;
}

/* Continues in the file at c->ino; true: it has been examined completely. */
static bool list_file(struct condense *c, struct round *round, const struct view_inode *inode)
{
    uint64_t size = inode->attrs.size;
    int r = c->is_known_old ? 1 : is_old(round->store, inode);
    round->reached = c->at;
    c->is_known_old = r > 0;
    if (r > 0)
        r = view_extents(round->store->local.view, inode->ino, c->at, LOOK_BYTES, list_part, round);
    else if (r == 0)
        return true;
    if (r < 0 && r != -ENOENT)
        round->error = r;
    if (r < 0)
        return r != -ECANCELED;
    if (has_room(round))
        round->reached = max_u64(round->reached, c->at + LOOK_BYTES);
    c->at = round->reached;
    return c->at >= size;
}

static bool may_list(const struct round *round, unsigned files)
{
    return files < ROUND_FILES && has_room(round) && round->error == 0 && may_go_on(round->store);
}

/* Lists chunks of as many files as needed: for a chunk of a single small file, a pack would be
 * larger than the bytes saved. */
static void list_chunks(struct condense *c, struct round *round, bool *ret_end)
{
    *ret_end = false;
    for (unsigned files = 0; may_list(round, files); files++) {
        struct view_inode inode;
        int r = view_next_file(round->store->local.view, c->ino, &inode);
        *ret_end = r < 0;
        if (r < 0)
            return;
        check(inode.ino >= c->ino);
        if (inode.ino != c->ino) {
            c->at = 0;
            c->is_known_old = false;
        }
        c->ino = inode.ino;
        if (list_file(c, round, &inode)) {
            c->ino++;
            c->at = 0;
            c->is_known_old = false;
        }
    }
}

/* In order of depth, as a pack has chunks of one depth. */
static size_t add_chunks(struct round *round)
{
    size_t added = 0;
    for (unsigned depth = 1; depth <= CONDENSE_DEPTH_MAX; depth++)
        for (size_t i = 0; i < round->count; i++) {
            const struct condense_chunk *chunk = &round->chunks[i];
            if (!chunk->encoded || chunk->entry.depth != depth)
                continue;
            packs_add_dense(round->store->commit.packs, &chunk->entry, chunk->encoded);
            added++;
        }
    return added;
}

/* A job for writeback's threads. */
static void encode_unless_busy(void *arg)
{
    struct condense_chunk *chunk = arg;
    if (may_go_on(chunk->store))
        condense_encode(chunk);
}

/* True: some chunks have a new place. */
static bool carry_round(struct round *round)
{
    struct store *store = round->store;
    writeback_for_each(&store->commit, encode_unless_busy, round->chunks, round->count,
                       sizeof *round->chunks);
    size_t added = add_chunks(round);
    for (size_t i = 0; i < round->count; i++)
        free(round->chunks[i].encoded);
    return added > 0 && upkeep_drop(&store->commit, NULL, 0, 0);
}

/* If this walk condensed something the next one begins at once: chains of two levels become dense
 * one level after the other. */
static void end_walk(struct store *store, int64_t now)
{
    struct condense *c = store->dense->condense;
    int64_t least = at_most_reduce_after(store, REST_NS_MIN), rest = c->spent_ns * REST_SHARE;
    c->again_at = c->found ? now : now + (rest > least ? rest : least);
    c->ino = c->at = 0;
    c->is_known_old = c->found = false;
    c->spent_ns = 0;
    forget_newest(c);
}

bool condense_round(struct store *store, bool now)
{
    struct condense *c = store->dense ? store->dense->condense : NULL;
    int64_t began = clock_monotonic_ns();
    bool is_end;
    if (!c || now || began < c->again_at || !may_begin(store))
        return false;
    struct round *round = xcalloc(1, sizeof *round);
    round->store = store;
    list_chunks(c, round, &is_end);
    bool did = round->count > 0 && carry_round(round);
    int64_t ended = clock_monotonic_ns();
    c->found = c->found || did;
    c->spent_ns += ended - began;
    if (is_end)
        end_walk(store, ended);
    free(round);
    return did;
}
