// SPDX-License-Identifier: Apache-2.0
/* Opening a store: whether it can do without its remote now, and the messages if it cannot. */
#include "base/cause.h"
#include "remote/internal.h"

/* Explains in one line why a new store cannot begin with the prefix. */
static char *explain_prefix(struct remote *remote, int r)
{
    char cause[CAUSE_MAX] = "";
    remote->prefix.tier->ops->last_error(remote->prefix.tier, cause, sizeof cause);
    _cleanup_free_ char *newer =
        xasprintf("it was written by a newer version of CairnFS (%s)", cause_text());
    return xasprintf("%s cannot be used: %s", remote->prefix.name,
                     r == -ENOENT                     ? "nothing was ever stored there"
                     : r == -EUCLEAN || r == -EBADMSG ? "its object 'cairn' is no CairnFS prefix, "
                                                        "or damaged"
                     : r == -EPROTONOSUPPORT          ? newer
                     : *cause                         ? cause
                                                      : strerror(-r));
}

int remote_open(struct remote *remote, bool is_new, char **ret_text)
{
    if (!is_new) {
        remote_be_brief(remote, true);
        return 0;
    }
    int r = prefix_look(&remote->prefix, false, ret_text);
    if (r == 0)
        r = prefix_check_nodes(&remote->prefix, ret_text);
    if (r == 0 && !remote->prefix.has_marker && remote->options.read_only)
        r = -ENOENT;
    if (r < 0 && !*ret_text)
        *ret_text = explain_prefix(remote, r);
    return r;
}

void remote_give_history(const struct remote *remote, struct superblock *sb)
{
    if (!remote || !remote->prefix.has_marker)
        return;
    memcpy(sb->history, remote->prefix.marker.history, sizeof sb->history);
    sb->key = remote->prefix.marker.key;
}

/* A store without a state of its own cannot do without its remote: it would show an empty
 * filesystem instead of the existing data, and problems of the remote would be noticed too late. */
static int begin_blank_on_remote(struct remote *remote, char **ret_text)
{
    int r = remote->prefix.is_attached ? prefix_prepare(&remote->prefix, ret_text) : 0;
    if (r < 0 && !*ret_text)
        remote_error(remote, r, "%s cannot be used (%s)", remote->prefix.name, strerror(-r));
    if (r == 0 && !remote->prefix.is_attached)
        r = -EIO;
    if (r < 0 && !*ret_text)
        *ret_text = xasprintf("%s", remote->shared.error);
    return r;
}

/* A successor never contacts the remote before it serves: its mount has a state, and must not
 * depend on a server's answer at this moment. The uploader contacts the remote later. */
int remote_join(struct remote *remote, char **ret_text)
{
    if (remote->store->local.options.adopting)
        return 0;
    struct adoption adoption = adoption_of(remote->store);
    int r = prefix_attach(&remote->prefix, adopt_may, &adoption, ret_text);
    /* the mount shows an older state, or none: not the store's state of another head */
    bool looks_back = head_choice_is_made(&remote->options.at);
    if (r < 0 || (!looks_back && !adopt_is_blank(&adoption)))
        return r;
    heads_look_for_later_run(&remote->prefix);
    return begin_blank_on_remote(remote, ret_text);
}

/* A mount can wait for the remote, a reader cannot. */
int remote_join_to_read(struct remote *remote, char **ret_text)
{
    remote->missing = missing_new();
    struct adoption adoption = adoption_of(remote->store);
    int r = prefix_attach(&remote->prefix, adopt_may, &adoption, ret_text);
    if (r == 0)
        heads_look_for_later_run(&remote->prefix);
    if (r < 0 || (remote->prefix.is_attached && remote->prefix.head.number))
        return r;
    *ret_text = remote->prefix.is_attached
                    ? xasprintf("%s: nothing was published there yet", remote->prefix.name)
                    : xasprintf("%s", remote->shared.error);
    return remote->prefix.is_attached ? -ENOENT : -EHOSTDOWN;
}

int remote_fetch_runs(struct store *store, const struct head *head)
{
    struct remote *remote = store->remote;
    struct lost_object lost;
    bool may_ask = remote && (remote->prefix.is_attached || store->local.options.adopting);
    if (may_ask)
        return runs_fetch_head(&remote->prefix, head, &lost);
    int r = runs_verify(&store->local, head);
    room_account_runs(store->commit.room);
    return r;
}

int remote_hold(struct remote *remote, char **ret_text)
{
    int r = remote_claim(remote, ret_text);
    if (r < 0 && !*ret_text) {
        remote_error(remote, r, "%s cannot be held now (%s)", remote->prefix.name,
                     r == -EAGAIN ? "it says one thing, then another" : strerror(-r));
        remote->prefix.is_attached = false;
        r = 0;
    }
    remote_resume(remote);
    return r;
}
