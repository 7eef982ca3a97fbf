// SPDX-License-Identifier: Apache-2.0
/* Earlier states of a remote that stay, from the oldest on: packs that no state before needed are
 * verified, and of each damaged one it is told which states it hurts. */
#include <stdio.h>

#include "base/text.h"
#include "prefix/heads.h"
#include "prefix/prefix.h"
#include "snapshots/policy.h"
#include "store/check_remote_internal.h"
#include "store/past_internal.h"

#define STATES_MAX 1000u
#define NAMED_MAX 5u /* states that a line names */

struct earlier_state {
    const struct past_head *head;
    const char *name; /* of a snapshot; NULL: none */
};

struct hurt_pack {
    uint64_t pack;
    char *what; /* NULL: the newest state needs it, too, and it was told */
    VECTOR(size_t) states;
};

struct earlier_check {
    struct remote_check *all;
    struct past *past;
    struct past_heads heads;
    struct past_names names;
    VECTOR(struct earlier_state) states; /* ascending, without the newest */
    VECTOR(struct hurt_pack) hurt;
};

/* --- which there are -------------------------------------------------------------------------- */

static bool is_same_state(const struct past_head *a, const struct past_head *b)
{
    return memcmp(a->state, b->state, sizeof a->state) == 0;
}

static const char *find_name(const struct earlier_check *e, const struct past_head *head)
{
    for (size_t i = 0; i < e->names.count; i++)
        if (e->names.at[i].error == 0 && e->names.at[i].head.number == head->number)
            return e->names.at[i].name;
    return NULL;
}

/* As gc chooses them. */
static void choose_by_policy(struct earlier_check *e, bool *stays)
{
    VECTOR(struct keep_state) states = {0};
    for (size_t i = 0; i < e->heads.count; i++)
        vector_add(&states, (struct keep_state){.cut = e->heads.at[i].cut,
                                                .published = e->heads.at[i].published});
    keep_choose(past_keep(e->past), states.at, states.count);
    for (size_t i = 0; i < states.count; i++)
        stays[i] = states.at[i].stays;
    vector_free(&states);
}

/* States that stay for longer than the grace. Others may be without what scrub has found damaged
 * and stored elsewhere, and go soon. Damaged heads are told already. */
static void choose_states(struct earlier_check *e)
{
    _cleanup_free_ bool *stays = xcalloc(e->heads.count + 1, sizeof *stays);
    choose_by_policy(e, stays);
    for (size_t i = 0; i < e->heads.count; i++) {
        const struct past_head *head = &e->heads.at[i], *newest = &e->heads.at[e->heads.count - 1];
        const char *name = find_name(e, head);
        if (head->error == 0 && (stays[i] || name) && !is_same_state(head, newest))
            vector_add(&e->states, (struct earlier_state){head, name});
    }
}

static void report_names(struct earlier_check *e)
{
    for (size_t i = 0; i < e->names.count; i++) {
        const struct past_name *name = &e->names.at[i];
        _cleanup_free_ char *object = xasprintf("snapshots/%s", name->name);
        if (prefix_object_is_lost(name->error))
            remote_check_report(object,
                                "is damaged: what it names is not known, so gc deletes "
                                "no head",
                                e->all);
    }
}

static int list_states(struct earlier_check *e)
{
    bool has_older;
    TRY(past_list(e->past, STATES_MAX, &e->heads, &has_older));
    TRY(past_list_names(e->past, &e->names));
    choose_states(e);
    report_names(e);
    if (has_older)
        remote_check_note("states before the newest 1000 heads are not looked at", e->all);
    return 0;
}

/* --- one state -------------------------------------------------------------------------------- */

static void add_new_damage(struct earlier_check *e)
{
    for (size_t i = 0; i < e->all->packs.count; i++) {
        const struct pack_check *check = &e->all->packs.at[i];
        char *what = remote_check_describe(check);
        if (what)
            vector_add(&e->hurt, (struct hurt_pack){.pack = check->pack.pack, .what = what});
    }
}

