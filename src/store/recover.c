// SPDX-License-Identifier: Apache-2.0
/* Recovery: from the state after a crash to the newest state that the tiers can prove.
 *
 *   1. the journal is read, from the view's state to its last whole batch: the horizon
 *   2. the view catches up with it, or is rebuilt from it (recover_view.c)
 *   3. operations of the stage above the horizon are repeated over the view; if the stage is gone,
 *      this is a power loss
 *   4. a new epoch begins, and packs that nothing refers to are removed
 *
 * Before step 4 nothing is changed that a second crash would need; each step can be repeated. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/vector.h"
#include "nodes/node.h"
#include "remote/life.h"
#include "store/internal.h"
#include "view/remote.h"

/* --- the stage -------------------------------------------------------------------------------- */

DEFINE_VECTOR(inos, uint64_t);

struct replay {
    struct store *store;
    uint64_t cut;
    struct inos durable_births; /* files whose first seal is below the cut */
    struct inos held;
    struct inos orphans;
    /* nascent files that are not restored, nor any operation on them; few */
    struct inos skipped;
    uint64_t max_ino;
};

static void replay_done(struct replay *rp)
{
    for (size_t i = 0; i < rp->held.count; i++)
        ns_drop(rp->store->local.ns, rp->held.at[i]);
    vector_free(&rp->held);
    vector_free(&rp->orphans);
    vector_free(&rp->skipped);
    vector_free(&rp->durable_births);
}

static int note_durable_birth(const struct record *rec, void *arg)
{
    struct replay *rp = arg;
    if (rec->type == REC_SEAL && rec->flags & RECORD_BIRTH && rec->seq <= rp->cut)
        vector_add(&rp->durable_births, rec->ino);
    return 0;
}

/* Holds an inode that an operation is about to change, until the end of the recovery. */
static bool hold_inode(struct replay *rp, uint64_t ino)
{
    struct ns_inode inode;
    if (ns_hold(rp->store->local.ns, ino, &inode) < 0)
        return false;
    vector_add(&rp->held, ino);
    return true;
}

static bool hold_inodes(struct replay *rp, const struct record *rec)
{
    bool makes_inode = record_makes_inode(rec) || rec->type == REC_NASCENT ||
                       (rec->type == REC_SEAL && rec->flags & RECORD_BIRTH);
    return (makes_inode || hold_inode(rp, rec->ino)) &&
           (!rec->parent || hold_inode(rp, rec->parent)) &&
           (!rec->parent2 || hold_inode(rp, rec->parent2)) &&
           (!rec->ino2 || hold_inode(rp, rec->ino2));
}

static bool is_operation(const struct record *rec)
{
    return (rec->type >= REC_SEAL && rec->type <= REC_REAP) || rec->type == REC_VERSION ||
           rec->type == REC_NASCENT;
}

static bool is_nascent_now(struct store *store, uint64_t ino)
{
    struct ns_inode inode;
    return ns_inode(store->local.ns, ino, &inode) == 0 && inode.nascent;
}

static int restore_pack(struct store *store, const struct record *rec);

/* The file's directory is gone, and with it its name. If the mount lives, a process may still have
 * the file open. */
static int replay_homeless(struct replay *rp, const struct record *rec)
{
    struct record nameless = *rec;
    if (!rp->store->local.options.adopting) {
        vector_add(&rp->skipped, rec->ino);
        return 0;
    }
    nameless.flags |= RECORD_ORPHAN;
    nameless.parent = ROOT_INO;
    if (!hold_inode(rp, ROOT_INO))
        return -EUCLEAN;
    ns_apply(rp->store->local.ns, &nameless);
    vector_add(&rp->orphans, rec->ino);
    return 0;
}

/* 0: another node created the inode, whose number says nothing about numbers that are free here. */
static uint64_t own_number(struct store *store, uint64_t ino)
{
    uint64_t number = ino & ((1ull << 48) - 1);
    return store_owns_inode(store, number) ? number : 0;
}

