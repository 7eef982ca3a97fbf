// SPDX-License-Identifier: Apache-2.0
/* Feeds of this node. The content of the next one is stored in STORE/feed before the head that
 * belongs to it is published: so after a crash a daemon has the operations, though its journal
 * begins with that head. STORE/feed is a feed without rounds: from, to, and the records between. */
#include <stdio.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "commit/feed_log.h"
#include "commit/history.h"
#include "commit/journal.h"
#include "nodes/merger.h"
#include "nodes/node_internal.h"
#include "prefix/heads.h"
#include "view/remote.h"

#define FEEDS "feeds"
#define FINISH_NS (5ll * SECOND_NS)
#define LATE_NS (3ll * SECOND_NS)
#define FIRST_TRIES 10
#define BITS_MAX 5u /* a cut is made every minute at the latest */

void feeder_init(struct feeder *feeder)
{
    mutex_init(&feeder->lock, LOCK_WAITERS);
    cond_init(&feeder->changed);
}

void feeder_done(struct feeder *feeder)
{
    vector_free(&feeder->records);
    (void)pthread_cond_destroy(&feeder->changed);
    mutex_done(&feeder->lock);
}

/* No more feeds can be put: the union stays at this node's last round, until a person decides. */
static int end_feeds(struct node *node, const char *why)
{
    prefix_error(&node->common, 0, "%s tells other nodes nothing more: %s", node->local->path, why);
    node->feeder.is_over = true;
    return -EUCLEAN;
}

/* --- STORE/feed ------------------------------------------------------------------------------- */

static char *kept_path(const struct node *node)
{
    return xasprintf("%s/feed", node->local->path);
}

static void describe_feed(const struct node *node, uint64_t to, struct feed *ret)
{
    const struct feeder *feeder = &node->feeder;
    *ret = (struct feed){.epoch = node->file.stay,
                         .node = (uint32_t)node->file.blocks.at[0],
                         .from = feeder->last.to,
                         .to = to,
                         .generation = node->file.generation,
                         .lo = 1,
                         .hi = 1};
    node_describe_clock(node, NULL, ret);
    memcpy(ret->history, node->local->sb.history, sizeof ret->history);
    memcpy(ret->previous, feeder->last.hash, sizeof ret->previous);
}

/* Describes the next feed. */
static void describe_prepared(const struct node *node, struct feed *ret)
{
    const struct feeder *feeder = &node->feeder;
    describe_feed(node, feeder->cut, ret);
    ret->record_count = feeder->record_count;
    ret->records = feeder->records.at;
    ret->records_len = feeder->records.count;
}

static int keep_feed(const struct node *node)
{
    struct feed feed;
    describe_prepared(node, &feed);
    size_t len = feed_encoded_len(&feed);
    if (len > FEED_LEN_MAX)
        return -EFBIG;
    _cleanup_free_ uint8_t *bytes = xmalloc(len);
    _cleanup_free_ char *path = kept_path(node);
    feed_encode(&feed, bytes);
    return io_write_file_durable(path, bytes, len);
}

/* -ENOENT: nothing published yet. The records are in *ret_bytes; the caller frees it. */
static int read_kept(const struct node *node, char **ret_bytes, struct feed *ret)
{
    _cleanup_free_ char *path = kept_path(node);
    size_t len;
    TRY(io_read_file(path, FEED_LEN_MAX, ret_bytes, &len));
    int r = feed_decode(*ret_bytes, len, ret);
    if (r == 0 && memcmp(ret->history, node->local->sb.history, sizeof ret->history) != 0)
        r = -EUCLEAN;
    if (r < 0)
        log_error("%s is damaged", path);
    return r;
}

static int add_batch(const struct journal_batch *batch, void *arg)
{
    const struct node *node = arg;
    return feed_log_add(node->commit->feed_log, batch->records, batch->header.payload_len);
}

/* A store that has published nothing yet has all operations in its journal. */
int node_begin(struct node *node)
{
    struct feeder *feeder = &node->feeder;
    _cleanup_free_ char *bytes = NULL;
    struct feed kept = {0};
    node->commit->feed_log = feed_log_new();
    int r = read_kept(node, &bytes, &kept);
    if (r < 0 && r != -ENOENT)
        return r;
    feeder->from = kept.from;
    if (r == 0)
        r = feed_log_add(node->commit->feed_log, kept.records, kept.records_len);
    if (r < 0 && r != -ENOENT)
        return r;
    if (journal_read(node->commit->journal, 0, add_batch, node) < 0)
        (void)end_feeds(node, "its journal is damaged");
    vector_add_all(&feeder->records, kept.records, kept.records_len);
    feeder->record_count = kept.record_count;
    feeder->cut = kept.to;
    feed_log_forget(node->commit->feed_log, kept.from);
    return 0;
}

