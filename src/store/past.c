// SPDX-License-Identifier: Apache-2.0
/* Heads of a remote are read, and shown one after the other. For the first one a view is made, as
 * by any reader; after that the view follows from head to head, by the new runs, as in a mount that
 * follows a writer. */
#include "store/past_internal.h"

#include "base/cause.h"
#include "base/pool.h"
#include "base/text.h"
#include "codec/hash.h"
#include "commit/run_lists.h"
#include "prefix/heads.h"
#include "prefix/named.h"
#include "prefix/runs.h"
#include "remote/follow.h"
#include "remote/life.h"
#include "remote/state.h"
#include "store/local_snapshots_internal.h"

#define THREADS 16u

struct past {
    struct store *store; /* of a remote; else NULL, and: */
    char *snapshots;     /* STORE/snapshots */
    struct local_snapshot_list local;
    struct view *view; /* of the state that is shown */

    struct head *shown; /* number 0: none */
    bool has_changes;   /* `changes` is complete */
    struct past_inos changes;
};

/* --- life ------------------------------------------------------------------------------------- */

static int open_local(struct past *past, const char *store, char **ret_text)
{
    past->snapshots = xasprintf("%s/" LOCAL_SNAPSHOTS, store);
    int r = local_snapshots_read(store, &past->local);
    if (r < 0)
        *ret_text = xasprintf("%s cannot be read: %s", past->snapshots, strerror(-r));
    return r;
}

int past_open(const struct store_options *options, struct past **ret, char **ret_text)
{
    struct past *past = xcalloc(1, sizeof *past);
    past->shown = xcalloc(1, sizeof *past->shown);
    int r = options->remote.name ? store_open_heads(options, &past->store, ret_text)
                                 : open_local(past, options->path, ret_text);
    if (r < 0)
        past_close(past);
    else
        *ret = past;
    return r;
}

void past_close(struct past *past)
{
    if (!past)
        return;
    if (past->store)
        store_discard(past->store);
    view_close(past->view);
    vector_free(&past->local);
    free(past->snapshots);
    vector_free(&past->changes);
    free(past->shown);
    free(past);
}

const char *past_warning(const struct past *past)
{
    return past->store ? remote_shown_instead(past->store->remote) : NULL;
}

static struct prefix *prefix_of(struct past *past)
{
    return remote_prefix(past->store->remote);
}

/* --- the list --------------------------------------------------------------------------------- */

/* The state is identified by chain and cut; with several nodes not by the cut, which rises with
 * each round, also if nothing was written. */
static void note_state(const struct head *head, uint8_t state[32])
{
    struct hash_stream *stream = hash_stream_new();
    bool has_nodes = head_has_nodes(head);
    if (!has_nodes)
        hash_stream_add(stream, &head->cut, sizeof head->cut);
    hash_stream_add(stream, head->chain, sizeof head->chain);
    for (uint32_t i = 0; has_nodes && i < head->run_count; i++)
        hash_stream_add(stream, &head->runs[i].id, sizeof head->runs[i].id);
    for (uint32_t i = 0; i < head->writer_count; i++)
        hash_stream_add(stream, head->writers[i].feed_hash, sizeof head->writers[i].feed_hash);
    hash_stream_result(stream, state);
    hash_stream_free(stream);
}

static void describe(const struct head *head, struct past_head *into)
{
    into->number = head->number;
    into->published = head->published;
    into->cut = head->cut;
    into->files = head->files;
    into->logical_bytes = head->logical_bytes;
    into->chunks = head->chunks;
    note_state(head, into->state);
}

char *past_describe(uint64_t head, int64_t published, const char *name)
{
    char when[TEXT_TIME_LEN];
    if (name)
        return xasprintf("the snapshot %s", name);
    if (!published)
        return xasprintf("head %llu", (unsigned long long)head);
    text_time(published, when);
    return xasprintf("head %llu of %s", (unsigned long long)head, when);
}

struct reading {
    struct prefix *prefix;
    struct past_head *into;
};

