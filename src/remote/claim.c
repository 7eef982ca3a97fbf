// SPDX-License-Identifier: Apache-2.0
/* Holding the prefix of a store's remote. */
#include "base/log.h"
#include "prefix/lease.h"
#include "remote/maintenance_internal.h"

void remote_head_published(struct remote *remote, const struct head *head)
{
    remote->prefix.head = *head;
    if (head_has_history(head))
        snapshots_note_head(remote->snapshots, head);
    /* a head without a state only names the prefix's holder: the journal's beginning stays */
    bool is_anchor = head->run_count > 0 || !journal_anchor(remote->store->commit.journal)->exists;
    int r = is_anchor ? local_head_write(&remote->store->local, head) : 0;
    if (r < 0)
        log_warn("%s/head cannot be written: %s; the next mount reads it from the remote",
                 remote->store->local.path, strerror(-r));
    LOCK_SCOPE(&remote->shared.lock);
    remote->shared.head_number = head->number;
    remote->shared.files = head->files;
    remote->shared.logical_bytes = head->logical_bytes;
}

int remote_publish_head(struct remote *remote, struct head *head)
{
    int r = head_put(&remote->prefix, head);
    if (r == -ESTALE)
        remote_fence(remote, head);
    if (r == 0)
        remote_head_published(remote, head);
    return r;
}

int remote_note_head(struct remote *remote)
{
    struct view *view = remote->store->local.view;
    struct view_remote known = view_remote(view);
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    int r = local_head_read(&remote->store->local, head);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    bool is_of_view = head->run_count > 0 && !local_head_is_lost(head) && known.cut == head->cut;
    return is_of_view && known.head < head->number ? view_note_head(view, head->number) : 0;
}

/* --- holding the prefix ----------------------------------------------------------------------- */

static int add_live(const struct view_pack *pack, void *arg)
{
    *(uint64_t *)arg += pack->live_count;
    return 0;
}

/* The journal may begin with the head of a remote that is gone: that beginning stays, but nothing
 * is published there. */
static int keep_anchor_alone(struct store *store)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    int r = local_head_read(&store->local, head);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    memset(head->nonce, 0, sizeof head->nonce);
    return local_head_write(&store->local, head);
}

/* The prefix has no head, but the view has a state that was published there: it was emptied, or is
 * another one; or its filesystem is not mounted. */
static bool has_lost_head(struct remote *remote)
{
    return remote->prefix.head.run_count == 0 && view_remote(remote->store->local.view).cut > 0;
}

/* Refuses to forget the state of the remote if some data is nowhere else. */
static int check_nothing_is_lost(struct remote *remote, char **ret_text)
{
    struct store *store = remote->store;
    uint64_t local = 0;
    if (!has_lost_head(remote))
        return 0;
    int r = view_packs(store->local.view, add_live, &local);
    uint64_t all = view_state(store->local.view).chunks;
    if (r < 0 || all <= local || remote->options.takeover)
        return r;
    *ret_text =
        xasprintf("%s has no head, but %llu chunks of %s lie only in the remote where it "
                  "published before; mount it "
                  "with that, or give them up with --takeover",
                  remote->prefix.name, (unsigned long long)(all - local), store->local.path);
    return -ESTALE;
}

static int forget_lost(struct remote *remote)
{
    struct store *store = remote->store;
    if (!has_lost_head(remote))
        return 0;
    TRY(keep_anchor_alone(store));
    log_warn("%s has no head, and this store had published before: all of it is stored again",
             remote->prefix.name);
    horizon_set_published(store->commit.horizon, 0);
    return view_forget_remote(store->local.view);
}

static int remember_name(struct remote *remote)
{
    _cleanup_free_ char *known = local_remote_name(&remote->store->local);
    int r = place_remember(&remote->prefix);
    if (r < 0 || (known && strcmp(known, remote->prefix.name) == 0))
        return r;
    return local_remote_name_write(&remote->store->local, remote->prefix.name);
}

int remote_claim(struct remote *remote, char **ret_text)
{
    if (remote->options.read_only || !remote->prefix.is_attached)
        return 0;
    TRY(check_nothing_is_lost(remote, ret_text));
    TRY(prefix_prepare(&remote->prefix, ret_text));
    TRY(forget_lost(remote));
    TRY(lease_renew(&remote->prefix));
    TRY(remember_name(remote));
    /* Also if the newest head is ours, or there is none: the new head states our epoch, which a
     * store that takes over must exceed. Ids of packs and runs contain the epoch, so no two writers
     * ever use the same. */
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    *head = remote->prefix.head;
    head_sign(&remote->prefix, head);
    int r = head_put(&remote->prefix, head);
    if (r == 0)
        remote_head_published(remote, head);
    if (r != -ESTALE)
        return r;
    if (!head_is_theirs(&remote->store->local, head))
        return -EAGAIN; /* from an earlier session: the listing lacked it */
    *ret_text = lease_explain_holder(&remote->prefix, "was taken just now", head->holder);
    return -EBUSY;
}

uint64_t remote_epoch(const struct remote *remote)
{
    return remote ? max_u64(remote->prefix.head.epoch, remote->prefix.beginning.epoch) : 0;
}