/* A node's file may cover the name of another node's file, until it is sealed. */
static int restore_nascent(struct replay *rp, const struct record *rec)
{
    struct store *store = rp->store;
    struct record nascent = *rec;
    struct view_entry there = {0};
    bool may_cover = store->local.sb.node && !(rec->flags & RECORD_ORPHAN);
    int r = may_cover ? ns_lookup(store->local.ns, rec->parent, rec->name, rec->name_len, &there)
                      : -ENOENT;
    if (r < 0 && r != -ENOENT)
        return r;
    nascent.ino2 = r == 0 && S_ISREG(there.type) ? there.ino : 0;
    ns_restore_nascent(store->local.ns, &nascent, clock_realtime_ns() + CLOCK_BACK_MAX_NS);
    if (rec->flags & RECORD_ORPHAN)
        vector_add(&rp->orphans, rec->ino);
    return 0;
}

static int replay_record(const struct record *rec, void *arg)
{
    struct replay *rp = arg;
    struct store *store = rp->store;
    if (rec->type == REC_PACK)
        return restore_pack(store, rec);
    if (!is_operation(rec))
        return 0;
    rp->max_ino = max_u64(rp->max_ino, own_number(store, rec->ino));
    bool birth = rec->type == REC_SEAL && rec->flags & RECORD_BIRTH;
    bool nascent = rec->type == REC_NASCENT || (!birth && is_nascent_now(store, rec->ino));
    if (rec->seq <= rp->cut && !nascent)
        return 0;
    if (rec->type == REC_NASCENT && (vector_search(&rp->durable_births, &rec->ino, compare_u64) ||
                                     is_nascent_now(store, rec->ino)))
        return 0;
    if (vector_has(&rp->skipped, rec->ino))
        return 0;
    if (!hold_inodes(rp, rec)) {
        /* A nascent file that lost its name, with its directory, below the cut. Any other case
         * would be damage. */
        if (nascent)
            return rec->type == REC_NASCENT ? replay_homeless(rp, rec) : 0;
        log_error("stage: operation %s of inode %llu does not fit the durable state; keep the "
                  "stage and this log for a report",
                  record_type_name(rec->type), (unsigned long long)rec->ino);
        return -EUCLEAN;
    }
    if (rec->type == REC_NASCENT)
        return restore_nascent(rp, rec);
    else
        ns_apply(store->local.ns, rec);
    if (!nascent)
        history_readd(store->commit.history, rec);
    if (rec->flags & RECORD_ORPHAN)
        vector_add(&rp->orphans, rec->type == REC_RENAME ? rec->ino2 : rec->ino);
    return 0;
}

DEFINE_VECTOR(pack_entries, struct chunk_entry);

static int add_entry(const struct chunk_entry *entry, void *arg)
{
    struct pack_entries *all = arg;
    vector_add(all, *entry);
    return 0;
}

/* A pack that was finished, and that no durable batch names. */
static int restore_pack(struct store *store, const struct record *rec)
{
    struct view_pack known;
    int r = view_pack(store->local.view, rec->pack, &known);
    if (r != -ENOENT)
        return r;
    _cleanup_vector_ struct pack_entries all = {0};
    bool was_made;
    r = packs_recover_index(store->commit.packs, rec->pack, add_entry, &all, &was_made);
    if (r == -ENOENT)
        return 0; /* dropped again since: then nothing refers to it */
    TRY(r);
    packs_readd(store->commit.packs, rec->pack, rec->length, all.at, (uint32_t)all.count);
    return 0;
}

static uint64_t durable_version(uint64_t ino, uint64_t *ret_size, void *arg)
{
    struct replay *rp = arg;
    struct ns_inode now;
    struct view_inode durable;
    *ret_size = 0;
    if (ns_inode(rp->store->local.ns, ino, &now) < 0 ||
        (now.nlink == 0 && !rp->store->local.options.adopting))
        return UINT64_MAX;
    if (view_inode(rp->store->local.view, ino, &durable) < 0)
        return 0;
    *ret_size = durable.attrs.size;
    return durable.version;
}

/* No pack's number: a new view does not have packs that no head needed when a file was made to
 * refer to their chunks. */
#define PACK_NOT_KNOWN UINT64_MAX

static uint64_t pack_of_chunk(const struct chunk_name *name, uint64_t *ret_remote, void *arg)
{
    struct replay *rp = arg;
    struct chunk_entry entry;
    uint64_t refs;
    *ret_remote = 0;
    if (view_remote_place(rp->store->local.view, name, &entry) == 0)
        *ret_remote = entry.pack;
    else if (rp->store->own->view_is_new && local_has_remote(&rp->store->local))
        *ret_remote = PACK_NOT_KNOWN; /* it is searched once the file is durable: remote/rescue.c */
    if (packs_find_fresh(rp->store->commit.packs, name, &entry) != 0)
        return entry.pack;
    return view_chunk(rp->store->local.view, name, &entry, &refs) == 0 ? entry.pack : 0;
}

