// SPDX-License-Identifier: Apache-2.0
/* Rewrites packs of the remote: missing or damaged ones, many small ones, and mostly dead ones.
 *
 * All three are done alike: their live chunks are read, from NVMe or else from the remote, and
 * stored in a new pack, which changes their places. The remaining chunks of a bad pack cannot be
 * read now: it is suspect (suspects.c).
 *
 * How much: small packs are merged if there are more than SMALL_PACKS_MAX of them, and only so many
 * that the result is not much larger than the largest of them: so each byte is merged a few times
 * on its way to a large pack, not again with each small one. Emptying mostly dead packs may use a
 * tenth of the traffic, or half of it while most of the remote is dead. While a caller waits for a
 * head, both are postponed as long as possible. While files are being restored from an earlier
 * state, mostly dead packs wait. */
#include "remote/maintenance_internal.h"

#include "base/clock.h"
#include "remote/upload.h"

#define SMALL_PACKS_MAX 8u
#define SMALL_PACKS_URGED_MAX 256u /* limit while a caller waits */
#define ROUND_BYTES (256 * MIB)
#define FREE_BYTES (24 * MIB)      /* of mostly dead packs, in addition to the share */
#define TIDY_NS (2ll * 1000000000) /* after the last round for which a caller waited */
#define RETRY_NS (10ll * 1000000000)
#define CLAIM_NS (10ll * 1000000000)
#define CLAIMING_MAX_NS (600ll * 1000000000)
#define BAD_PACKS_MAX 1024u /* per round */
#define RESCUES_MAX 1000u   /* chunks of missing packs searched elsewhere, per round */

void remote_defer_merge(struct remote *remote)
{
    remote->maintenance->is_deferred = true;
    remote->maintenance->tidy_at = clock_monotonic_ns() + TIDY_NS;
}

bool remote_repair_is_due(struct remote *remote)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    int64_t now = clock_monotonic_ns();
    return (noted_any(remote) && now >= maintenance->repair_at) || maintenance->has_returned ||
           maintenance->is_untold ||
           (maintenance->is_deferred && now >= maintenance->tidy_at && !remote_is_urged(remote));
}

/* If the view cannot be read, the round handles the error. */
void remote_look_for_untold(struct remote *remote)
{
    bool has_marks;
    int r = view_has_marks(remote->store->local.view, &has_marks);
    remote->maintenance->is_untold = r < 0 || has_marks;
}

/* --- choosing --------------------------------------------------------------------------------- */

struct candidate {
    uint64_t pack;
    uint64_t cost; /* live bytes */
};

DEFINE_VECTOR(candidates, struct candidate);

struct survey {
    struct candidates small, sparse;
    uint64_t bytes, live;
};

static int survey_pack(const struct view_remote_pack *pack, void *arg)
{
    struct survey *survey = arg;
    if (pack->unreferenced || pack->gone || pack->suspect)
        return 0;
    survey->bytes += pack->length;
    survey->live += pack->live_bytes;
    if (pack->live_count == 0)
        return 0; /* the next head dooms it */
    struct candidate candidate = {pack->pack, pack->live_bytes};
    if (pack->length < SMALL_PACK_LEN)
        vector_add(&survey->small, candidate);
    else if (pack->live_bytes < pack->length / 2)
        vector_add(&survey->sparse, candidate);
    return 0;
}

static int compare_costs(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->cost < y->cost ? -1 : x->cost > y->cost;
}

/* How many of the smallest packs to merge: as many as possible such that the last of them is at
 * most twice as large as the others together. Among more than SMALL_PACKS_MAX packs of between a
 * block and SMALL_PACK_LEN there always are some. */
static size_t small_to_merge(const struct candidates *small)
{
    uint64_t before = 0;
    size_t merged = 0;
    for (size_t i = 0; i < small->count && before < ROUND_BYTES; i++) {
        if (i > 0 && small->at[i].cost <= 2 * before)
            merged = i + 1;
        before += small->at[i].cost;
    }
    return merged;
}

/* --- a plan ----------------------------------------------------------------------------------- */

struct adding {
    struct remote *remote;
    struct repair_plan *plan;
    bool is_missing;  /* the pack being added is missing: nothing of it can be read */
    unsigned rescues; /* chunks of such packs that are not on NVMe */
};

