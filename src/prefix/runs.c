// SPDX-License-Identifier: Apache-2.0
/* Puts runs into the prefix twice, and puts them again.
 *
 * All content of a head depends on each of its runs, and runs are small: so the same bytes are
 * stored in two objects, runs/ID and copies/ID. The head waits for the first object, and for one
 * attempt at the copy, made at the same time. An object that is missing later is put again from
 * STORE/runs. */
#include "prefix/runs.h"

#include "base/log.h"
#include "base/pool.h"
#include "commit/run_file.h"

#define RETRY_MS 1000
#define RUN_LIMITED MIB
#define PIECE (1 * MIB)

/* --- put -------------------------------------------------------------------------------------- */

static bool may_send(struct prefix *prefix, uint64_t bytes)
{
    return prefix->user.wait_to_send ? prefix->user.wait_to_send(prefix->user.arg, bytes)
                                     : prefix->user.pause(prefix->user.arg, 0);
}

/* Makes one attempt to put the run, from STORE/runs. */
static int put_run_at(struct prefix *prefix, const struct run_info *info, enum run_place place,
                      bool *ret_is_local)
{
    struct run_input input;
    char object[RUN_OBJECT_LEN];
    run_object_name(info, place, object);
    int r = run_input_open(prefix->local, info, &input);
    struct tier_source source = {.len = info->length, .read = run_input_bytes, .arg = &input};
    /* A small run must not delay a state whose packs are stored already. */
    if (r == 0 && info->length > RUN_LIMITED && !may_send(prefix, info->length))
        r = -ECANCELED;
    *ret_is_local = r < 0;
    if (r == 0)
        r = tier_put_from(prefix->tier, object, &source);
    *ret_is_local = *ret_is_local || source.error < 0;
    if (r == 0)
        atomic_fetch_add(&prefix->uploaded_total, info->length);
    run_input_done(&input);
    return r;
}

struct copying {
    struct prefix *prefix;
    const struct run_info *info;
};

/* A failed copy loses nothing yet: it does not delay the head. */
static void *put_run_copy(void *arg)
{
    const struct copying *copying = arg;
    struct prefix *prefix = copying->prefix;
    bool is_local;
    int r = put_run_at(prefix, copying->info, RUN_COPY, &is_local);
    if (r < 0) {
        log_warn("remote: storing %s/%016llx failed (%s); retrying later",
                 run_directories[RUN_COPY], (unsigned long long)copying->info->id, strerror(-r));
        atomic_store(&prefix->runs.are_due, true);
    }
    return NULL;
}

int run_put(struct prefix *prefix, const struct run_info *info)
{
    struct copying copying = {prefix, info};
    char object[OBJECT_NAME_LEN];
    bool is_local;
    pthread_t copier;
    int r, started = thread_start(&copier, "cairn-copies", put_run_copy, &copying);
    object_name(run_directories[RUN_FIRST], info->id, object);
    while ((r = put_run_at(prefix, info, RUN_FIRST, &is_local)) < 0 && !is_local) {
        prefix_error(prefix, r, "storing %s failed (%s)", object, strerror(-r));
        if (!prefix_pause(prefix, RETRY_MS)) {
            r = -ECANCELED;
            break;
        }
    }
    if (started == 0)
        (void)pthread_join(copier, NULL);
    else
        (void)put_run_copy(&copying);
    return r;
}

/* --- checks and repairs --- */

/* Reads all of the object. */
static int check_run_content(struct prefix *prefix, const struct run_info *info, const char *object)
{
    uint8_t hash[HASH_LEN], *piece = xmalloc(PIECE);
    struct hash_stream *stream = hash_stream_new();
    int r = 0;
    for (uint64_t at = 0; at < info->length && r == 0; at += PIECE) {
        uint64_t len = min_u64(PIECE, info->length - at);
        r = prefix->tier->ops->get_range(prefix->tier, object, at, piece, len);
        if (r == 0)
            hash_stream_add(stream, piece, len);
    }
    hash_stream_result(stream, hash);
    hash_stream_free(stream);
    free(piece);
    return r < 0 ? r : memcmp(hash, info->hash, sizeof hash) == 0 ? 0 : -EBADMSG;
}

