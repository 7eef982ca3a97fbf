// SPDX-License-Identifier: Apache-2.0
/* Brings the view up to the journal: from the last batch that it has to the journal's end. */
#include "base/log.h"
#include "commit/journal_internal.h"
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "view/remote.h"

/* Uses the entries in memory, which this daemon wrote: a disk error in a read of the pack would be
 * reported for the wrong cause. */
static int give_written(const struct new_pack *pack,
                        int (*fn)(const struct chunk_entry *entry, void *fn_arg), void *fn_arg)
{
    for (uint32_t i = 0; i < pack->count; i++)
        TRY(fn(&pack->entries[i], fn_arg));
    return 0;
}

int commit_pack_index(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                      void *fn_arg, bool *ret_was_made, void *arg)
{
    struct commit *commit = arg;
    *ret_was_made = false;
    const struct new_pack *written = packs_find_written(commit->packs, pack);
    if (written)
        return give_written(written, fn, fn_arg);
    int r = packs_recover_index(commit->packs, pack, fn, fn_arg, ret_was_made);
    if (r == -EBADMSG || r == -EUCLEAN || r == -EIO) {
        log_error("pack %016llx: neither its index nor its chunks can be told apart; it is kept; "
                  "'cairn scrub' brings what the remote has",
                  (unsigned long long)pack);
        return -ENOENT;
    }
    return r;
}

struct catching_up {
    struct commit *commit;
    struct view_state state;
    bool matched;    /* the journal contains the view's cut */
    bool is_foreign; /* the view is not of this journal */
    /* a live journal ends at this state, whatever follows on the disk; NULL: it is read to its
     * end */
    const struct journal *until;
    bool is_over;
};

/* Ends the reading of the journal. */
static int refuse(struct catching_up *cu)
{
    cu->is_foreign = true;
    return -ECANCELED;
}

static int catch_up(const struct journal_batch *batch, void *arg)
{
    struct catching_up *cu = arg;
    uint64_t cut = batch->header.cut_seq;
    if (cu->is_over || cut < cu->state.applied_seq)
        return 0;
    cu->is_over = cu->until && memcmp(batch->chain, cu->until->chain, CHAIN_LEN) == 0;
    if (cut == cu->state.applied_seq) {
        cu->matched = memcmp(batch->chain, cu->state.chain, CHAIN_LEN) == 0;
        return cu->matched ? 0 : refuse(cu);
    }
    /* if the journal begins exactly there, the batches before the view's state were trimmed */
    if (!cu->matched && batch->header.base_seq == cu->state.applied_seq)
        cu->matched = memcmp(batch->header.prev, cu->state.chain, CHAIN_LEN) == 0;
    if (!cu->matched)
        return refuse(cu);
    struct view_batch vb = {.records = batch->records,
                            .records_len = batch->header.payload_len,
                            .cut_seq = cut,
                            .pack_index = commit_pack_index,
                            .arg = cu->commit};
    memcpy(vb.chain, batch->chain, sizeof vb.chain);
    return view_apply(cu->commit->local->view, &vb);
}

static int apply_journal(struct commit *commit, uint64_t from, const struct journal *until,
                         enum replayed *ret)
{
    const struct journal *journal = commit->journal;
    struct catching_up cu = {
        .commit = commit, .state = view_state(commit->local->view), .until = until};
    cu.matched = cu.state.applied_seq == 0 && !journal->anchor.exists;
    *ret = REPLAY_FOREIGN;
    int r = journal_read(commit->journal, from, catch_up, &cu);
    if (r < 0)
        return cu.is_foreign ? 0 : r;
    if (!cu.matched && journal->anchor.exists && cu.state.applied_seq < journal->cut_seq)
        return 0; /* the view is older than the journal's beginning */
    /* No batch was read: the journal ends at the anchor's or the view's state. */
    bool ends_there = cu.state.applied_seq == journal->cut_seq;
    if (ends_there && memcmp(cu.state.chain, journal->chain, CHAIN_LEN) != 0)
        return 0;
    *ret = cu.matched || ends_there ? REPLAYED : REPLAY_LOST_END;
    return 0;
}

/* A crash happened between the head's publication and the note in the view, or lost that note. Two
 * heads may have one cut: places in the remote change without operations. */
bool journal_view_forgot_head(const struct journal *journal)
{
    struct view_remote remote = view_remote(journal->local->view);
    return journal->anchor.number &&
           (remote.cut < journal->anchor.cut || remote.head < journal->anchor.number);
}

int commit_replay_journal(struct commit *commit, uint64_t from, enum replayed *ret)
{
    return apply_journal(commit, from, NULL, ret);
}

int commit_catch_up(struct commit *commit)
{
    const struct journal now = *commit->journal;
    enum replayed replayed;
    if (journal_view_forgot_head(commit->journal))
        return -EUCLEAN;
    int r = apply_journal(commit, view_state(commit->local->view).applied_seq, &now, &replayed);
    *commit->journal = now;
    TRY(r);
    if (replayed == REPLAY_FOREIGN)
        return -EUCLEAN;
    /* otherwise it could not be read to its end */
    struct view_state state = view_state(commit->local->view);
    return memcmp(state.chain, now.chain, CHAIN_LEN) == 0 ? 0 : -EIO;
}
