// SPDX-License-Identifier: Apache-2.0
/* Reads the content of the states of cairn history, one after the other. */
#include "cli/history_internal.h"
#include "cli/interrupt.h"
#include "cli/source.h"
#include "daemon/remote_address.h"

/* Without a path so many states are compared at most, and no more than have so many files and
 * chunks together: the files of each are looked at, and of the oldest all rows are read. That takes
 * some seconds. */
#define COMPARED_MAX 50u
#define COMPARED_ROWS_MAX 2000000u

/* On an error state->trouble says why. */
static int look_at_state(struct past *past, struct past_path *path, struct state *state)
{
    TRY(past_show(past, state->last->number, &state->trouble));
    int r = past_path_look(path, &state->sum);
    if (r < 0)
        state->trouble = xstrdup(source_trouble(r));
    return r;
}

/* --- a path ----------------------------------------------------------------------------------- */

static bool is_news(const struct past_path_sum *sum, const struct past_path_sum *before)
{
    return sum->exists != before->exists || sum->is_directory != before->is_directory ||
           sum->made || sum->changed || sum->gone;
}

void history_look_at_path(struct history *h, struct states *states)
{
    struct past *past = offline_past(h->offline);
    struct past_path *path = past_path_new(past, h->path);
    const struct past_path_sum none = {0}, *before = &none;
    for (size_t i = 0; i < states->count && !interrupted(); i++) {
        struct state *state = &states->at[i];
        if (!state->trouble)
            (void)look_at_state(past, path, state);
        state->is_shown = state->trouble || is_news(&state->sum, before);
        if (!state->trouble)
            before = &state->sum;
    }
    past_path_free(path);
}

/* --- the newest states ------------------------------------------------------------------------ */

struct comparison {
    struct past *past;
    struct past_path *all;
    struct past_only *only;
    VECTOR(struct state *) added; /* to `only` */
};

/* How many of them, the oldest, are left out. */
static size_t count_left_out(const struct states *states)
{
    uint64_t rows = 0;
    size_t i = states->count, first = i;
    while (i > 0 && states->count - i < COMPARED_MAX) {
        const struct past_head *head = states->at[--i].first;
        rows += head->files;
        if (rows + head->chunks > COMPARED_ROWS_MAX)
            break;
        first = i;
    }
    bool is_alone = first > 0 && states->count - first == 1; /* nothing to compare it with */
    return is_alone ? states->count : first;
}

/* An error is one of all states, and was told. */
static int compare_state(struct history *h, struct comparison *c, struct state *state)
{
    int r = state->trouble ? 0 : look_at_state(c->past, c->all, state);
    if (r < 0 && !reader_is_damage(r)) {
        complain(h->command->name, "%s: states cannot be compared: %s", h->source, state->trouble);
        free(state->trouble);
        state->trouble = NULL;
        return r;
    }
    if (!state->trouble && past_only_add(c->only, state->last->number) == 0)
        vector_add(&c->added, state);
    return 0;
}

/* Fills in the bytes that one state alone needs, unless a daemon that serves the store has reported
 * them. Not for the oldest compared state: older states may need its packs, too. */
static void note_only(const struct history *h, const struct comparison *c)
{
    bool is_remote = remote_address_is(h->source);
    if (!c->added.count || (!is_remote && (h->kept || past_only_add_now(c->only) < 0)))
        return;
    _cleanup_free_ uint64_t *sums = xcalloc(c->added.count + 1, sizeof *sums);
    past_only_sums(c->only, sums);
    for (size_t i = 0; i < c->added.count; i++) {
        c->added.at[i]->only = sums[i];
        c->added.at[i]->has_only = i > 0 || (!h->not_compared && !h->has_older);
    }
}

void history_compare_newest(struct history *h, struct states *states)
{
    struct comparison c = {.past = offline_past(h->offline)};
    size_t i = h->not_compared = count_left_out(states);
    bool has_before = false;
    int r = 0;
    if (h->has_older && states->count == 1) /* nothing is known of the one before */
        return;
    c.all = past_path_new(c.past, "/");
    c.only = past_only_new(c.past);
    for (; i < states->count && r == 0 && !interrupted(); i++) {
        struct state *state = &states->at[i];
        r = compare_state(h, &c, state);
        state->is_compared = has_before && r == 0 && !state->trouble;
        has_before = has_before || (r == 0 && !state->trouble);
    }
    if (r == 0)
        note_only(h, &c);
    vector_free(&c.added);
    past_only_free(c.only);
    past_path_free(c.all);
}