/* --- the newest existing feed ----------------------------------------------------------------- */

struct own_feed {
    uint64_t round, stay;
};
DEFINE_VECTOR(own_feeds, struct own_feed);

/* Feeds of the node, of all its stays: like its heads, they ascend with stay and round. */
struct listed_feeds {
    struct node *node;
    struct own_feeds list;
    uint64_t newest; /* newest round reported by any node, except those that left */
};

static int note_feed(const struct tier_object *object, void *arg)
{
    struct listed_feeds *listed = arg;
    struct own_feed feed;
    bool is_feed = feed_numbers(object->name, &feed.round, &feed.stay);
    if (is_feed && feed.round != ROUND_MAX)
        listed->newest = max_u64(listed->newest, feed.round);
    if (is_feed && node_has_epoch(listed->node, feed.stay))
        vector_add(&listed->list, feed);
    return 0;
}

static int compare_own(const void *a, const void *b)
{
    const struct own_feed *x = a, *y = b;
    if (x->stay != y->stay)
        return x->stay < y->stay ? -1 : 1;
    return (x->round > y->round) - (x->round < y->round);
}

struct read_feed {
    struct feed feed;
    uint8_t hash[HASH_LEN];
};

static int decode_feed(const void *buf, size_t len, void *arg)
{
    struct read_feed *read = arg;
    struct iovec iov = {(void *)(uintptr_t)buf, len};
    hash_parts(&iov, 1, read->hash);
    int r = feed_decode(buf, len, &read->feed);
    read->feed.records = NULL; /* it points into the caller's buffer, which is freed */
    return r;
}

static int read_feed(struct node *node, uint64_t stay, uint64_t round, struct read_feed *ret)
{
    char object[FEED_NAME_LEN];
    feed_name(round, stay, object);
    return prefix_read_object(&node->common, object, FEED_LEN_MAX, decode_feed, ret);
}

/* Sorted, the newest last. The caller frees them. */
static int list_feeds(struct node *node, struct own_feeds *ret)
{
    struct tier *tier = node->options.tier;
    struct listed_feeds listed = {.node = node};
    int r = tier->ops->list(tier, FEEDS, NULL, note_feed, &listed);
    vector_sort(&listed.list, compare_own);
    *ret = listed.list;
    if (r == 0 && !node->feeder.has_begun)
        node_skip_rounds_told(node, listed.newest);
    return r;
}

/* Feeds of an ended generation count up to its last round. */
static uint64_t counted_up_to(const struct head *head, uint64_t stay)
{
    const struct head_writer *writer = head_writer_of(head, stay);
    return writer ? writer->feed_round : 0;
}

/* Finds the newest one that counts. -ENOENT: none. */
static int find_counted(struct node *node, const struct own_feeds *feeds, struct own_feed *ret_feed,
                        struct read_feed *ret)
{
    _cleanup_free_ struct head *head = xcalloc(1, sizeof *head);
    if (node->file.generation)
        TRY(heads_newest(&node->common, 0, head));
    for (size_t i = feeds->count; i-- > 0;) {
        *ret_feed = feeds->at[i];
        int r = read_feed(node, ret_feed->stay, ret_feed->round, ret);
        if (r < 0)
            return r == -ENOENT ? -EAGAIN : r;
        if (ret->feed.generation == node->file.generation ||
            ret_feed->round <= counted_up_to(head, ret_feed->stay))
            return 0;
    }
    return -ENOENT;
}

static void note_last(struct node *node, const struct feed *feed, const uint8_t hash[HASH_LEN])
{
    struct feeder *feeder = &node->feeder;
    feeder->last = (struct last_feed){.to = feed->to, .hi = feed->hi, .head = feed->head};
    memcpy(feeder->last.hash, hash, HASH_LEN);
    atomic_store(&node->told_round, feed->hi);
    feed_log_forget(node->commit->feed_log, feed->to);
}

/* A feed of a killed daemon may appear a moment after its end: if it were missed, none of our feeds
 * would ever count, as they would not follow it. */
static int await_late_feed(struct node *node)
{
    int64_t until = node->opened_at + LATE_NS, now;
    while (node->goes_on && (now = clock_monotonic_ns()) < until)
        if (!node_pause(node, (until - now) / MS_NS + 1))
            return -ECANCELED;
    return 0;
}

