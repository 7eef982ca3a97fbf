// SPDX-License-Identifier: Apache-2.0
#include "nodes/fold.h"

/* The operations of one stay. */
struct source {
    struct stay *stay;
    size_t place, count; /* place: index of the feed in the stay */
    bool was_kept;       /* its bytes were in memory before */
    bool is_open, has_record;
    struct feed feed;
    size_t at;
    struct record rec; /* points into the feed's bytes */
};

static struct told *feed_of(const struct source *source)
{
    return &source->stay->feeds.at[source->place];
}

static int open_feed(struct source *source, struct stays *stays)
{
    struct told *told = feed_of(source);
    busy_say(stays->busy);
    source->was_kept = told->bytes != NULL;
    TRY(told_open(stays->prefix, told, &source->feed));
    stays->bytes += source->was_kept ? 0 : told->len;
    source->is_open = true;
    source->at = 0;
    return 0;
}

static void close_feed(struct source *source, struct stays *stays)
{
    struct told *told = feed_of(source);
    if (!source->was_kept) {
        stays->bytes -= told->len;
        told_forget(told);
    }
    source->is_open = false;
    source->place++;
}

/* Moves to the next record; has_record: there is one. */
static int go_on(struct source *source, struct stays *stays)
{
    source->has_record = false;
    while (source->place < source->count) {
        TRY(source->is_open ? 0 : open_feed(source, stays));
        source->has_record = feed_next(&source->feed, &source->at, &source->rec);
        if (source->has_record)
            return 0;
        close_feed(source, stays);
    }
    return 0;
}

static bool is_before(const struct source *a, const struct source *b)
{
    if (a->rec.time != b->rec.time)
        return a->rec.time < b->rec.time;
    return a->stay->epoch < b->stay->epoch;
}

static struct source *first_of(struct source *sources, size_t count)
{
    struct source *first = NULL;
    for (size_t i = 0; i < count; i++)
        if (sources[i].has_record && (!first || is_before(&sources[i], first)))
            first = &sources[i];
    return first;
}

static int fold(struct source *sources, size_t count, struct stays *stays,
                int (*fn)(uint64_t epoch, const struct record *rec, void *arg), void *arg)
{
    struct source *first;
    for (size_t i = 0; i < count; i++)
        TRY(go_on(&sources[i], stays));
    while ((first = first_of(sources, count))) {
        TRY(fn(first->stay->epoch, &first->rec, arg));
        TRY(go_on(first, stays));
    }
    return 0;
}

int fold_feeds(struct stays *stays, uint64_t round,
               int (*fn)(uint64_t epoch, const struct record *rec, void *arg), void *arg)
{
    size_t count = stays->list.count;
    struct source *sources = xcalloc(count + 1, sizeof *sources);
    for (size_t i = 0; i < count; i++) {
        sources[i].stay = &stays->list.at[i];
        sources[i].count = stay_feeds_up_to(sources[i].stay, round);
    }
    int r = fold(sources, count, stays, fn, arg);
    for (size_t i = 0; i < count; i++)
        if (sources[i].is_open)
            close_feed(&sources[i], stays);
    free(sources);
    return r;
}
