// SPDX-License-Identifier: Apache-2.0
/* A store meets the prefix of its remote, takes it, and holds it. */
#include "base/cause.h"
#include "base/log.h"
#include "prefix/lease.h"
#include "remote/internal.h"

void remote_head_published(struct remote *remote, const struct head *head)
{
    remote->prefix.head = *head;
    /* A head without a state only names the prefix's holder: the journal still begins where
     * it did. */
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

/* --- meeting it ------------------------------------------------------------------------------- */

static void sign_head(struct remote *remote, struct head *head)
{
    head_sign(&remote->prefix, head);
    head->number = max_u64(head->number, remote->prefix.beginning.number) + 1;
    head->incompat = prefix_features(&remote->prefix);
}

#define TAKEOVER_TRIES 50
typedef int may_fn(struct remote *remote, char **ret_text);

/* Takes the prefix from another writer by creating the next head, with the state that is there:
 * from then on that is what we begin with, and the other is fenced. A live one may publish in
 * between: then its newer state is taken, if that may be. The state stays the other's, by name,
 * until it is ours (remote_claim()): a store that dies before must not take it for what it
 * published itself. */
static int take_over(struct remote *remote, may_fn *may, char **ret_text)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    for (int i = 0;; i++) {
        *head = remote->prefix.head;
        sign_head(remote, head);
        memcpy(head->store, remote->prefix.head.store, sizeof head->store);
        head->epoch = remote->prefix.head.epoch + 1;
        int r = head_put(&remote->prefix, head);
        if (r < 0 && r != -ESTALE)
            return r;
        if (r == -ESTALE && (!remote->options.takeover || i == TAKEOVER_TRIES)) {
            *ret_text = lease_explain_holder(&remote->prefix, "was taken just now", head->holder);
            return -EBUSY;
        }
        remote->prefix.head = *head;
        if (r == 0)
            return 0;
        TRY(may(remote, ret_text));
    }
}

/* A head that we do not know may be of a store that took the prefix over, also where it has our
 * name: it has that until it is claimed. */
static bool is_as_we_left_it(const struct remote *remote)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    return !remote->was_theirs && remote->prefix.head.number > 0 &&
           local_head_read(&remote->store->local, known) == 0 &&
           memcmp(known->nonce, remote->prefix.head.nonce, sizeof known->nonce) == 0;
}

/* The newest head, of a prefix that has one. */
static int find_head(struct remote *remote, char **ret_text)
{
    int r = prefix_check_history(&remote->prefix, ret_text);
    if (r == 0)
        r = local_allow_encodings(&remote->store->local,
                                  remote->prefix.marker.incompat); /* what is fetched is kept */
    if (r < 0 || remote->prefix.beginning.is_anew || remote->prefix.head.number)
        return r;
    r = heads_newest(&remote->prefix, 0, &remote->prefix.head);
    bool may_go_back = remote->options.read_only || remote->options.rollback;
    if (may_go_back && (r == -EUCLEAN || r == -EBADMSG))
        r = heads_go_back_from_damaged(&remote->prefix, ret_text);
    if (r == 0) /* its writer may have announced them since the marker was read */
        r = local_allow_encodings(&remote->store->local, remote->prefix.head.incompat);
    return r == -ENOENT ? 0 : r;
}

/* Where no head is found this store may still know one. Numbers go on above it, whatever the server
 * says; and a mount that lives does not begin anew because of what it says. */
static int settle_floor(struct remote *remote, char **ret_text)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    if (remote->prefix.head.number > 0 || !prefix_known_head(&remote->prefix, known))
        return 0;
    remote->prefix.beginning.number = max_u64(remote->prefix.beginning.number, known->number);
    if (!remote->store->local.options.adopting)
        return 0;
    *ret_text = xasprintf("%s shows no head, but this mount published head %llu there; if it "
                          "was emptied, unmount and mount again to begin anew",
                          remote->prefix.name, (unsigned long long)known->number);
    return -EBUSY;
}