/* A stay's first feed continues where the preceding stay ended. */
static void begin_stay(struct node *node, uint64_t to)
{
    node->feeder.last.to = to;
    feed_log_forget(node->commit->feed_log, to);
}

static int go_on_from(struct node *node, const struct own_feed *newest,
                      const struct read_feed *read)
{
    struct feeder *feeder = &node->feeder;
    if (read->feed.to < feeder->from)
        return end_feeds(node, "its newest feed is older than those that it remembers");
    if (newest->stay != node->file.stay)
        begin_stay(node, read->feed.to);
    else
        note_last(node, &read->feed, read->hash);
    if (newest->stay == node->file.stay && read->feed.flags & FEED_LEAVES)
        return end_feeds(node, "its stay has ended");
    return 0;
}

/* The prefix decides: STORE/feed may be older. */
static int find_last(struct node *node)
{
    struct feeder *feeder = &node->feeder;
    _cleanup_vector_ struct own_feeds feeds = {0};
    _cleanup_free_ struct read_feed *read = xmalloc(sizeof *read);
    struct own_feed newest;
    TRY(await_late_feed(node));
    TRY(list_feeds(node, &feeds));
    int r = find_counted(node, &feeds, &newest, read);
    if (r == 0)
        TRY(go_on_from(node, &newest, read));
    else if (r == -ENOENT)
        begin_stay(node, feeder->from); /* all feeds of the preceding stay are merged */
    else
        return r;
    if (feeder->cut <= feeder->last.to || feeder->from != feeder->last.to)
        feeder->cut = 0; /* it exists already, or is not the whole next feed */
    feeder->has_begun = true;
    return 0;
}

int node_first_needed_head(struct node *node, uint64_t *ret_number)
{
    _cleanup_free_ struct read_feed *read = xmalloc(sizeof *read);
    int r = -ENOENT;
    for (int i = 0; i < FIRST_TRIES && r == -ENOENT; i++) { /* the merger deletes old feeds */
        _cleanup_vector_ struct own_feeds feeds = {0};
        TRY(list_feeds(node, &feeds));
        *ret_number = UINT64_MAX;
        if (feeds.count == 0)
            return 0;
        r = read_feed(node, feeds.at[0].stay, feeds.at[0].round, read);
    }
    *ret_number = r == 0 ? read->feed.head : UINT64_MAX;
    return r;
}

/* --- the next feed ---------------------------------------------------------------------------- */

/* Chosen such that cuts of this node are further apart than its uploads take: the nodes with the
 * longest uploads determine the common rounds. */
unsigned node_round_bits(const struct node *node)
{
    unsigned bits = 0;
    while (bits < BITS_MAX && (NODE_ROUND_NS << bits) < node->feeder.carry_ns)
        bits++;
    return bits;
}

uint64_t node_told_round(const struct node *node)
{
    return atomic_load(&node->told_round);
}

/* Sets the length and the count of sealed files from their content at the cut. */
static int fill_counts(struct node *node, struct view_cut *cut)
{
    struct feeder *feeder = &node->feeder;
    size_t len;
    for (size_t at = 0; at < feeder->records.count; at += len) {
        struct record rec;
        uint8_t *bytes = feeder->records.at + at;
        TRY(record_decode(bytes, feeder->records.count - at, &rec, &len));
        if (rec.type != REC_VERSION)
            continue;
        int r = view_cut_counts(cut, rec.ino, &rec.count, &rec.length);
        if (r < 0 && r != -ENOENT)
            return r;
        _cleanup_free_ uint8_t *anew = xmalloc(record_encoded_len(&rec));
        check(record_encoded_len(&rec) == len);
        record_encode(&rec, anew);
        memcpy(bytes, anew, len);
    }
    return 0;
}

int node_prepare(struct node *node, struct view_cut *cut, const struct rounds_span *span)
{
    struct feeder *feeder = &node->feeder;
    if (!feeder->has_begun)
        TRY(find_last(node));
    feeder->cut = view_cut_state(cut).applied_seq;
    feeder->is_published = false;
    feeder->span = *span;
    feeder->cut_at = clock_monotonic_ns();
    feeder->records.count = 0;
    feeder->record_count = feed_log_up_to(node->commit->feed_log, feeder->cut, &feeder->records);
    TRY(fill_counts(node, cut));
    return feeder->record_count ? keep_feed(node) : 0;
}

