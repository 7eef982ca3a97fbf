// SPDX-License-Identifier: Apache-2.0
/* Earlier states of a remote that stay, from the oldest on: packs that no state before needed are
 * verified, and each damaged one is reported with the states that need it. */
#include <stdio.h>

#include "base/text.h"
#include "prefix/check.h"
#include "prefix/heads.h"
#include "prefix/prefix.h"
#include "snapshots/policy.h"
#include "store/check_remote_internal.h"
#include "store/past_internal.h"

#define HEADS_MAX 50000u

struct earlier_state {
    uint64_t number; /* of its head */
    int64_t published;
    const char *name; /* of a snapshot; NULL: none */
    bool is_told;     /* objects that its head lacks were reported */
};

struct hurt_pack {
    uint64_t pack;
    char *what;                /* NULL: the newest state needs it, too, and it was reported */
    struct chunk_names chunks; /* damaged ones, ascending; none: the pack as a whole is damaged */
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

/* --- the list of states ----------------------------------------------------------------------- */

static bool is_same_state(const struct past_head *a, const struct past_head *b)
{
    return memcmp(a->state, b->state, sizeof a->state) == 0;
}

/* Removes heads that were given up: they may lack objects, which was known then. */
static void leave_out_given_up(struct earlier_check *e)
{
    size_t kept = 0;
    for (size_t i = 0; i < e->heads.count; i++)
        if (head_after_given_up(past_newest(e->past), e->heads.at[i].number) ==
            e->heads.at[i].number)
            e->heads.at[kept++] = e->heads.at[i];
    e->heads.count = kept;
}

/* Chooses as gc does. */
static void choose_by_policy(struct earlier_check *e, bool *stays)
{
    VECTOR(struct keep_state) states = {0};
    for (size_t i = 0; i < e->heads.count; i++)
        vector_add(&states, (struct keep_state){.cut = e->heads.at[i].cut,
                                                .published = e->heads.at[i].published});
    keep_choose(&past_newest(e->past)->keep, states.at, states.count);
    for (size_t i = 0; i < states.count; i++)
        stays[i] = states.at[i].stays;
    vector_free(&states);
}

/* Adds a state that stays, unless it is the newest one. A state with several names gets the
 * first. */
static void add_state(struct earlier_check *e, const struct past_head *head, const char *name,
                      bool is_told)
{
    size_t count = e->heads.count;
    if (head->error < 0 || (count > 0 && is_same_state(head, &e->heads.at[count - 1])))
        return;
    for (size_t i = 0; i < e->states.count; i++)
        if (e->states.at[i].number == head->number)
            return;
    vector_add(&e->states, (struct earlier_state){head->number, head->published, name, is_told});
}

/* Chooses the states that stay longer than the grace. Other states may lack chunks that scrub has
 * found damaged and stored elsewhere, and are deleted soon. An object with a name contains a copy
 * of its head: its state stays, whatever happens to the head. */
static void choose_states(struct earlier_check *e)
{
    _cleanup_free_ bool *stays = xcalloc(e->heads.count + 1, sizeof *stays);
    for (size_t i = 0; i < e->names.count; i++)
        if (e->names.at[i].error == 0)
            add_state(e, &e->names.at[i].head, e->names.at[i].name, false);
    choose_by_policy(e, stays);
    for (size_t i = 0; i < e->heads.count; i++)
        if (stays[i])
            add_state(e, &e->heads.at[i], NULL, e->heads.count - i <= PREFIX_CHECK_HEADS);
    vector_sort(&e->states, compare_u64);
}

static void report_names(struct earlier_check *e)
{
    for (size_t i = 0; i < e->names.count; i++) {
        const struct past_name *name = &e->names.at[i];
        _cleanup_free_ char *object = xasprintf("snapshots/%s", name->name);
        if (prefix_object_is_lost(name->error))
            remote_check_report(object,
                                "is damaged, so gc deletes no head; restore the object, or delete "
                                "the name with 'cairn snapshot delete'",
                                e->all);
    }
}

static int list_states(struct earlier_check *e)
{
    bool has_older = false;
    TRY(past_list_names(e->past, &e->names));
    report_names(e);
    if (e->names.count == 0 && !head_keep_is_set(&past_newest(e->past)->keep))
        return 0;
    TRY(past_list(e->past, HEADS_MAX, &e->heads, &has_older));
    leave_out_given_up(e);
    choose_states(e);
    if (has_older)
        remote_check_note("of states before the newest 50000 heads only those with a name are "
                          "looked at",
                          e->all);
    return 0;
}

/* --- one state -------------------------------------------------------------------------------- */

static int compare_chunks(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct chunk_name));
}

