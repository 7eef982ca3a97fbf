// SPDX-License-Identifier: Apache-2.0
/* Attaches a store to its prefix: finds the newest head, and takes the prefix from another
 * writer. */
#include "base/cause.h"
#include "commit/journal.h"
#include "prefix/heads.h"
#include "prefix/lease.h"

#define TAKEOVER_TRIES 50

/* Takes the prefix from another writer by creating the next head, with the existing state: from
 * then on we begin with that state, and the other writer is fenced. A live writer may publish in
 * between: then its newer state is taken, if `may` allows. The head keeps the other store's name
 * until this store claims the state: a store that dies before must not mistake it for a state that
 * it published itself. */
static int take_over(struct prefix *prefix, prefix_may_fn *may, void *arg, char **ret_text)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    for (int i = 0;; i++) {
        *head = prefix->head;
        head_sign(prefix, head);
        memcpy(head->store, prefix->head.store, sizeof head->store);
        head->epoch = prefix->head.epoch + 1;
        int r = head_put(prefix, head);
        if (r < 0 && r != -ESTALE)
            return r;
        if (r == -ESTALE && (!prefix->options->takeover || i == TAKEOVER_TRIES)) {
            *ret_text = lease_explain_holder(prefix, "was taken just now", head->holder);
            return -EBUSY;
        }
        prefix->head = *head;
        if (r == 0)
            return 0;
        TRY(may(arg, ret_text));
    }
}

/* A head that we do not know may have been created by a store that took the prefix over, even if it
 * has our name: it keeps our name until it is claimed. */
static bool is_as_we_left_it(const struct prefix *prefix)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    return !prefix->was_theirs && prefix->head.number > 0 &&
           local_head_read(prefix->local, known) == 0 &&
           memcmp(known->nonce, prefix->head.nonce, sizeof known->nonce) == 0;
}

/* A successor continues to show the state that its mount shows, also if the head was deleted
 * meanwhile. */
static int find_chosen(struct prefix *prefix, char **ret_text)
{
    if (prefix->local->options.adopting && local_head_read(prefix->local, &prefix->head) == 0)
        return 0;
    return heads_choose(prefix, ret_text);
}

/* Finds the newest head of a prefix that has one, or the head that was requested. */
static int find_head(struct prefix *prefix, char **ret_text)
{
    int r = prefix_check_history(prefix, ret_text);
    if (r < 0)
        /* another filesystem may be mounted there for a while: the marker is read again */
        prefix->has_marker = false;
    if (r == 0)
        r = local_allow_encodings(prefix->local,
                                  prefix->marker.incompat); /* fetched chunks are kept */
    if (r < 0 || prefix->beginning.is_anew || prefix->head.number)
        return r;
    if (head_choice_is_made(&prefix->options->at)) {
        r = find_chosen(prefix, ret_text);
        return r < 0 ? r : local_allow_encodings(prefix->local, prefix->head.incompat);
    }
    r = heads_newest(prefix, 0, &prefix->head);
    bool may_go_back = prefix->options->read_only || prefix->options->rollback;
    if (may_go_back && (r == -EUCLEAN || r == -EBADMSG))
        r = heads_go_back_from_damaged(prefix, ret_text);
    if (r == 0) /* the head's writer may have announced them since the marker was read */
        r = local_allow_encodings(prefix->local, prefix->head.incompat);
    return r == -ENOENT ? 0 : r;
}

/* If no head is found, this store may still know one. Numbers continue above it, whatever the
 * server lists; and a live mount does not begin anew because of a listing. */
static int settle_floor(struct prefix *prefix, char **ret_text)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    if (prefix->head.number > 0 || !prefix_known_head(prefix, known))
        return 0;
    prefix->beginning.number = max_u64(prefix->beginning.number, known->number);
    if (!prefix->local->options.adopting)
        return 0;
    *ret_text = xasprintf("%s shows no head, but this mount published head %llu there; if it "
                          "was emptied, unmount and mount again to begin anew",
                          prefix->name, (unsigned long long)known->number);
    return -EBUSY;
}

/* Checks whether a writer may continue from the newest head, and takes the prefix. */
static int attach_writer(struct prefix *prefix, prefix_may_fn *may, void *arg, char **ret_text)
{
    int r = may(arg, ret_text);
    if (r == 0)
        r = prefix_check_newest(prefix, ret_text);
    prefix->was_theirs = head_is_theirs(prefix->local, &prefix->head);
    /* Checked before the wait for the lease, which would be useless for a key that may only
     * read. */
    if (r == 0 && prefix->was_theirs && !prefix->options->unfenced)
        r = prefix_probe_exclusive(prefix, ret_text);
    bool is_node = prefix->local->sb.incompat & SUPERBLOCK_INCOMPAT_NODES;
    if (r == 0 && (is_node || !is_as_we_left_it(prefix)))
        r = lease_await(prefix, ret_text);
    return r == 0 && prefix->was_theirs ? take_over(prefix, may, arg, ret_text) : r;
}

static int attach_online(struct prefix *prefix, prefix_may_fn *may, void *arg, char **ret_text)
{
    int r = prefix_look(prefix, true, ret_text);
    if (r == 0)
        r = prefix_check_nodes(prefix, ret_text);
    if (r == 0 && prefix->has_marker)
        r = find_head(prefix, ret_text);
    if (r == 0)
        r = settle_floor(prefix, ret_text);
    prefix->was_theirs = head_is_theirs(prefix->local, &prefix->head);
    if (r == 0 && prefix->has_marker && !prefix->options->read_only)
        r = attach_writer(prefix, may, arg, ret_text);
    prefix->is_attached = r == 0;
    return r;
}

int prefix_attach(struct prefix *prefix, prefix_may_fn *may, void *arg, char **ret_text)
{
    prefix->head = (struct head){0};
    int r = attach_online(prefix, may, arg, ret_text);
    /* For a writer the remote counts as working when the first head was stored: a filesystem may
     * allow reads and refuse writes. */
    if (r == 0 && prefix->options->read_only)
        prefix_works(prefix);
    if (r == 0)
        return 0;
    if (prefix->tier->ops->look_again)
        prefix->tier->ops->look_again(prefix->tier); /* the right filesystem may be mounted later */
    if (r == -ECANCELED && !*ret_text)
        *ret_text = xasprintf("given up while waiting for %s", prefix->name);
    if (*ret_text)
        return r;
    _cleanup_free_ char *newer =
        xasprintf("it was written by a newer version of CairnFS: %s", cause_text());
    const char *what = r == -EPROTONOSUPPORT            ? newer
                       : r != -EUCLEAN && r != -EBADMSG ? strerror(-r)
                       : prefix->has_marker
                           ? "its newest head is damaged; 'cairn ls', 'cairn cp' and a mount with "
                             "-o ro show the one before; with --rollback a mount goes on from there"
                           : "its object 'cairn' is damaged, or it is no CairnFS prefix";
    prefix_error(prefix, r, "%s cannot be used now (%s)", prefix->name, what);
    return 0;
}
