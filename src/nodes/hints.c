// SPDX-License-Identifier: Apache-2.0
#include "nodes/hints.h"

#include "format/hint.h"

static void note_numbers(struct hint_list *hints, const struct told *told, const struct record *rec)
{
    size_t at = 0;
    uint64_t number;
    while (hint_next(rec->value, rec->value_len, &at, &number))
        vector_add(
            hints,
            (struct hint){.teller = told->epoch, .lo = told->lo, .hi = told->hi, .number = number});
}

void hints_note(struct hint_list *hints, const struct told *told)
{
    struct record rec;
    size_t at = 0;
    if (!told->has_hints)
        return;
    _cleanup_free_ struct feed *feed = xmalloc(sizeof *feed);
    check(feed_decode(told->bytes, told->len, feed) == 0); /* as when it was read */
    while (feed_next(feed, &at, &rec))
        if (record_is_hint(&rec))
            note_numbers(hints, told, &rec);
}

void hints_forget(struct hint_list *hints, uint64_t teller, uint64_t round)
{
    size_t kept = 0;
    for (size_t i = 0; i < hints->count; i++)
        if (hints->at[i].teller != teller || hints->at[i].lo > round)
            hints->at[kept++] = hints->at[i];
    hints->count = kept;
}