static void read_head(void *arg)
{
    struct reading *reading = arg;
    struct past_head *into = reading->into;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    into->error = head_read(reading->prefix, into->number, head);
    if (into->error == 0 && head->run_count == 0)
        into->error = -ENOENT;
    if (into->error == 0)
        describe(head, into);
    free(reading);
}

/* Removes heads that gc deleted meanwhile, and heads without a state, which only name the holder of
 * the prefix. Any error other than damage is returned. */
static int settle_list(struct past_heads *heads)
{
    size_t kept = 0;
    for (size_t i = 0; i < heads->count; i++) {
        int r = heads->at[i].error;
        if (r < 0 && !prefix_object_is_lost(r) && r != -EPROTONOSUPPORT)
            return r;
        if (r != -ENOENT)
            heads->at[kept++] = heads->at[i];
    }
    heads->count = kept;
    return 0;
}

static int read_heads(struct prefix *prefix, struct past_heads *heads)
{
    struct pool *pool = NULL;
    TRY(pool_new("cairn-heads", THREADS, 64, NULL, NULL, &pool));
    for (size_t i = 0; i < heads->count; i++) {
        struct reading *reading = xmalloc(sizeof *reading);
        *reading = (struct reading){prefix, &heads->at[i]};
        pool_submit(pool, read_head, reading);
    }
    pool_free(pool);
    return settle_list(heads);
}

static struct past_head head_of(const struct local_snapshot_info *info)
{
    struct past_head head = {.number = info->number,
                             .error = info->error,
                             .published = info->taken,
                             .cut = info->cut,
                             .files = info->files,
                             .logical_bytes = info->logical_bytes};
    memcpy(head.state, &info->cut, sizeof info->cut);
    return head;
}

static void list_local(const struct past *past, uint64_t max, struct past_heads *ret,
                       bool *ret_more)
{
    size_t first = past->local.count > max ? past->local.count - max : 0;
    *ret_more = first > 0;
    for (size_t i = first; i < past->local.count; i++)
        vector_add(ret, head_of(&past->local.at[i]));
}

int past_list(struct past *past, uint64_t max, struct past_heads *ret, bool *ret_more)
{
    struct numbers numbers = {0};
    *ret = (struct past_heads){0};
    if (!past->store) {
        list_local(past, max, ret, ret_more);
        return 0;
    }
    int r = prefix_list_numbers(prefix_of(past), "heads", 0, &numbers);
    size_t first = numbers.count > max ? numbers.count - max : 0;
    *ret_more = first > 0;
    for (size_t i = first; i < numbers.count && r == 0; i++)
        vector_add(ret, (struct past_head){.number = numbers.at[i]});
    vector_free(&numbers);
    if (r == 0)
        r = read_heads(prefix_of(past), ret);
    if (r < 0)
        vector_free(ret);
    return r;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct past_name *)a)->name, ((const struct past_name *)b)->name);
}

static void list_local_names(const struct past *past, struct past_names *ret)
{
    for (size_t i = 0; i < past->local.count; i++) {
        const struct local_snapshot_info *info = &past->local.at[i];
        struct past_name one = {.created = info->taken, .head = head_of(info)};
        memcpy(one.name, info->name, sizeof one.name);
        if (*one.name)
            vector_add(ret, one);
    }
    vector_sort(ret, compare_names);
}

int past_list_names(struct past *past, struct past_names *ret)
{
    struct named_list list = {0};
    _cleanup_free_ struct named_snapshot *snapshot = xmalloc(sizeof *snapshot);
    *ret = (struct past_names){0};
    if (!past->store) {
        list_local_names(past, ret);
        return 0;
    }
    int r = named_list(prefix_of(past), &list);
    for (size_t i = 0; i < list.count && r == 0; i++) {
        struct past_name one = {.error = named_read(prefix_of(past), list.at[i].name, snapshot)};
        memcpy(one.name, list.at[i].name, sizeof one.name);
        if (one.error == -ENOENT) /* deleted meanwhile */
            continue;
        if (one.error == 0) {
            one.created = snapshot->created;
            describe(&snapshot->head, &one.head);
        }
        vector_add(ret, one);
        r = prefix_object_is_lost(one.error) || one.error == -EPROTONOSUPPORT ? 0 : one.error;
    }
    vector_free(&list);
    return r;
}