/* `span`: the cut's rounds; later ones may follow, or they were dropped: then `lo` > `hi`. */
static void describe_rounds(struct node *node, const struct rounds_span *span, struct feed *feed)
{
    static const struct rounds_span none;
    struct rounds_span now;
    struct history *history = node->commit->history;
    if (history_rounds_of(history, feed->to, node->feeder.last.hi, &now))
        span = &now;
    else if (span->hi <= history_dropped_rounds(history))
        span = &none;
    feed->lo = max_u64(span->lo, node->feeder.last.hi + 1);
    feed->hi = span->hi;
    node_describe_clock(node, span, feed);
}

static void describe_content(const struct head *head, struct feed *feed)
{
    feed->max_ino = head->max_ino;
    feed->max_id = head->max_id;
    feed->chunks = head->chunks;
    feed->stored_bytes = head->stored_bytes;
    feed->packs = head->packs;
    feed->pack_bytes = head->pack_bytes;
    feed->head = head->number;
    feed->run_count = head->run_count;
    memcpy(feed->runs, head->runs, head->run_count * sizeof head->runs[0]);
}

/* The answer to the first attempt may have been lost. */
static int put_feed(struct node *node, const struct feed *feed, uint8_t ret_hash[HASH_LEN])
{
    char object[FEED_NAME_LEN];
    size_t len = feed_encoded_len(feed);
    _cleanup_free_ uint8_t *bytes = xmalloc(len);
    _cleanup_free_ struct read_feed *found = xmalloc(sizeof *found);
    feed_name(feed->hi, feed->epoch, object);
    feed_encode(feed, bytes);
    hash_parts(&(struct iovec){bytes, len}, 1, ret_hash);
    int r = prefix_put_object(&node->common, object, bytes, len, true);
    if (r != -EEXIST)
        return r;
    TRY(read_feed(node, feed->epoch, feed->hi, found));
    return memcmp(found->hash, ret_hash, HASH_LEN) == 0
               ? 0
               : end_feeds(node, "another daemon puts feeds of this store; was it copied?");
}

/* Puts `feed`, whose rounds are filled in. */
static int tell(struct node *node, const struct feed *feed)
{
    uint8_t hash[HASH_LEN];
    struct feeder *feeder = &node->feeder;
    if (!atomic_load(&node->looker.may_tell))
        return -EAGAIN; /* others may have ended the stay */
    int r = put_feed(node, feed, hash);
    if (r < 0) {
        if (!feeder->is_over && r != -ECANCELED)
            prefix_error(&node->common, r, "a feed cannot be put: %s", strerror(-r));
        return r;
    }
    note_last(node, feed, hash);
    feeder->put_at = clock_monotonic_ns();
    if (feed->record_count)
        node_note_work(node);
    history_forget_rounds(node->commit->history, feed->hi);
    LOCK_SCOPE(&feeder->lock);
    feeder->trouble[0] = '\0';
    return 0;
}

static void forget_prepared(struct node *node)
{
    struct feeder *feeder = &node->feeder;
    feeder->records.count = feeder->record_count = 0;
    feeder->cut = feeder->last.to;
    if (keep_feed(node) < 0)
        log_debug("STORE/feed is of the feed before: the next start asks the remote");
    feeder->cut = 0;
}

static int tell_prepared(struct node *node, const struct head *head)
{
    _cleanup_free_ struct feed *feed = xmalloc(sizeof *feed);
    describe_prepared(node, feed);
    describe_content(head, feed);
    describe_rounds(node, &node->feeder.span, feed);
    if (feed->lo > feed->hi)
        return -EAGAIN; /* these rounds are reported already; the next are yet to come */
    TRY(tell(node, feed));
    forget_prepared(node);
    return 0;
}

void node_published(struct node *node, const struct head *head)
{
    struct feeder *feeder = &node->feeder;
    feeder->is_published = true;
    feeder->carry_ns = clock_monotonic_ns() - feeder->cut_at;
    if (!feeder->is_over && tell_prepared(node, head) < 0)
        log_debug("nodes: the feed is put later");
}

/* Does the head have operations not reported yet? So it is if its feed could not be put, and a
 * later cut was prepared since. */
static bool has_untold(const struct node *node, const struct head *head)
{
    _cleanup_vector_ struct bytes records = {0};
    return feed_log_up_to(node->commit->feed_log, head->cut, &records) > 0;
}

/* If the reported state is still the newest, reports more rounds for it. Keeps a prepared feed. */
static int tell_nothing(struct node *node, const struct head *head)
{
    struct rounds_span span;
    struct feeder *feeder = &node->feeder;
    _cleanup_free_ struct feed *feed = xmalloc(sizeof *feed);
    if (has_untold(node, head) ||
        !history_rounds_of(node->commit->history, feeder->last.to, feeder->last.hi, &span))
        return 0;
    describe_feed(node, feeder->last.to, feed);
    describe_content(head, feed);
    feed->lo = span.lo;
    feed->hi = span.hi;
    node_describe_clock(node, &span, feed);
    return tell(node, feed);
}

