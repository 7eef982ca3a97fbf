// SPDX-License-Identifier: Apache-2.0
/* Fetches feeds that a head of several nodes names into STORE/feeds, in parallel: there may be one
 * a node. */
#include "base/cause.h"
#include "base/pool.h"
#include "commit/run_lists.h"
#include "prefix/runs.h"

#define THREADS 8u

struct feed_fetch {
    struct prefix *prefix;
    const struct head *head;
    uint32_t writer; /* number of the writer in the head */
    int result;
};

static int keep_feed(const void *bytes, size_t len, void *arg)
{
    const struct feed_fetch *fetch = arg;
    _cleanup_free_ struct feed *feed = xmalloc(sizeof *feed);
    TRY(feed_decode_named(fetch->head, fetch->writer, bytes, len, feed));
    atomic_fetch_add(&fetch->prefix->fetched_total, len);
    return feed_keep(fetch->prefix->local, &fetch->head->writers[fetch->writer], bytes, len);
}

static void fetch_feed(void *arg)
{
    struct feed_fetch *fetch = arg;
    const struct head_writer *writer = &fetch->head->writers[fetch->writer];
    char object[FEED_NAME_LEN];
    feed_name(writer->feed_round, writer->epoch, object);
    fetch->result = prefix_read_object(fetch->prefix, object, FEED_LEN_MAX, keep_feed, fetch);
}

static bool is_kept(const struct prefix *prefix, const struct head *head, uint32_t i)
{
    _cleanup_free_ struct feed *feed = xmalloc(sizeof *feed);
    return feed_look(prefix->local, head, i, feed) == 0;
}

static struct lost_object as_lost(const struct head *head, uint32_t i)
{
    const struct head_writer *writer = &head->writers[i];
    return (struct lost_object){.kind = LOST_FEED,
                                .node = writer->node,
                                .number = writer->feed_round,
                                .epoch = writer->epoch};
}

static void explain_lost_feed(const struct head *head, uint32_t i, int error)
{
    char object[FEED_NAME_LEN];
    feed_name(head->writers[i].feed_round, head->writers[i].epoch, object);
    cause_note("%s is %s", object, error == -ENOENT ? "missing" : "damaged");
}

int feed_fetch(struct prefix *prefix, const struct head *head, uint32_t writer)
{
    struct feed_fetch fetch = {.prefix = prefix, .head = head, .writer = writer};
    if (!is_kept(prefix, head, writer))
        fetch_feed(&fetch);
    return fetch.result;
}

static int begin_feeds(struct prefix *prefix, const struct head *head, struct feed_fetch *fetches,
                       struct pool **pool)
{
    int r = 0;
    for (uint32_t i = 0; i < head->writer_count && r == 0; i++) {
        fetches[i] = (struct feed_fetch){.prefix = prefix, .head = head, .writer = i};
        if (!head_reads_writer(head, i) || is_kept(prefix, head, i))
            continue;
        if (!*pool)
            r = pool_new("cairn-fetch", THREADS, 64, NULL, NULL, pool);
        if (r == 0)
            pool_submit(*pool, fetch_feed, &fetches[i]);
    }
    return r;
}

/* An error of the disk or of the connection takes precedence over a lost feed. */
int feeds_fetch(struct prefix *prefix, const struct head *head, struct lost_object *ret_lost)
{
    _cleanup_free_ struct feed_fetch *fetches = xcalloc(HEAD_WRITERS_MAX, sizeof *fetches);
    struct pool *pool = NULL;
    int lost = 0, r = begin_feeds(prefix, head, fetches, &pool);
    pool_free(pool);
    *ret_lost = (struct lost_object){0};
    for (uint32_t i = 0; i < head->writer_count; i++) {
        int one = fetches[i].result;
        if (prefix_object_is_lost(one) && lost == 0) {
            lost = one;
            *ret_lost = as_lost(head, i);
            explain_lost_feed(head, i, one);
        } else if (one < 0 && !prefix_object_is_lost(one) && r == 0) {
            r = one;
        }
    }
    if (r < 0)
        *ret_lost = (struct lost_object){0};
    return r < 0 ? r : lost;
}