/* --- one state after the other ---------------------------------------------------------------- */

static void note_changed(uint64_t ino, void *arg)
{
    struct past *past = arg;
    vector_add(&past->changes, ino);
}

static int show_first(struct past *past, const struct head *head, char **ret_text)
{
    const struct adoption adoption = adoption_of(past->store);
    past->has_changes = false;
    TRY(adopt_begin_with(&adoption, head, ret_text));
    return recover_view(past->store, ret_text);
}

/* Removes the files of runs that the state does not need any more. */
static int show_next(struct past *past, const struct head *head)
{
    struct local *local = &past->store->local;
    TRY(follow_show(past->store, past->shown, head, note_changed, past));
    TRY(local_head_write(local, head));
    runs_tidy(local, past->store->commit.room, head);
    return 0;
}

/* `name`: of the snapshot that contains a copy of the head; NULL: the head itself. */
static int read_head_of(struct past *past, uint64_t number, const char *name, struct head *head)
{
    if (!name)
        return head_read(prefix_of(past), number, head);
    _cleanup_free_ struct named_snapshot *snapshot = xmalloc(sizeof *snapshot);
    TRY(named_read(prefix_of(past), name, snapshot));
    *head = snapshot->head;
    return head->number == number ? 0 : -ENOENT; /* the name was given to another head */
}

static int fetch_head(struct past *past, uint64_t number, const char *name, struct head *head)
{
    struct lost_object lost;
    cause_note("its head is damaged or missing");
    TRY(read_head_of(past, number, name, head));
    TRY(local_allow_encodings(&past->store->local, head->incompat));
    return runs_fetch_head(prefix_of(past), head, &lost);
}

static int show_local(struct past *past, uint64_t number, char **ret_text)
{
    struct view *view = NULL;
    cause_clear();
    int r = local_snapshots_open_view(past->snapshots, number, &view);
    if (r < 0) {
        *ret_text = xstrdup(*cause_text() ? cause_text() : strerror(-r));
        return r == -EIO || r == -ESTALE ? -EUCLEAN : r;
    }
    view_close(past->view);
    past->view = view;
    past->shown->number = number;
    past->has_changes = false;
    return 0;
}

int past_show(struct past *past, uint64_t number, char **ret_text)
{
    *ret_text = NULL;
    check(number > past->shown->number);
    return past->store ? past_show_named(past, number, NULL, ret_text)
                       : show_local(past, number, ret_text);
}

int past_show_named(struct past *past, uint64_t number, const char *name, char **ret_text)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    *ret_text = NULL;
    int r = fetch_head(past, number, name, head);
    if (r == 0 && head->run_count == 0)
        r = -ENODATA;
    if (r == 0)
        r = past->shown->number ? show_next(past, head) : show_first(past, head, ret_text);
    if (r == 0)
        *past->shown = *head;
    else if (!*ret_text)
        *ret_text = xstrdup(prefix_object_is_lost(r) && *cause_text() ? cause_text()
                            : r == -ENODATA                           ? "it has no state yet"
                                                                      : strerror(-r));
    return r;
}

struct view *past_view(struct past *past)
{
    return past->store ? past->store->local.view : past->view;
}

const char *past_snapshots(const struct past *past)
{
    return past->snapshots;
}

struct store *past_store(struct past *past)
{
    check(past->store != NULL);
    return past->store;
}

const struct head *past_newest(const struct past *past)
{
    check(past->store != NULL);
    return &remote_prefix(past->store->remote)->head;
}

bool past_has(struct past *past, uint64_t number, const char *name)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    return read_head_of(past, number, name, head) != -ENOENT;
}

const struct past_inos *past_changes(const struct past *past)
{
    return past->has_changes ? &past->changes : NULL;
}

void past_take_changes(struct past *past)
{
    past->has_changes = past->store;
    past->changes.count = 0;
}
