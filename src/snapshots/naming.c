// SPDX-License-Identifier: Apache-2.0
/* Adds, changes and removes names of snapshots. The thread that publishes does this between its
 * rounds, as it does gc: so a head that gets a name is not deleted meanwhile. One request at a
 * time; the requester may disconnect. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "prefix/heads.h"
#include "prefix/named.h"
#include "snapshots/internal.h"

/* Returns `error`, and sets a text for people. */
static int fail(struct naming_state *state, int error, const char *fmt, const char *name)
{
    (void)snprintf(state->text, sizeof state->text, fmt, name);
    return error;
}

/* Publishes the head again, marked as having names, so that earlier versions, whose gc does not
 * know names, refuse the prefix from then on: before the first name exists. */
static int tell_of_names(struct snapshots *snapshots)
{
    struct prefix *prefix = snapshots->prefix;
    if (snapshots->told_names && prefix->head.has_names)
        return 0;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    prefix->head.has_names = true;
    *head = prefix->head;
    head_sign(prefix, head);
    TRY(snapshots->remote.publish(snapshots->remote.arg, head));
    snapshots->told_names = true;
    return 0;
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

static int create(struct snapshots *snapshots, struct named_snapshot *snapshot,
                  struct naming_state *state)
{
    int r = named_create(snapshots->prefix, snapshot);
    if (r == -EEXIST)
        return fail(state, r, "there is a snapshot '%s' already", snapshot->name);
    known_forget_names(snapshots);
    state->head = snapshot->head.number;
    state->published = snapshot->head.published;
    return r;
}

static int give_name(struct snapshots *snapshots, const struct naming *naming,
                     struct naming_state *state)
{
    _cleanup_free_ struct named_snapshot *snapshot = xcalloc(1, sizeof *snapshot);
    if (snapshots->prefix->head.run_count == 0)
        return fail(state, -ENODATA, "nothing is published in %s yet", snapshots->prefix->name);
    TRY(check_room(snapshots->prefix, state));
    TRY(tell_of_names(snapshots));
    memcpy(snapshot->name, naming->name, sizeof snapshot->name);
    snapshot->created = clock_realtime_ns();
    snapshot->head = snapshots->prefix->head;
    return create(snapshots, snapshot, state);
}

static int find(struct prefix *prefix, const char *name, struct named_snapshot *snapshot,
                struct naming_state *state)
{
    int r = named_read(prefix, name, snapshot);
    return r == -ENOENT ? fail(state, r, "there is no snapshot '%s'", name) : r;
}

/* `until`: a text about the consequence while the name exists. */
static int remove_name(struct snapshots *snapshots, const char *name, const char *until,
                       struct naming_state *state)
{
    int r = named_remove(snapshots->prefix, name);
    known_forget_names(snapshots);
    if (r < 0)
        (void)snprintf(state->text, sizeof state->text,
                       "the remote does not delete the name '%s': %s%s", name, strerror(-r), until);
    return r;
}

/* First the snapshot has both names: a crash in between loses neither, and the same request
 * completes the change. */
static int change_name(struct snapshots *snapshots, const struct naming *naming,
                       struct naming_state *state)
{
    _cleanup_free_ struct named_snapshot *snapshot = xmalloc(sizeof *snapshot);
    TRY(find(snapshots->prefix, naming->name, snapshot, state));
    memcpy(snapshot->name, naming->new_name, sizeof snapshot->name);
    TRY(create(snapshots, snapshot, state));
    return remove_name(snapshots, naming->name,
                       "; the snapshot has both names until the same command succeeds", state);
}

/* Removes a name, also a damaged one. */
static int take_name(struct snapshots *snapshots, const struct naming *naming,
                     struct naming_state *state)
{
    _cleanup_free_ struct named_snapshot *snapshot = xmalloc(sizeof *snapshot);
    int r = find(snapshots->prefix, naming->name, snapshot, state);
    if (r < 0 && r != -EUCLEAN && r != -EBADMSG)
        return r;
    return remove_name(snapshots, naming->name, "; the snapshot stays until that succeeds", state);
}

static int carry_out(struct snapshots *snapshots, const struct naming *naming,
                     struct naming_state *state)
{
    TRY(snapshots->remote.check_ours(snapshots->remote.arg));
    switch (naming->kind) {
    case NAMING_CREATE:
        return give_name(snapshots, naming, state);
    case NAMING_RENAME:
        return change_name(snapshots, naming, state);
    default:
        return take_name(snapshots, naming, state);
    }
}

/* Takes the request if it can be carried out: a state that shall be named waits until a head has
 * it. */
static bool take_request(struct snapshots *snapshots, uint64_t published, struct naming *ret)
{
    LOCK_SCOPE(&snapshots->lock);
    *ret = snapshots->naming;
    return snapshots->naming_state.running && (ret->kind != NAMING_CREATE || ret->seq <= published);
}

int snapshots_tick(struct snapshots *snapshots, uint64_t published)
{
    struct naming naming;
    struct naming_state state = {0};
    if (!take_request(snapshots, published, &naming))
        return 0;
    int r = carry_out(snapshots, &naming, &state);
    if (r == 0)
        log_info("remote: snapshot '%s' %s%s in %s", naming.name,
                 naming.kind == NAMING_CREATE   ? "created"
                 : naming.kind == NAMING_DELETE ? "deleted"
                                                : "renamed to ",
                 naming.kind == NAMING_RENAME ? naming.new_name : "", snapshots->prefix->name);
    if (r < 0 && !*state.text)
        (void)fail(&state, r, "the remote failed: %s", strerror(-r));
    state.error = r;
    LOCK_SCOPE(&snapshots->lock);
    state.number = snapshots->naming_state.number;
    snapshots->naming_state = state;
    return r == -ESTALE ? r : 0;
}

/* --- requests --------------------------------------------------------------------------------- */

int snapshots_ask(struct snapshots *snapshots, const struct naming *naming, uint64_t *ret_number)
{
    if (snapshots->prefix->options->read_only)
        return -EROFS;
    if (snapshots->prefix->options->nodes)
        return -EOPNOTSUPP;
    mutex_lock(&snapshots->lock);
    bool is_busy = snapshots->naming_state.running;
    if (!is_busy) {
        snapshots->naming = *naming;
        snapshots->naming_state =
            (struct naming_state){.number = snapshots->naming_state.number + 1, .running = true};
    }
    *ret_number = snapshots->naming_state.number;
    mutex_unlock(&snapshots->lock);
    snapshots->remote.kick(snapshots->remote.arg);
    return is_busy ? -EBUSY : 0;
}

/* The thread that publishes may have ended before it carried out the request. */
void snapshots_look(struct snapshots *snapshots, struct naming_state *ret)
{
    mutex_lock(&snapshots->lock);
    *ret = snapshots->naming_state;
    mutex_unlock(&snapshots->lock);
    if (!ret->running || !snapshots->remote.is_over(snapshots->remote.arg))
        return;
    ret->running = false;
    ret->error = fail(ret, -ESHUTDOWN, "%s: nothing more is published from this mount",
                      snapshots->prefix->name);
}