static void add_damage(struct earlier_check *e, const struct pack_check *check)
{
    struct hurt_pack hurt = {.pack = check->pack.pack, .what = remote_check_describe(check)};
    if (!hurt.what)
        return;
    struct bad_chunk *bad, *next;
    HASH_ITER(hh, e->all->found.bad, bad, next)
    if (check->index_error == 0 && bad->pack == hurt.pack && !bad->is_through_base)
        vector_add(&hurt.chunks, bad->name);
    vector_sort(&hurt.chunks, compare_chunks);
    vector_add(&e->hurt, hurt);
}

static void add_new_damage(struct earlier_check *e)
{
    for (size_t i = 0; i < e->all->packs.count; i++)
        add_damage(e, &e->all->packs.at[i]);
}

/* Determines whether the state that is shown needs the damaged chunks. */
static int needs_hurt(const struct earlier_check *e, const struct hurt_pack *hurt, bool *ret)
{
    _cleanup_vector_ struct reader_entries entries = {0};
    struct view_remote_pack pack;
    *ret = false;
    int r = view_remote_pack(past_view(e->past), hurt->pack, &pack);
    if (r < 0 || pack.live_count == 0 || pack.unreferenced || pack.gone)
        return r == -ENOENT ? 0 : r;
    TRY(reader_pack_chunks(e->all->store, hurt->pack, &entries));
    *ret = hurt->chunks.count == 0;
    for (size_t i = 0; i < entries.count && !*ret; i++)
        *ret = vector_search(&hurt->chunks, &entries.at[i].name, compare_chunks);
    return 0;
}

/* A later state than the one with which damage was found may need the pack, too. */
static int note_hurt(struct earlier_check *e, size_t state)
{
    for (size_t i = 0; i < e->hurt.count; i++) {
        bool is_needed;
        TRY(needs_hurt(e, &e->hurt.at[i], &is_needed));
        if (is_needed)
            vector_add(&e->hurt.at[i].states, state);
    }
    return 0;
}

/* The head, or the name, may be deleted meanwhile. */
static bool is_there(struct earlier_check *e, const struct earlier_state *state)
{
    return past_has(e->past, state->number, state->name);
}

static void report_unreadable(struct earlier_check *e, const struct earlier_state *state,
                              const char *text)
{
    char object[OBJECT_NAME_LEN];
    object_name("heads", state->number, object);
    _cleanup_free_ char *name = state->name ? xasprintf("snapshots/%s", state->name) : NULL;
    _cleanup_free_ char *what = xasprintf("its state cannot be read: %s", text);
    if (!state->is_told && is_there(e, state))
        remote_check_report(name ? name : object, what, e->all);
}

static int check_state(struct earlier_check *e, size_t i)
{
    struct remote_check *c = e->all;
    const struct earlier_state *state = &e->states.at[i];
    _cleanup_free_ char *text = NULL;
    if (c->options->is_interrupted())
        return -EINTR;
    int r = past_show_named(e->past, state->number, state->name, &text);
    if (prefix_object_is_lost(r))
        report_unreadable(e, state, text);
    if (r < 0)
        return prefix_object_is_lost(r) ? 0 : r;
    HASH_FREE_ALL(c->found.bad); /* a chunk may have another place in this state */
    c->store = past_store(e->past);
    c->counts.earlier++;
    TRY(remote_check_packs(c));
    add_new_damage(e);
    return note_hurt(e, i);
}

/* --- reports ---------------------------------------------------------------------------------- */

/* Describes the states that still exist; snapshots with a name first. NULL: none. */
static char *describe_states(struct earlier_check *e, const struct hurt_pack *hurt)
{
    struct text_list list = {0};
    for (size_t i = 0; i < 2 * hurt->states.count; i++) {
        const struct earlier_state *state = &e->states.at[hurt->states.at[i % hurt->states.count]];
        bool is_first_round = i < hurt->states.count;
        if (is_first_round != (state->name != NULL) || !is_there(e, state))
            continue;
        _cleanup_free_ char *one = past_describe(state->number, state->published, state->name);
        text_list_add(&list, one);
    }
    return text_list_take(&list);
}

static void report_hurt(struct earlier_check *e, const struct hurt_pack *hurt)
{
    char object[32];
    _cleanup_free_ char *states = describe_states(e, hurt);
    if (!states)
        return;
    pack_object_name(hurt->pack, object);
    _cleanup_free_ char *line = hurt->what
                                    ? xasprintf("%s; this hurts %s", hurt->what, states)
                                    : xasprintf("%s hurts earlier states, too: %s", object, states);
    if (hurt->what)
        remote_check_report(object, line, e->all);
    else
        remote_check_note(line, e->all);
}

/* --- all states ------------------------------------------------------------------------------- */

static void earlier_done(struct earlier_check *e)
{
    for (size_t i = 0; i < e->hurt.count; i++) {
        free(e->hurt.at[i].what);
        vector_free(&e->hurt.at[i].chunks);
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