static int add_orphan(uint64_t ino, void *arg)
{
    vector_add((struct inos *)arg, ino);
    return 0;
}

/* Ends inodes to which nothing refers any more. */
static int reap_orphans(struct store *store, struct inos *orphans)
{
    int r = 0;
    for (size_t i = 0; i < orphans->count && r == 0; i++) {
        struct ns_inode inode;
        if (ns_hold(store->local.ns, orphans->at[i], &inode) < 0)
            continue;
        struct record rec = {.type = REC_REAP, .ino = orphans->at[i]};
        if (inode.nlink == 0)
            r = history_commit(store->commit.history, &rec);
        ns_drop(store->local.ns, orphans->at[i]);
    }
    return r;
}

static int add_nascent(const struct record *rec, void *arg)
{
    if (rec->type == REC_NASCENT)
        vector_add((struct inos *)arg, rec->ino);
    return 0;
}

/* --- open files ------------------------------------------------------------------------------- */

/* Files that are open for writing, in order. */
static void find_open(struct store *store, struct inos *open)
{
    uint64_t cursor = 0, handle, ino;
    uint32_t flags;
    while (stage_handle_next(store->local.stage, &cursor, &handle, &ino, &flags))
        if (((flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT) &&
            !stage_is_due(store->local.stage, ino))
            vector_add(open, ino);
    vector_sort(open, compare_u64);
}

/* Files without a version are drafts, also if nothing was written; files without a name are no part
 * of history. */
static int restore_drafts(struct store *store, struct replay *rp)
{
    _cleanup_vector_ struct inos nascent = {0};
    TRY(ns_dump_nascent(store->local.ns, true, add_nascent, &nascent));
    for (size_t i = 0; i < nascent.count; i++)
        stage_open_draft(store->local.stage, nascent.at[i]);
    TRY(view_orphans(store->local.view, add_orphan, &rp->orphans));
    for (size_t i = 0; i < rp->orphans.count; i++) {
        struct ns_inode inode;
        if (ns_inode(store->local.ns, rp->orphans.at[i], &inode) == 0 && inode.nlink == 0 &&
            stage_unlink(store->local.stage, inode.ino, 0, true) == -EAGAIN)
            log_debug("stage: the log is written anew in a moment");
    }
    return 0;
}

/* The mount continues, and the kernel may know these inodes. */
static void keep_orphans(struct store *store, const struct inos *orphans)
{
    store->own->nameless = xcalloc(orphans->count + 1, sizeof *store->own->nameless);
    for (size_t i = 0; i < orphans->count; i++) {
        struct ns_inode inode;
        if (ns_inode(store->local.ns, orphans->at[i], &inode) == 0 && inode.nlink == 0)
            store->own->nameless[store->own->nameless_count++] = inode.ino;
    }
}

size_t store_nameless(const struct store *store, const uint64_t **ret_inos)
{
    *ret_inos = store->own->nameless;
    return store->own->nameless_count;
}

/* Drafts that a daemon left unsealed become history in one step: some were closed, and their seals
 * were waiting; so no cut contains a part of them. */
static int seal_left_drafts(struct store *store, const struct inos *open)
{
    uint64_t before = history_newest(store->commit.history);
    int r = history_seal_all_but(store->commit.history, open->at, open->count);
    if (history_newest(store->commit.history) != before)
        stage_raise_floor(store->local.stage, history_newest(store->commit.history));
    return r;
}

/* Drafts whose writers are gone become versions in their present state. */
static int open_files(struct store *store, struct inos *orphans)
{
    _cleanup_vector_ struct inos open = {0};
    if (store->local.options.adopting) {
        keep_orphans(store, orphans);
        find_open(store, &open);
    } else if (!local_follows(&store->local)) { /* else the writer has them open */
        TRY(reap_orphans(store, orphans));
    }
    TRY(seal_left_drafts(store, &open));
    stage_set_due(store->local.stage, NULL, 0);
    return 0;
}

static int replay_stage(struct store *store, struct replay *rp)
{
    struct stage_rebuild how = {.durable = durable_version, .pack_of = pack_of_chunk, .arg = rp};
    TRY(stage_replay_log(store->local.stage, note_durable_birth, rp));
    vector_sort(&rp->durable_births, compare_u64);
    TRY(stage_replay_log(store->local.stage, replay_record, rp));
    TRY(stage_rebuild_layers(store->local.stage, &how));
    return store->local.options.adopting ? restore_drafts(store, rp) : 0;
}

/* --- sessions --------------------------------------------------------------------------------- */

/* -EOVERFLOW: the numbers of the journal, the stage or the remote leave none for this session. */
static int begin_epoch(struct store *store, char **ret_text)
{
    uint64_t epoch = 0, next = 0;
    struct view_state view = view_state(store->local.view);
    if (store->local.stage)
        stage_epochs(store->local.stage, &epoch, &next);
    uint64_t last =
        max_u64(max_u64(journal_found(store->commit.journal).epoch, remote_epoch(store->remote)),
                max_u64(epoch, next));
    last = max_u64(max_u64(last, journal_anchor(store->commit.journal)->epoch),
                   own_number(store, view.max_ino) >> 24);
    last = max_u64(last, view.applied_seq >> SEQ_EPOCH_SHIFT);
    if (store->node)
        return node_next_epoch(store->node, last, &store->local.epoch, ret_text);
    if (last >= EPOCH_LAST)
        return -EOVERFLOW;
    store->local.epoch = last + 1;
    return 0;
}

struct leftovers {
    struct store *store;
    size_t removed, aside;
};

/* After damage, an unreferenced pack may still be needed: its reference may have been lost. And a
 * pack of another store must not be removed. */
static int clear_leftover(struct leftovers *left, uint64_t id, const char *name)
{
    struct store *store = left->store;
    if (store->own->met_damage || !packs_is_ours(store->commit.packs, id)) {
        left->aside++;
        return set_aside(store, name);
    }
    left->removed++;
    return store->local.tier->ops->remove(store->local.tier, name);
}

static int remove_leftover(const struct tier_object *object, void *arg)
{
    struct leftovers *left = arg;
    uint64_t id;
    struct view_pack known;
    if (!object_number(object->name, "packs", &id))
        return 0;
    /* Only packs that the view certainly does not have: a view that cannot be read proves
     * nothing. */
    int r = view_pack(left->store->local.view, id, &known);
    if (r != -ENOENT)
        return r;
    if (packs_is_written(left->store->commit.packs, id))
        return 0;
    char name[32];
    pack_object_name(id, name);
    return clear_leftover(left, id, name);
}

static int remove_leftovers(struct store *store)
{
    struct leftovers left = {.store = store};
    int r = store->local.tier->ops->list(store->local.tier, "packs", NULL, remove_leftover, &left);
    if (left.removed)
        log_info("removed %zu packs that were written and never became part of the journal",
                 left.removed);
    if (left.aside)
        log_warn(
            "%zu files of packs/ that nothing names were set aside in %s/" ASIDE_DIRECTORY "%s",
            left.aside, store->local.path,
            store->own->met_damage ? ", since this start found something damaged or missing" : "");
    if (r == 0 && left.aside)
        r = aside_sync(store);
    return r == 0 ? repair_settled(store) : r;
}

/* Trouble of the disk must not be reported as the stage's. */
static int begin_journal(struct store *store, char **ret_text)
{
    int r = journal_begin(store->commit.journal);
    if (r < 0)
        *ret_text =
            xasprintf("%s: its journal cannot be written: %s; %s", store->local.path, strerror(-r),
                      r == -ENOSPC || r == -EDQUOT ? "free some MiB on that disk and mount again"
                                                   : "look at that disk, and at the kernel's log");
    return r;
}

/* Takes over the data of the old stage, in the new epoch. */
static int take_over(struct store *store, struct replay *rp, char **ret_text)
{
    stage_begin_recovery(store->local.stage, store->local.epoch);
    TRY(replay_stage(store, rp));
    /* Then the layers may be wrong, and must not be written to the stage. */
    if (view_is_damaged(store->local.view))
        return -EUCLEAN;
    TRY(stage_adopt(store->local.stage, store->local.epoch, store->local.options.adopting));
    TRY(history_compact(store->commit.history));
    TRY(begin_journal(store, ret_text));
    return stage_commit_epoch(store->local.stage, store->local.epoch);
}

static char *explain_stage(const struct store *store, int r)
{
    const char *what_to_do =
        r == -EFBIG ? "the limit of the sizes of files (ulimit -f) is smaller; raise it"
                    : "free memory there, or give another tmpfs with -o stage_dir=DIR";
    return xasprintf("the stage in %s cannot be used: %s; %s", store->local.options.stage_dir,
                     strerror(-r), what_to_do);
}

/* The old session is ended first: if the daemon dies now, the half-made stage is not taken for one
 * that it left. */
static int start_fresh(struct store *store, bool is_reader, char **ret_text)
{
    int r = session_end(store->local.path);
    if (r < 0) {
        *ret_text = xasprintf("%s/session cannot be removed: %s; look at that disk",
                              store->local.path, strerror(-r));
        return r;
    }
    r = session_new_stage(store->commit.own_stage);
    if (r < 0) {
        *ret_text = explain_stage(store, r);
        return r;
    }
    r = begin_journal(store, ret_text);
    if (r == 0)
        r = session_write(store->commit.own_stage, is_reader);
    if (r < 0)
        session_drop_stage(store->commit.own_stage);
    return r;
}

/* Opens the stage of the last session, if there is one. */
static int open_left(struct store *store, struct session *left, char **ret_text)
{
    int r = session_read(store->local.path, store->local.sb.store, left);
    if (r < 0)
        *ret_text = xasprintf(
            "%s/session cannot be read: %s; it says where the last session left its stage",
            store->local.path, strerror(-r));
    if (r == 0 && left->exists)
        r = session_open_stage(store->commit.own_stage, left, ret_text);
    session_done(left);
    if (r == 0)
        r = session_meet_twin(store->commit.own_stage, ret_text);
    return r;
}

/* Continues with the stage that was left, or begins a new one. */
static int begin_session(struct store *store, struct replay *rp, bool is_reader, char **ret_text)
{
    if (!store->local.stage)
        return start_fresh(store, is_reader, ret_text);
    const char *directory = commit_stage_directory(&store->commit);
    log_info("recovering what the last session left in %s", directory);
    int r = take_over(store, rp, ret_text);
    if (r < 0 && !*ret_text)
        *ret_text =
            xasprintf("recovering the stage in %s failed: %s; it is left as it is; to go on "
                      "without what it holds, remove %s/session",
                      directory, strerror(-r), store->local.path);
    return r < 0 ? r : session_write(store->commit.own_stage, is_reader);
}

/* After the session has begun: settles packs and files that were left without one. */
static int settle_left(struct store *store, struct replay *rp)
{
    struct view_state view = view_state(store->local.view);
    uint64_t used = max_u64(own_number(store, view.max_ino), rp->max_ino);
    uint64_t ino = max_u64(used + 1, store->local.epoch << 24);
    atomic_store(&store->own->next_ino, ino);
    history_begin(store->commit.history, rp->cut);
    TRY(remove_leftovers(store));
    TRY(view_orphans(store->local.view, add_orphan, &rp->orphans));
    int r = open_files(store, &rp->orphans);
    if (r != -EAGAIN)
        return r;
    history_seal_rest_later(
        store->commit.history); /* the log has no room for all of them at once */
    return 0;
}

int recover(struct store *store, char **ret_text)
{
    TRY(recover_view(store, ret_text));
    store->local.ns = ns_new(store->local.view);
    if (local_follows(&store->local))
        ns_set_following(store->local.ns, store->local.sb.incompat & SUPERBLOCK_INCOMPAT_NODES);
    struct session left;
    TRY(open_left(store, &left, ret_text));
    int r = begin_epoch(store, ret_text);
    if (r < 0 && *ret_text)
        return r;
    if (r < 0) {
        *ret_text =
            xasprintf("%s: its numbers are at their end, which no use of it can have done: the "
                      "journal or the remote is not what a store wrote; nothing was changed",
                      store->local.path);
        return r;
    }
    bool is_reader = local_follows(&store->local) && (!store->local.stage || left.is_reader);
    struct journal_found found = journal_found(store->commit.journal);
    _cleanup_(replay_done) struct replay rp = {.store = store, .cut = found.cut_seq};
    history_resume(store->commit.history, found.time);
    r = begin_session(store, &rp, is_reader, ret_text);
    if (r == 0)
        r = settle_left(store, &rp);
    if (r < 0 && !*ret_text)
        *ret_text = xasprintf("%s: recovery failed: %s", store->local.path, strerror(-r));
    return r;
}