/* May a writer go on from the newest head, and will the prefix be its own? */
static int attach_writer(struct remote *remote, may_fn *may, char **ret_text)
{
    int r = may(remote, ret_text);
    if (r == 0)
        r = prefix_check_newest(&remote->prefix, ret_text);
    remote->was_theirs = head_is_theirs(&remote->store->local, &remote->prefix.head);
    /* Before the wait for its lease, by which a key that may only read would win nothing. */
    if (r == 0 && remote->was_theirs && !remote->options.unfenced)
        r = prefix_probe_exclusive(&remote->prefix, ret_text);
    if (r == 0 && !is_as_we_left_it(remote))
        r = lease_await(&remote->prefix, ret_text);
    return r == 0 && remote->was_theirs ? take_over(remote, may, ret_text) : r;
}

static int attach_online(struct remote *remote, may_fn *may, char **ret_text)
{
    int r = prefix_look(&remote->prefix, true, ret_text);
    if (r == 0 && remote->prefix.has_marker)
        r = find_head(remote, ret_text);
    if (r == 0)
        r = settle_floor(remote, ret_text);
    remote->was_theirs = head_is_theirs(&remote->store->local, &remote->prefix.head);
    if (r == 0 && remote->prefix.has_marker && !remote->options.read_only)
        r = attach_writer(remote, may, ret_text);
    remote->prefix.is_attached = r == 0;
    return r;
}

int remote_attach(struct remote *remote, may_fn *may, char **ret_text)
{
    remote->prefix.head = (struct head){0};
    int r = attach_online(remote, may, ret_text);
    /* For a writer the remote works when the first head was stored: a filesystem may allow reads
     * and refuse writes. */
    if (r == 0 && remote->options.read_only)
        remote_works(remote);
    if (r == 0)
        return 0;
    if (remote->prefix.tier->ops->look_again)
        remote->prefix.tier->ops->look_again(
            remote->prefix.tier); /* the right one may be mounted yet */
    if (r == -ECANCELED && !*ret_text)
        *ret_text = xasprintf("given up while waiting for %s", remote->prefix.name);
    if (*ret_text)
        return r;
    _cleanup_free_ char *newer =
        xasprintf("it was written by a newer version of CairnFS: %s", cause_text());
    const char *what = r == -EPROTONOSUPPORT            ? newer
                       : r != -EUCLEAN && r != -EBADMSG ? strerror(-r)
                       : remote->prefix.has_marker
                           ? "its newest head is damaged; 'cairn ls', 'cairn cp' and a mount with "
                             "-o ro show the one before; with --rollback a mount goes on from there"
                           : "its object 'cairn' is damaged, or it is no CairnFS prefix";
    remote_error(remote, r, "%s cannot be used now (%s)", remote->prefix.name, what);
    return 0;
}

/* --- holding it ------------------------------------------------------------------------------- */

static int add_live(const struct view_pack *pack, void *arg)
{
    *(uint64_t *)arg += pack->live_count;
    return 0;
}

/* The journal may begin with the head of a remote that is gone: it goes on to, but nothing is
 * published there. */
static int keep_anchor_alone(struct store *store)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    int r = local_head_read(&store->local, head);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    memset(head->nonce, 0, sizeof head->nonce);
    return local_head_write(&store->local, head);
}

/* The prefix has no head, but the view believes in what it once held: it was emptied, or is
 * another; or what should be mounted there is not. */
static bool has_lost_head(struct remote *remote)
{
    return remote->prefix.head.run_count == 0 && view_remote(remote->store->local.view).cut > 0;
}

/* Nothing is forgotten that lies nowhere else. */
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
    /* Also where the newest head is ours, or there is none: it tells our epoch, which a store that
     * takes over must exceed. Ids of packs and runs hold the epoch, so no two writers ever use the
     * same. */
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    *head = remote->prefix.head;
    sign_head(remote, head);
    int r = head_put(&remote->prefix, head);
    if (r == 0)
        remote_head_published(remote, head);
    if (r != -ESTALE)
        return r;
    if (!head_is_theirs(&remote->store->local, head))
        return -EAGAIN; /* of a session before: the listing lacked it */
    *ret_text = lease_explain_holder(&remote->prefix, "was taken just now", head->holder);
    return -EBUSY;
}

uint64_t remote_epoch(const struct remote *remote)
{
    return remote ? max_u64(remote->prefix.head.epoch, remote->prefix.beginning.epoch) : 0;
}
