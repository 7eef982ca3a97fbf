// SPDX-License-Identifier: Apache-2.0
/* Snapshots get names, other names, and lose them. The uploader does it, between its rounds, as it
 * does gc: so no head that gets a name goes meanwhile. One at a time; who asks may go away. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "nodes/node.h"
#include "prefix/named.h"
#include "remote/maintenance_internal.h"

/* -errno, and why for people. */
static int fail(struct naming_state *state, int error, const char *fmt, const char *name)
{
    (void)snprintf(state->text, sizeof state->text, fmt, name);
    return error;
}

/* Earlier versions, whose gc knows no names, refuse the newest head from then on: before a name is
 * there that they would not know. */
static int tell_of_names(struct remote *remote)
{
    struct prefix *prefix = &remote->prefix;
    if (remote->maintenance->told_names && prefix->head.has_names)
        return 0;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    prefix->head.has_names = true;
    *head = prefix->head;
    head_sign(prefix, head);
    int r = head_put(prefix, head);
    if (r == -ESTALE)
        remote_fence(remote, head);
    if (r < 0)
        return r;
    remote_head_published(remote, head);
    remote->maintenance->told_names = true;
    return remote_note_head(remote);
}

static int check_room(struct prefix *prefix, struct naming_state *state)
{
    struct named_list list = {0};
    int r = named_list(prefix, &list);
    if (r == 0 && list.count >= NAMED_MAX)
        r = fail(state, -ENOSPC, "%s has 1,000 names already; delete some", prefix->name);
    vector_free(&list);
    return r;
}

static int create(struct remote *remote, struct named_snapshot *snapshot,
                  struct naming_state *state)
{
    int r = named_create(&remote->prefix, snapshot);
    if (r == -EEXIST)
        return fail(state, r, "there is a snapshot '%s' already", snapshot->name);
    history_forget_names(&remote->maintenance->history);
    state->head = snapshot->head.number;
    state->published = snapshot->head.published;
    return r;
}

static int give_name(struct remote *remote, const struct naming *naming, struct naming_state *state)
{
    _cleanup_free_ struct named_snapshot *snapshot = xcalloc(1, sizeof *snapshot);
    if (remote->prefix.head.run_count == 0)
        return fail(state, -ENODATA, "nothing is published in %s yet", remote->prefix.name);
    TRY(check_room(&remote->prefix, state));
    TRY(tell_of_names(remote));
    memcpy(snapshot->name, naming->name, sizeof snapshot->name);
    snapshot->created = clock_realtime_ns();
    snapshot->head = remote->prefix.head;
    return create(remote, snapshot, state);
}

static int find(struct prefix *prefix, const char *name, struct named_snapshot *snapshot,
                struct naming_state *state)
{
    int r = named_read(prefix, name, snapshot);
    return r == -ENOENT ? fail(state, r, "there is no snapshot '%s'", name) : r;
}

/* First it has both names: a crash in between loses neither, and the same request ends it. */
static int change_name(struct remote *remote, const struct naming *naming,
                       struct naming_state *state)
{
    _cleanup_free_ struct named_snapshot *snapshot = xmalloc(sizeof *snapshot);
    TRY(find(&remote->prefix, naming->name, snapshot, state));
    memcpy(snapshot->name, naming->new_name, sizeof snapshot->name);
    TRY(create(remote, snapshot, state));
    return named_remove(&remote->prefix, naming->name);
}

/* Also of a damaged one. */
static int take_name(struct remote *remote, const struct naming *naming, struct naming_state *state)
{
    _cleanup_free_ struct named_snapshot *snapshot = xmalloc(sizeof *snapshot);
    int r = find(&remote->prefix, naming->name, snapshot, state);
    if (r < 0 && r != -EUCLEAN && r != -EBADMSG)
        return r;
    r = named_remove(&remote->prefix, naming->name);
    history_forget_names(&remote->maintenance->history);
    return r;
}

static int carry_out(struct remote *remote, const struct naming *naming, struct naming_state *state)
{
    TRY(gc_check_ours(remote));
    switch (naming->kind) {
    case NAMING_CREATE:
        return give_name(remote, naming, state);
    case NAMING_RENAME:
        return change_name(remote, naming, state);
    default:
        return take_name(remote, naming, state);
    }
}

/* A state that is to have a name waits for its head. */
static bool take_request(struct remote *remote, struct naming *ret)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    uint64_t published = horizon_published(remote->store->commit.horizon);
    LOCK_SCOPE(&maintenance->lock);
    *ret = maintenance->naming;
    return maintenance->naming_state.running &&
           (ret->kind != NAMING_CREATE || ret->seq <= published);
}

int naming_tick(struct remote *remote)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    struct naming naming;
    struct naming_state state = {0};
    if (!take_request(remote, &naming))
        return 0;
    int r = carry_out(remote, &naming, &state);
    if (r == 0)
        log_info("remote: snapshot '%s' %s%s in %s", naming.name,
                 naming.kind == NAMING_CREATE   ? "created"
                 : naming.kind == NAMING_DELETE ? "deleted"
                                                : "renamed to ",
                 naming.kind == NAMING_RENAME ? naming.new_name : "", remote->prefix.name);
    if (r < 0 && !*state.text)
        (void)fail(&state, r, "the remote failed: %s", strerror(-r));
    state.error = r;
    LOCK_SCOPE(&maintenance->lock);
    state.number = maintenance->naming_state.number;
    maintenance->naming_state = state;
    return r == -ESTALE ? r : 0;
}

/* --- requests --------------------------------------------------------------------------------- */

int remote_naming_start(struct remote *remote, const struct naming *naming, uint64_t *ret_number)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    if (remote->options.read_only)
        return -EROFS;
    if (remote->store->node)
        return -EOPNOTSUPP;
    mutex_lock(&maintenance->lock);
    bool is_busy = maintenance->naming_state.running;
    if (!is_busy) {
        maintenance->naming = *naming;
        maintenance->naming_state =
            (struct naming_state){.number = maintenance->naming_state.number + 1, .running = true};
    }
    *ret_number = maintenance->naming_state.number;
    mutex_unlock(&maintenance->lock);
    LOCK_SCOPE(&remote->shared.lock);
    remote_kick_locked(remote);
    return is_busy ? -EBUSY : 0;
}

/* The uploader may have ended before it got to it. */
void remote_naming_look(struct remote *remote, struct naming_state *ret)
{
    mutex_lock(&remote->maintenance->lock);
    *ret = remote->maintenance->naming_state;
    mutex_unlock(&remote->maintenance->lock);
    LOCK_SCOPE(&remote->shared.lock);
    if (!ret->running || !(remote->shared.fenced || remote->shared.stopping))
        return;
    ret->running = false;
    ret->error =
        fail(ret, -ESHUTDOWN, "%s: nothing more is published from this mount", remote->prefix.name);
}