int run_check_at(struct prefix *prefix, const struct run_info *info, enum run_place place,
                 bool reads_content)
{
    char object[RUN_OBJECT_LEN];
    uint64_t len;
    run_object_name(info, place, object);
    int r = prefix->tier->ops->stat(prefix->tier, object, &len);
    if (r == 0 && len != info->length)
        r = -EUCLEAN;
    return r == 0 && reads_content ? check_run_content(prefix, info, object) : r;
}

/* The run is taken from STORE/runs: verified, or fetched from the place where it is whole. */
static int put_run_again(struct prefix *prefix, const struct run_info *info, enum run_place place,
                         const char *why)
{
    struct lost_object lost;
    bool is_local;
    int r = run_look(prefix->local, info);
    TRY(r == -ENOENT ? runs_fetch_head(prefix, &prefix->head, &lost) : r);
    TRY(put_run_at(prefix, info, place, &is_local));
    log_info("remote: %s/%016llx was %s: stored again", run_directories[place],
             (unsigned long long)info->id, why);
    return 0;
}

/* 0: the object exists, as far as a request for its length shows. */
static int keep_run_at(struct prefix *prefix, const struct run_info *info, enum run_place place)
{
    if (run_is_bad(prefix, info->id, place))
        return put_run_again(prefix, info, place, "damaged or missing");
    int r = run_check_at(prefix, info, place, false);
    return prefix_object_is_lost(r)
               ? put_run_again(prefix, info, place, r == -ENOENT ? "missing" : "truncated")
               : r;
}

int runs_keep(struct prefix *prefix, const uint64_t seen[RUN_PLACES])
{
    int r = 0;
    check(prefix->head.run_count <= HEAD_RUNS_MAX);
    for (uint32_t i = 0; i < prefix->head.run_count && r == 0; i++)
        for (unsigned place = 0; place < RUN_PLACES && r == 0; place++)
            if (!(seen[place] >> i & 1) || run_is_bad(prefix, prefix->head.runs[i].id, place))
                r = keep_run_at(prefix, &prefix->head.runs[i], place);
    if (r == 0)
        prefix->runs.bad_count = 0;
    return r;
}

/* Checks the file in STORE/runs, from which a lost view is restored. */
static int scrub_local_run(struct prefix *prefix, const struct run_info *info)
{
    struct lost_object lost;
    if (run_look(prefix->local, info) != -ENOENT)
        return 0;
    atomic_fetch_add(&prefix->runs.scrub_found, 1);
    int r = runs_fetch_head(prefix, &prefix->head, &lost);
    if (r == 0) {
        atomic_fetch_add(&prefix->runs.scrub_healed, 1);
        log_info("NVMe: runs/%016llx was missing or damaged: fetched again",
                 (unsigned long long)info->id);
    }
    return r;
}

static int scrub_run_at(struct prefix *prefix, const struct run_info *info, enum run_place place)
{
    int r = run_check_at(prefix, info, place, true);
    if (!prefix_object_is_lost(r))
        return r;
    atomic_fetch_add(&prefix->runs.scrub_found, 1);
    r = put_run_again(prefix, info, place, r == -ENOENT ? "missing" : "damaged");
    if (r == 0)
        atomic_fetch_add(&prefix->runs.scrub_healed, 1);
    return r;
}

void runs_scrub(struct prefix *prefix)
{
    int r = 0;
    for (uint32_t i = 0; i < prefix->head.run_count && r != -ECANCELED; i++) {
        r = scrub_local_run(prefix, &prefix->head.runs[i]);
        for (unsigned place = 0; place < RUN_PLACES && r != -ECANCELED; place++) {
            r = scrub_run_at(prefix, &prefix->head.runs[i], place);
            if (r < 0 && r != -ECANCELED)
                prefix_error(prefix, r, "%s/%016llx cannot be verified or stored again now (%s)",
                             run_directories[place], (unsigned long long)prefix->head.runs[i].id,
                             strerror(-r));
        }
    }
}