static int add_chunk(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    struct adding *adding = arg;
    struct repair_plan *plan = adding->plan;
    struct chunk_entry local;
    uint64_t refs;
    if (!is_needed)
        return 0;
    if (plan->count == plan->max)
        return 1;
    bool is_local =
        view_chunk(adding->remote->store->local.view, &entry->name, &local, &refs) == 0 &&
        local.pack != 0;
    if (!is_local && adding->is_missing && adding->rescues++ >= RESCUES_MAX)
        return 0;
    plan->list[plan->count++] =
        (struct upload_chunk){.entry = *entry, .unit = entry->pack, .place = entry->offset};
    plan->bytes += entry->stored_len;
    return 0;
}

/* False: no room for it in this round. */
static bool add_pack(struct adding *adding, uint64_t id, int *r)
{
    struct repair_plan *plan = adding->plan;
    struct view_remote_pack pack;
    *r = view_remote_pack(adding->remote->store->local.view, id, &pack);
    if (*r == -ENOENT) {
        noted_rewritten(adding->remote, id);
        *r = 0;
        return true;
    }
    if (*r < 0 || plan->count + pack.live_count > plan->max ||
        plan->bytes + pack.live_bytes > ROUND_BYTES)
        return false;
    *r = view_remote_pack_chunks(adding->remote->store->local.view, id, add_chunk, adding);
    if (*r < 0)
        return false;
    vector_add(&plan->packs, id);
    return true;
}

static bool is_of_object_alone(int error)
{
    return error < 0 && !prefix_object_is_lost(error) && error != -ECANCELED &&
           !tier_error_is_transient(error);
}

/* A permanent error of a single object (its permissions, an archived object) must not keep others
 * from being repaired. The pack stays recorded, and is checked again later. */
static bool leave_noted(struct remote *remote, uint64_t id, int *r)
{
    char object[32];
    check(is_of_object_alone(*r));
    pack_object_name(id, object);
    remote_error(remote, 0,
                 "%s cannot be looked at (%s), so what lies there is not stored anew; "
                 "retrying later",
                 object, strerror(-*r));
    repair_plan_failed(remote);
    *r = 0;
    return true;
}

/* Adds a recorded pack, if it is still bad. A missing pack is checked once rather than for each of
 * its chunks; one that was missing only for a moment is as before. */
static bool add_bad_pack(struct adding *adding, uint64_t id, int *r)
{
    struct view_remote_pack pack;
    *r = view_remote_pack(adding->remote->store->local.view, id, &pack);
    if (*r == 0) {
        *r = pack_check_index(adding->remote->prefix.tier, adding->remote->store->local.sb.history,
                              &pack);
        if (is_of_object_alone(*r))
            return leave_noted(adding->remote, id, r);
    }
    if (*r == 0 && noted_was_missing(adding->remote, id)) {
        noted_rewritten(adding->remote, id);
        return true;
    }
    adding->is_missing = *r == -ENOENT;
    if (prefix_object_is_lost(*r))
        *r = 0;
    return *r == 0 && add_pack(adding, id, r);
}

static bool is_planned(const struct repair_plan *plan, uint64_t pack)
{
    check(plan->bad_count <= plan->packs.count);
    return has_u64(plan->packs.at, plan->bad_count, pack);
}

static int add_bad_packs(struct adding *adding)
{
    uint64_t bad[BAD_PACKS_MAX];
    size_t count = noted_list(adding->remote, bad, BAD_PACKS_MAX);
    int r = 0;
    for (size_t i = 0; i < count && add_bad_pack(adding, bad[i], &r); i++)
        ;
    adding->is_missing = false;
    adding->plan->bad_count = adding->plan->packs.count;
    return r;
}

static int add_candidates(struct adding *adding, const struct candidates *all, size_t count,
                          uint64_t allowance)
{
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        if (is_planned(adding->plan, all->at[i].pack))
            continue;
        if (all->at[i].cost > allowance || !add_pack(adding, all->at[i].pack, &r))
            break;
        allowance -= all->at[i].cost;
    }
    return r;
}

static uint64_t sparse_allowance(struct remote *remote, const struct survey *survey)
{
    uint64_t share = survey->bytes > 2 * survey->live ? 2 : 10;
    uint64_t total = FREE_BYTES + atomic_load(&remote->prefix.uploaded_total) / share;
    return total > remote->maintenance->relocated ? total - remote->maintenance->relocated : 0;
}

