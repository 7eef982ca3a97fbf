// SPDX-License-Identifier: Apache-2.0
/* The bytes that of several states one alone needs, as packs are counted. The view of a remote's
 * state says which packs its head left unreferenced; the file of a store's snapshot names the packs
 * that it needs. 24 bytes are remembered for each pack. */
#include <sys/stat.h>

#include "store/past_internal.h"

#include "commit/packs.h"
#include "store/local_snapshots_internal.h"
#include "view/remote.h"

#define CACHE_BYTES (4 * MIB)

struct pack_need {
    uint64_t pack, length;
    uint32_t state; /* the first that needs it */
    bool is_shared; /* another one needs it, too */
};
DEFINE_VECTOR(pack_needs, struct pack_need);

struct past_only {
    struct past *past;
    struct pack_needs needs; /* by pack, ascending */
    uint32_t states;
};

struct past_only *past_only_new(struct past *past)
{
    struct past_only *only = xcalloc(1, sizeof *only);
    only->past = past;
    return only;
}

void past_only_free(struct past_only *only)
{
    if (!only)
        return;
    vector_free(&only->needs);
    free(only);
}

/* The packs of one more state, ascending. */
static void add_state(struct past_only *only, const struct pack_needs *now)
{
    struct pack_needs all = {0}, *before = &only->needs;
    size_t i = 0, k = 0;
    while (i < before->count || k < now->count) {
        bool is_known =
            k == now->count || (i < before->count && before->at[i].pack <= now->at[k].pack);
        bool is_needed = k < now->count && (!is_known || before->at[i].pack == now->at[k].pack);
        struct pack_need one = is_known ? before->at[i++] : now->at[k];
        one.is_shared = is_known && (one.is_shared || is_needed);
        one.state = is_known ? one.state : only->states;
        k += is_needed;
        vector_add(&all, one);
    }
    vector_free(before);
    only->needs = all;
    only->states++;
}

/* --- a state of a remote ---------------------------------------------------------------------- */

static int add_referenced(const struct view_remote_pack *pack, void *arg)
{
    if (!pack->unreferenced && !pack->gone)
        vector_add((struct pack_needs *)arg,
                   (struct pack_need){.pack = pack->pack, .length = pack->length});
    return 0;
}

/* --- a snapshot of a store -------------------------------------------------------------------- */

/* A pack that is not there counts nothing. */
static uint64_t length_of(const struct past *past, uint64_t pack)
{
    char object[32];
    struct stat st;
    pack_object_name(pack, object);
    _cleanup_free_ char *path = xasprintf("%s/../%s", past_snapshots(past), object);
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static int add_named(const struct past *past, uint64_t number, struct pack_needs *ret)
{
    struct local_snapshot one;
    int r = local_snapshots_read_file(past_snapshots(past), number, &one);
    for (size_t i = 0; i < one.packs.count && r == 0; i++)
        vector_add(ret, (struct pack_need){.pack = one.packs.at[i],
                                           .length = length_of(past, one.packs.at[i])});
    vector_free(&one.packs);
    return r;
}

static int add_live(const struct view_pack *pack, void *arg)
{
    if (pack->live_count)
        vector_add((struct pack_needs *)arg,
                   (struct pack_need){.pack = pack->pack, .length = pack->length});
    return 0;
}

/* --- one state after the other ---------------------------------------------------------------- */

int past_only_add(struct past_only *only, uint64_t number)
{
    struct past *past = only->past;
    _cleanup_vector_ struct pack_needs now = {0};
    if (!past_snapshots(past) && head_has_nodes(past_newest(past)))
        return -EOPNOTSUPP;
    int r = past_snapshots(past) ? add_named(past, number, &now)
                                 : view_remote_packs(past_view(past), add_referenced, &now);
    if (r == 0)
        add_state(only, &now);
    return r;
}

int past_only_add_now(struct past_only *only)
{
    const struct view_options options = {
        .cache_bytes = CACHE_BYTES, .is_small = true, .is_read_only = true};
    _cleanup_vector_ struct pack_needs now = {0};
    _cleanup_free_ char *path = xasprintf("%s/../view", past_snapshots(only->past));
    struct view *view;
    TRY(view_open(path, &options, 0, &view));
    int r = view_packs(view, add_live, &now);
    view_close(view);
    if (r == 0)
        add_state(only, &now);
    return r;
}

void past_only_sums(const struct past_only *only, uint64_t *ret)
{
    memset(ret, 0, only->states * sizeof *ret);
    for (size_t i = 0; i < only->needs.count; i++)
        if (!only->needs.at[i].is_shared)
            ret[only->needs.at[i].state] += only->needs.at[i].length;
}
