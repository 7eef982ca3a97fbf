// SPDX-License-Identifier: Apache-2.0
/* Content of drafts: not part of the history until sealed, but drafts are opened under its lock. */
#include "base/clock.h"
#include "commit/history_internal.h"
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "view/view.h"

void commit_now_settle(struct commit_now *now)
{
    const struct stage_file_state *staged = &now->staged;
    now->size = now->inode.attrs.size;
    now->mtime = now->inode.attrs.mtime;
    if (staged->has_draft) {
        now->size = staged->draft_size;
        now->mtime = staged->draft_mtime ? staged->draft_mtime : now->mtime;
    } else if (staged->has_sealed && staged->sealed_version > now->inode.version) {
        now->size = staged->sealed_size;
        now->mtime = staged->sealed_mtime ? staged->sealed_mtime : now->mtime;
    }
}

/* A seal first takes the draft from the stage and then updates the namespace, without a lock that
 * this thread could share. So the stage is read first: it still has data that the namespace does
 * not know yet. */
int commit_look(struct commit *commit, uint64_t ino, struct commit_now *ret)
{
    (void)stage_file_state(commit->local->stage, ino, &ret->staged);
    int r = ns_inode(commit->local->ns, ino, &ret->inode);
    if (r == 0)
        commit_now_settle(ret);
    return r;
}

/* Prepares a change of content, which opens a draft if there is none. The caller keeps the history
 * locked until the change is made, so that no seal comes between. */
static int prepare_locked(struct history *history, uint64_t ino, struct stage_change *ret)
{
    check_held(&history->lock);
    struct stage_file_state state;
    struct ns_inode inode;
    bool has_draft = stage_file_state(history->local->stage, ino, &state) && state.has_draft;
    TRY(ns_inode(history->local->ns, ino, &inode));
    TRY(history_reserve_locked(history, has_draft ? RESERVE_RECORD : RESERVE_DRAFT, 0));
    *ret = (struct stage_change){.ino = ino,
                                 .time = clock_realtime_ns(),
                                 .below_size = inode.attrs.size,
                                 .version = inode.version};
    return 0;
}

int history_write(struct history *history, struct stage_write *w)
{
    bool has_draft;
    w->time = clock_realtime_ns();
    TRY(stage_write_draft(history->local->stage, w, &has_draft));
    if (has_draft)
        return 0;
    LOCK_SCOPE(&history->lock);
    struct stage_change change;
    TRY(prepare_locked(history, w->ino, &change));
    w->below_size = change.below_size;
    w->version = change.version;
    return stage_write(history->local->stage, w);
}

int history_erase(struct history *history, uint64_t ino, uint64_t offset, uint64_t length,
                  uint64_t new_size)
{
    struct stage_change change;
    mutex_lock(&history->lock);
    /* a closed file becomes a version before part of it is removed */
    int r = history_is_due_locked(history, ino) ? history_seal_due_locked(history) : 0;
    if (r == 0)
        r = prepare_locked(history, ino, &change);
    if (r == 0)
        r = stage_erase(history->local->stage, &change, offset, length, new_size);
    return history_leave(history, r);
}

static int put_chunk(struct history *history, uint64_t ino, const struct stage_chunk_range *chunk)
{
    struct stage_change change;
    LOCK_SCOPE(&history->lock);
    TRY(prepare_locked(history, ino, &change));
    return stage_put_chunk(history->local->stage, &change, chunk);
}

int history_put_chunk(struct history *history, uint64_t ino, const struct stage_chunk_range *chunk,
                      bool uses_remote)
{
    struct packs *packs = history->packs;
    struct stage_chunk_range range = *chunk;
    struct remote_pins pins = {0};
    range.remote = uses_remote ? packs_pin_remote(packs, &range.name, &pins) : 0;
    if (!packs_pin_stored(packs, &range.name, &range.pack))
        range.pack = 0;
    int r = range.pack || range.remote ? put_chunk(history, ino, &range) : -ENOENT;
    if (range.pack)
        packs_unpin(packs, range.pack);
    packs_unpin_remote(packs, &pins);
    return r;
}