void remote_note_claim(struct remote *remote)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    int64_t now = clock_monotonic_ns(), before = atomic_exchange(&maintenance->claimed_at, now);
    if (before == 0 || now - before >= CLAIM_NS)
        atomic_store(&maintenance->claiming_since, now);
}

/* May other files still follow one that was restored from an earlier state? */
static bool is_claiming(const struct remote_maintenance *maintenance)
{
    int64_t now = clock_monotonic_ns(), at = atomic_load(&maintenance->claimed_at);
    return at && now - at < CLAIM_NS &&
           now - atomic_load(&maintenance->claiming_since) < CLAIMING_MAX_NS;
}

static void defer_emptying(struct remote *remote)
{
    remote->maintenance->is_deferred = true;
    remote->maintenance->tidy_at = atomic_load(&remote->maintenance->claimed_at) + CLAIM_NS;
}

static int plan_merges(struct adding *adding, const struct survey *survey)
{
    struct remote *remote = adding->remote;
    size_t small = survey->small.count;
    int r = 0;
    /* Uploads for which a caller waits go first; but too many small packs, or mostly dead ones,
     * cannot wait for ever. */
    bool is_urged = remote_is_urged(remote);
    if (is_urged && small > SMALL_PACKS_MAX && small <= SMALL_PACKS_URGED_MAX)
        remote_defer_merge(remote);
    else if (small > SMALL_PACKS_MAX)
        r = add_candidates(adding, &survey->small, small_to_merge(&survey->small), UINT64_MAX);
    uint64_t before = adding->plan->bytes;
    if (survey->sparse.count && is_claiming(remote->maintenance))
        defer_emptying(remote);
    else if (is_urged && survey->sparse.count && survey->bytes <= 2 * survey->live)
        remote_defer_merge(remote);
    else if (r == 0)
        r = add_candidates(adding, &survey->sparse, survey->sparse.count,
                           sparse_allowance(remote, survey));
    remote->maintenance->relocated += adding->plan->bytes - before;
    return r;
}

int repair_plan_make(struct remote *remote, size_t max_chunks, struct repair_plan *ret)
{
    struct survey survey = {0};
    struct adding adding = {.remote = remote, .plan = ret};
    *ret = (struct repair_plan){.max = max_chunks};
    if (clock_monotonic_ns() < remote->maintenance->repair_at)
        return 0;
    remote->maintenance->is_deferred = false;
    ret->list = xcalloc(max_chunks, sizeof *ret->list);
    int r = add_bad_packs(&adding);
    if (r == 0 && ret->bad_count > 0)
        r = listed_doubt(remote);
    if (r == 0)
        r = view_remote_packs(remote->store->local.view, survey_pack, &survey);
    vector_sort(&survey.small, compare_costs);
    vector_sort(&survey.sparse, compare_costs);
    if (r == 0)
        r = plan_merges(&adding, &survey);
    vector_free(&survey.small);
    vector_free(&survey.sparse);
    return r;
}

void repair_plan_done(struct repair_plan *plan)
{
    free(plan->list);
    vector_free(&plan->packs);
    *plan = (struct repair_plan){0};
}

void repair_plan_failed(struct remote *remote)
{
    remote->maintenance->repair_at = clock_monotonic_ns() + RETRY_NS;
}

/* --- after the chunks were sent --------------------------------------------------------------- */

static int count_chunk(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    (void)entry;
    *(uint64_t *)arg += is_needed;
    return 0;
}

int repair_plan_carried(struct remote *remote, const struct repair_plan *plan, uint64_t unread)
{
    bool has_suspects = false, is_suspect;
    int r = 0;
    for (size_t i = 0; i < plan->bad_count; i++) {
        r = suspects_leave(remote, plan->packs.at[i], &is_suspect);
        if (r < 0)
            return r;
        has_suspects |= is_suspect;
        noted_rewritten(remote, plan->packs.at[i]);
    }
    if (has_suspects)
        r = view_flush(remote->store->local.view);
    /* a pack that was only to be merged or emptied, and could not be read in part, is bad */
    for (size_t i = plan->bad_count; i < plan->packs.count && r == 0 && unread; i++) {
        uint64_t remains = 0;
        r = view_remote_pack_chunks(remote->store->local.view, plan->packs.at[i], count_chunk,
                                    &remains);
        if (r == 0 && remains)
            remote_note_bad_pack(remote, plan->packs.at[i], -EBADMSG);
    }
    return r;
}