/* A later state than the one with which a pack was found may need it, too. */
static int note_hurt(struct earlier_check *e, size_t state)
{
    for (size_t i = 0; i < e->hurt.count; i++) {
        struct view_remote_pack pack;
        int r = view_remote_pack(past_view(e->past), e->hurt.at[i].pack, &pack);
        if (r < 0 && r != -ENOENT)
            return r;
        if (r == 0 && pack.live_count > 0 && !pack.unreferenced && !pack.gone)
            vector_add(&e->hurt.at[i].states, state);
    }
    return 0;
}

/* One that lost a run, or that gc took, cannot be shown: the first was told. */
static int check_state(struct earlier_check *e, size_t i)
{
    struct remote_check *c = e->all;
    _cleanup_free_ char *text = NULL;
    if (c->options->is_interrupted())
        return -EINTR;
    int r = past_show(e->past, e->states.at[i].head->number, &text);
    if (r < 0)
        return prefix_object_is_lost(r) ? 0 : r;
    HASH_FREE_ALL(c->found.bad); /* a chunk may have another place in this state */
    c->store = past_store(e->past);
    c->counts.earlier++;
    TRY(remote_check_packs(c));
    add_new_damage(e);
    return note_hurt(e, i);
}

/* --- what is told ----------------------------------------------------------------------------- */

static char *describe_state(const struct earlier_state *state)
{
    char when[TEXT_TIME_LEN];
    text_time(state->head->published, when);
    return state->name
               ? xasprintf("the snapshot %s", state->name)
               : xasprintf("head %llu of %s", (unsigned long long)state->head->number, when);
}

/* Those that are still there; snapshots with a name first. NULL: none. */
static char *describe_states(struct earlier_check *e, const struct hurt_pack *hurt)
{
    char *all = NULL;
    size_t named = 0, more = 0;
    for (size_t i = 0; i < 2 * hurt->states.count; i++) {
        const struct earlier_state *state = &e->states.at[hurt->states.at[i % hurt->states.count]];
        bool is_first_round = i < hurt->states.count;
        if (is_first_round != (state->name != NULL) || !past_has(e->past, state->head->number))
            continue;
        if (named++ >= NAMED_MAX) {
            more++;
            continue;
        }
        _cleanup_free_ char *before = all, *one = describe_state(state);
        all = before ? xasprintf("%s, %s", before, one) : xstrdup(one);
    }
    _cleanup_free_ char *listed = all;
    return more ? xasprintf("%s and %zu more", listed, more) : listed ? xstrdup(listed) : NULL;
}

static void report_hurt(struct earlier_check *e, const struct hurt_pack *hurt)
{
    char object[32];
    _cleanup_free_ char *states = describe_states(e, hurt);
    if (!states)
        return;
    pack_object_name(hurt->pack, object);
    _cleanup_free_ char *line = hurt->what
                                    ? xasprintf("%s: of %s", hurt->what, states)
                                    : xasprintf("%s hurts earlier states, too: %s", object, states);
    if (hurt->what)
        remote_check_report(object, line, e->all);
    else
        remote_check_note(line, e->all);
}

/* --- all of them ------------------------------------------------------------------------------ */

static void earlier_done(struct earlier_check *e)
{
    for (size_t i = 0; i < e->hurt.count; i++) {
        free(e->hurt.at[i].what);
        vector_free(&e->hurt.at[i].states);
    }
    vector_free(&e->hurt);
    vector_free(&e->states);
    vector_free(&e->names);
    vector_free(&e->heads);
}

static void take_damage_of_newest(struct earlier_check *e)
{
    add_new_damage(e);
    for (size_t i = 0; i < e->hurt.count; i++) {
        free(e->hurt.at[i].what);
        e->hurt.at[i].what = NULL;
    }
}

int remote_check_earlier(struct remote_check *check, struct past *past)
{
    _cleanup_(earlier_done) struct earlier_check e = {.all = check, .past = past};
    take_damage_of_newest(&e);
    int r = list_states(&e);
    for (size_t i = 0; i < e.states.count && r == 0; i++)
        r = check_state(&e, i);
    for (size_t i = 0; i < e.hurt.count; i++)
        report_hurt(&e, &e.hurt.at[i]);
    return r;
}