/* Others consider a node silent that has reported nothing for longer than the lease. The nodes of a
 * job are active at the same time: operations of one become visible sooner if the others, which
 * have finished their part, report right after each round. */
static bool is_due(struct node *node)
{
    int64_t now = clock_monotonic_ns(), put_at = node->feeder.put_at;
    uint64_t pause = min_u64(NODE_FEED_EVERY_NS, (uint64_t)node->options.lease_ns / 3);
    if (node_is_active(node)) {
        history_pass_rounds(node->commit->history);
        return true;
    }
    return !put_at || now - put_at >= (int64_t)pause;
}

/* Puts a stay's first feed at once: it states from when on other nodes can rely on this one. */
void node_tick(struct node *node, const struct head *head)
{
    struct feeder *feeder = &node->feeder;
    struct rounds_span span;
    if (feeder->is_over || (!feeder->has_begun && find_last(node) < 0))
        return;
    bool is_prepared =
        feeder->cut > feeder->last.to && (feeder->is_published || feeder->cut == head->cut);
    int r = 0;
    if (is_prepared &&
        (feeder->span.hi || history_rounds_of(node->commit->history, feeder->cut, 0, &span)))
        r = tell_prepared(node, head);
    else if (!is_prepared && is_due(node))
        r = tell_nothing(node, head);
    if (r < 0)
        log_debug("nodes: the feed is put later");
}

/* --- leaving ---------------------------------------------------------------------------------- */

/* Puts the same feed again that may be in transit: nothing has happened since. */
static int put_last_feed(struct node *node, uint64_t round)
{
    uint8_t hash[HASH_LEN];
    _cleanup_free_ struct read_feed *last = xmalloc(sizeof *last);
    TRY(read_feed(node, node->file.stay, round, last));
    struct feed *feed = &last->feed;
    memcpy(feed->previous, last->hash, sizeof feed->previous);
    feed->flags = FEED_LEAVES;
    feed->from = feed->to;
    feed->lo = feed->hi + 1;
    feed->hi = ROUND_MAX;
    feed->record_count = 0;
    feed->records_len = 0;
    int r = put_feed(node, feed, hash);
    return node->feeder.is_over ? 0 : r; /* the first one exists */
}

int node_end_stay(struct node *node)
{
    _cleanup_vector_ struct own_feeds feeds = {0};
    TRY(list_feeds(node, &feeds));
    const struct own_feed *newest = feeds.count ? &feeds.at[feeds.count - 1] : NULL;
    bool has_told = newest && newest->stay == node->file.stay;
    if (has_told && newest->round != ROUND_MAX)
        TRY(put_last_feed(node, newest->round));
    node->feeder.is_over = false;
    node->file.leaves = false;
    node->file.stay = has_told ? 0 : node->file.stay;
    return 0;
}

/* Does the newest feed include all operations of the store? */
static bool has_told_all(const struct node *node)
{
    const struct feeder *feeder = &node->feeder;
    return feeder->has_begun && !feeder->is_over && atomic_load(&node->looker.may_tell) &&
           history_newest(node->commit->history) == feeder->last.to &&
           stage_drafts(node->local->stage, NULL, 0) == 0;
}

void node_leave(struct node *node, const struct head *head)
{
    struct feeder *feeder = &node->feeder;
    _cleanup_free_ struct feed *feed = xmalloc(sizeof *feed);
    if (!atomic_load(&node->may_leave) || node_is_behind(node))
        return;
    /* The mount may end before it has looked up its last feed. */
    if ((!feeder->has_begun && find_last(node) < 0) || !has_told_all(node)) {
        log_info("nodes: this mount has operations that are not published: the others wait for "
                 "them until it is mounted again");
        return;
    }
    describe_feed(node, feeder->last.to, feed);
    describe_content(head, feed);
    feed->flags = FEED_LEAVES;
    feed->lo = feeder->last.hi + 1;
    feed->hi = ROUND_MAX;
    /* Noted first: the next mount must not resume a stay that others may know to be over. */
    node->file.leaves = true;
    int r = node_file_write(node);
    if (r == 0)
        r = tell(node, feed);
    if (r < 0)
        return;
    if (node->merger)
        merger_finish(node->merger, feed->epoch, feed->to, FINISH_NS);
    node->file.leaves = false;
    node->file.stay = 0;
    if (node_file_write(node) < 0)
        log_warn("%s/node cannot be written; the next mount asks the remote", node->local->path);
}
