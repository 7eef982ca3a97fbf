// SPDX-License-Identifier: Apache-2.0
/* The remote shows an older head than the one that this store published last: the listing is stale,
 * the remote lost its newest heads, or an older copy of the remote replaced it. */
#include <inttypes.h>

#include "base/log.h"
#include "commit/journal.h"
#include "prefix/adopt.h"
#include "prefix/heads.h"
#include "prefix/verdict.h"
#include "view/remote.h"

static bool shows_older(const struct adoption *adoption, const struct head *known)
{
    const struct prefix *prefix = adoption->prefix;
    return known && !adoption->is_node && !prefix->options->read_only &&
           head_is_from_here(prefix, known) && !head_is_theirs(adoption->local, known) &&
           !head_is_theirs(adoption->local, &prefix->head) && head_was_published(known) &&
           known->number > prefix->head.number;
}

/* --- chunks that the remote lacks ------------------------------------------------------------- */

struct lack {
    struct prefix *prefix;
    VECTOR(uint64_t) packs; /* that exist in the remote */
    bool lacks_packs;
    uint64_t local; /* chunks that NVMe has */
};

static int add_listed(uint64_t id, const struct tier_object *object, void *arg)
{
    struct lack *lack = arg;
    (void)object;
    vector_add(&lack->packs, id);
    return 0;
}

static int look_for_pack(const struct view_remote_pack *pack, void *arg)
{
    struct lack *lack = arg;
    bool is_needed = pack->live_count > 0 && !pack->unreferenced && !pack->gone;
    lack->lacks_packs =
        lack->lacks_packs || (is_needed && !vector_search(&lack->packs, &pack->pack, compare_u64));
    return 0;
}

static int add_local(const struct view_pack *pack, void *arg)
{
    struct lack *lack = arg;
    lack->local += pack->live_count;
    return 0;
}

/* Counts chunks that NVMe does not have, if packs that the view knows are missing in the remote. */
static int count_only_there(struct lack *lack, struct view *view, uint64_t *ret_chunks)
{
    int r = prefix_list(lack->prefix, "packs", 0, add_listed, lack);
    vector_sort(&lack->packs, compare_u64);
    if (r == 0)
        r = view_remote_packs(view, look_for_pack, lack);
    if (r == 0 && lack->lacks_packs)
        r = view_packs(view, add_local, lack);
    uint64_t all = view_state(view).chunks;
    *ret_chunks = r == 0 && lack->lacks_packs && all > lack->local ? all - lack->local : 0;
    vector_free(&lack->packs);
    return r;
}

/* A store without a view has the state of the existing head, plus the operations of its journal. */
static int check_nothing_is_missing(const struct adoption *adoption, const struct head *known,
                                    char **ret_text)
{
    struct prefix *prefix = adoption->prefix;
    struct lack lack = {.prefix = prefix};
    uint64_t chunks = 0;
    struct view *view;
    int r = prefix_look_at_view(prefix, &view);
    if (r < 0)
        return 0;
    r = count_only_there(&lack, view, &chunks);
    view_close(view);
    if (r < 0 || chunks == 0 || prefix->options->takeover)
        return r;
    *ret_text =
        xasprintf("%s shows head %" PRIu64 ", but this store published head %" PRIu64
                  " there: an older copy took its place, or it lost what came later. %" PRIu64
                  " chunks of %s are not on NVMe, and packs that held them are missing. "
                  "Nothing was changed. Mount it with the remote that has them, or give "
                  "them up with --takeover",
                  prefix->name, prefix->head.number, known->number, chunks, adoption->local->path);
    return -ESTALE;
}

/* The operations after the older head are in the journal, unless that was trimmed: a published head
 * makes batches superfluous that the older head needs. */
static int check_goes_on(const struct adoption *adoption, const struct head *known, char **ret_text)
{
    struct prefix *prefix = adoption->prefix;
    enum verdict verdict = verdict_of(prefix, adoption->journal, known, &prefix->head);
    if (verdict == VERDICT_GO_ON || verdict == VERDICT_KEEP)
        return 0;
    *ret_text = xasprintf("%s shows head %" PRIu64 ", but this store published head %" PRIu64
                          " there: an older copy took its place, and the journal of %s does not "
                          "go back to that. Nothing was changed. Mount it with the newer copy, or "
                          "with an empty prefix, where all that it has is stored again",
                          prefix->name, prefix->head.number, known->number, adoption->local->path);
    return -ESTALE;
}

int older_judge(const struct adoption *adoption, const struct head *known, char **ret_text)
{
    struct prefix *prefix = adoption->prefix;
    if (!shows_older(adoption, known))
        return 0;
    _cleanup_free_ struct head *there = xmalloc(sizeof *there);
    int r = head_read(prefix, known->number, there);
    if (r < 0 && !prefix_object_is_lost(r))
        return r;
    if (r == 0 && memcmp(there->nonce, known->nonce, sizeof there->nonce) == 0) {
        prefix->head = *there; /* the head exists, but is not listed */
        return 0;
    }
    bool has_all = prefix_has_runs(prefix, known);
    if (!has_all) {
        TRY(check_nothing_is_missing(adoption, known, ret_text));
        TRY(check_goes_on(adoption, known, ret_text));
    }
    log_warn("%s shows head %" PRIu64 ", but this store published head %" PRIu64
             " there: %s; the store goes on from its own state, which is published again",
             prefix->name, prefix->head.number, known->number,
             has_all ? "it lost its newest heads" : "an older copy took its place");
    prefix->beginning.number = max_u64(prefix->beginning.number, known->number);
    if (has_all)
        prefix->head = *known;
    return local_ask_listing(adoption->local);
}
