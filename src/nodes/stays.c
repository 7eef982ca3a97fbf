// SPDX-License-Identifier: Apache-2.0
#include "nodes/stays.h"

#include "base/clock.h"
#include "base/log.h"

#define AGAIN_NS (30ll * SECOND_NS)

void stays_init(struct stays *stays, struct prefix *prefix, struct busy *busy, int64_t lease_ns)
{
    *stays = (struct stays){
        .prefix = prefix, .busy = busy, .lease_ns = lease_ns, .bytes_max = TOLD_BYTES_MAX};
}

static void forget_feeds(struct stays *stays, struct stay *stay, size_t count)
{
    if (count == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        stays->bytes -= stay->feeds.at[i].bytes ? stay->feeds.at[i].len : 0;
        told_forget(&stay->feeds.at[i]);
    }
    stay->feeds.count -= count;
    memmove(stay->feeds.at, stay->feeds.at + count, stay->feeds.count * sizeof *stay->feeds.at);
}

static void remove_stay(struct stays *stays, size_t i)
{
    struct stay *stay = &stays->list.at[i];
    hints_forget(&stays->hints, stay->epoch, UINT64_MAX);
    forget_feeds(stays, stay, stay->feeds.count);
    vector_free(&stay->feeds);
    memmove(stay, stay + 1, (--stays->list.count - i) * sizeof *stay);
}

static void remove_all(struct stays *stays)
{
    while (stays->list.count > 0)
        remove_stay(stays, stays->list.count - 1);
}

void stays_done(struct stays *stays)
{
    remove_all(stays);
    check(stays->bytes == 0);
    vector_free(&stays->list);
    vector_free(&stays->entries);
    vector_free(&stays->ended);
    vector_free(&stays->hints);
}

struct stay *stays_find(const struct stays *stays, uint64_t epoch)
{
    return vector_search(&stays->list, &epoch, compare_u64);
}

static struct stay *add_stay(struct stays *stays, uint64_t epoch, uint32_t node)
{
    vector_add(&stays->list, (struct stay){.epoch = epoch, .node = node});
    vector_sort(&stays->list, compare_u64);
    return stays_find(stays, epoch);
}

void stays_begin(struct stays *stays, const struct head *head)
{
    remove_all(stays);
    stays->entries.count = 0; /* read again: they identify the nodes of the rows */
    stays->generation = head_generation(head);
    stays->ended_at = 0;
    for (uint32_t i = 0; i < head->writer_count; i++) {
        struct stay *stay = add_stay(stays, head->writers[i].epoch, head->writers[i].node);
        stay->has_row = true;
        stay->row = head->writers[i];
    }
}

/* --- writers ---------------------------------------------------------------------------------- */

static int note_entry(const struct tier_object *object, void *arg)
{
    struct stays *stays = arg;
    uint64_t number;
    if (!object_number(object->name, "writers", &number))
        return 0;
    struct entry_seen *seen = NULL;
    for (size_t i = 0; i < stays->entries.count && !seen; i++)
        if (stays->entries.at[i].number == number)
            seen = &stays->entries.at[i];
    if (!seen) {
        vector_add(&stays->entries, (struct entry_seen){.number = number});
        seen = &stays->entries.at[stays->entries.count - 1];
    }
    seen->modified = object->modified_ns;
    seen->is_there = true;
    return 0;
}

static int decode_entry(const void *buf, size_t len, void *arg)
{
    return writer_entry_decode(buf, len, arg);
}

int writer_entry_read(struct prefix *prefix, uint64_t number, struct writer_entry *ret)
{
    char object[OBJECT_NAME_LEN];
    object_name(WRITERS, number, object);
    return prefix_read_object(prefix, object, WRITER_ENTRY_LEN, decode_entry, ret);
}

/* An unreadable entry may belong to any stay: a stay with its number stands for it, and determines
 * nothing. */
static void refuse_entry(struct stays *stays, struct entry_seen *seen)
{
    seen->again_at = clock_monotonic_ns() + min_u64(AGAIN_NS, stays->lease_ns);
    if (stays_find(stays, seen->number))
        return;
    log_warn("nodes: writers/%016llx is damaged, and no head knows that node: the union of all "
             "nodes goes no further until it is written again",
             (unsigned long long)seen->number);
    struct stay *stay = add_stay(stays, seen->number, 0);
    stay->why = "its entry in writers/ is damaged";
    stay->is_unknown = true;
}

static int read_entry(struct stays *stays, struct entry_seen *seen)
{
    struct prefix *prefix = stays->prefix;
    struct writer_entry entry;
    int r = writer_entry_read(prefix, seen->number, &entry);
    if (r == -ENOENT)
        return -EAGAIN;
    bool is_bad = prefix_object_is_lost(r) || r == -EPROTONOSUPPORT;
    if (r == 0)
        is_bad = entry.number != seen->number || entry.number >= EPOCH_LAST ||
                 memcmp(entry.history, prefix->local->sb.history, sizeof entry.history) != 0;
    if (is_bad) {
        refuse_entry(stays, seen);
        return 0;
    }
    if (r < 0)
        return r;
    seen->epoch = entry.epoch;
    seen->node = entry.node;
    seen->lease_ns = entry.lease_ms * MS_NS;
    seen->clock_error_ns = entry.clock_error_ms * MS_NS;
    memcpy(seen->holder, entry.holder, sizeof seen->holder);
    return 0;
}

/* Returns whether the entry's node has a later stay in the head; then all operations of this one
 * are merged. */
static bool is_replaced(const struct head *head, const struct entry_seen *entry)
{
    for (uint32_t i = 0; i < head->writer_count; i++)
        if (head->writers[i].node == entry->node && head->writers[i].epoch > entry->epoch)
            return true;
    return false;
}

static void note_stay(struct stays *stays, const struct head *head, const struct entry_seen *entry)
{
    struct stay *stay = stays_find(stays, entry->epoch);
    if (!stay && is_replaced(head, entry))
        return;
    if (!stay)
        stay = add_stay(stays, entry->epoch, entry->node);
    if (stay->is_unknown) {
        stay->is_unknown = false;
        stay->node = entry->node;
        stay->why = NULL;
    }
    /* from the last entry, which has the latest number */
    memcpy(stay->holder, entry->holder, sizeof stay->holder);
    if (entry->lease_ns && entry->lease_ns != stays->lease_ns && stay->lease_ns == 0)
        log_warn("nodes: %s has lease=%.0fs, and this node %.0fs: give all nodes the same",
                 entry->holder, (double)entry->lease_ns / 1e9, (double)stays->lease_ns / 1e9);
    stay->lease_ns = entry->lease_ns;
    stay->clock_error_ns = entry->clock_error_ns;
    stay->heard_of = (int64_t)max_u64((uint64_t)stay->heard_of, (uint64_t)entry->modified);
}

/* Drops entries that no longer exist: of a store that gave up joining, or removed by hand. */
static void drop_gone_entries(struct stays *stays)
{
    size_t kept = 0;
    for (size_t i = 0; i < stays->entries.count; i++)
        if (stays->entries.at[i].is_there)
            stays->entries.at[kept++] = stays->entries.at[i];
    stays->entries.count = kept;
}

static bool has_entry(const struct stays *stays, uint64_t epoch)
{
    for (size_t i = 0; i < stays->entries.count; i++) {
        const struct entry_seen *entry = &stays->entries.at[i];
        if ((entry->epoch ? entry->epoch : entry->number) == epoch)
            return true;
    }
    return false;
}

static void drop_gone_stays(struct stays *stays)
{
    for (size_t i = stays->list.count; i-- > 0;) {
        const struct stay *stay = &stays->list.at[i];
        if (!stay->has_row && stay->feeds.count == 0 && !has_entry(stays, stay->epoch))
            remove_stay(stays, i);
    }
}

static int look_at_writers(struct stays *stays, const struct head *head)
{
    struct tier *tier = stays->prefix->tier;
    for (size_t i = 0; i < stays->entries.count; i++)
        stays->entries.at[i].is_there = false;
    TRY(tier->ops->list(tier, "writers", NULL, note_entry, stays));
    drop_gone_entries(stays);
    vector_sort(&stays->entries, compare_u64);
    for (size_t i = 0; i < stays->entries.count; i++) {
        struct entry_seen *entry = &stays->entries.at[i];
        bool is_due = entry->epoch == 0 && clock_monotonic_ns() >= entry->again_at;
        TRY(is_due ? read_entry(stays, entry) : 0);
        if (entry->epoch)
            note_stay(stays, head, entry);
    }
    drop_gone_stays(stays);
    return 0;
}

/* If the entry is unreadable, a head may have its stay. */
uint32_t stays_node_of(const struct stays *stays, uint64_t epoch)
{
    uint64_t number = node_block_of(epoch);
    const struct entry_seen *entry = vector_search(&stays->entries, &number, compare_u64);
    const struct stay *stay = entry && entry->epoch ? NULL : stays_find(stays, number);
    return stay ? stay->node : entry ? entry->node : 0;
}

bool stays_owns(const struct stays *stays, uint64_t epoch, uint64_t ino)
{
    uint32_t node = stays_node_of(stays, epoch);
    return node != 0 && stays_node_of(stays, ID_EPOCH(ino)) == node;
}

/* --- feeds ------------------------------------------------------------------------------------ */

struct feed_seen {
    uint64_t round, epoch, len;
    int64_t modified;
};
DEFINE_VECTOR(feeds_seen, struct feed_seen);

static int note_feed(const struct tier_object *object, void *arg)
{
    struct feeds_seen *seen = arg;
    struct feed_seen feed = {.len = object->len, .modified = object->modified_ns};
    if (feed_numbers(object->name, &feed.round, &feed.epoch))
        vector_add(seen, feed);
    return 0;
}

uint64_t stay_told_up_to(const struct stay *stay)
{
    if (stay->feeds.count > 0)
        return stay->feeds.at[stay->feeds.count - 1].hi;
    return stay->has_row ? stay->row.feed_round : 0;
}

/* Why the feed does not follow the preceding one; NULL: it does. A first feed may cover rounds that
 * the union has passed only if it has no operations. */
static const char *why_not_next(const struct stays *stays, const struct stay *stay,
                                const struct told *told, uint64_t cut)
{
    static const uint8_t none[HASH_LEN];
    const struct told *last = stay->feeds.count ? &stay->feeds.at[stay->feeds.count - 1] : NULL;
    const uint8_t *hash = last ? last->hash : stay->has_row ? stay->row.feed_hash : none;
    if (told->node != stay->node)
        return "it is of another node";
    if (told->generation > stays->generation)
        return "it is of a generation that no head began";
    if (memcmp(told->previous, hash, HASH_LEN) != 0)
        return "it follows another feed than the one before it";
    if ((last || stay->has_row) && told->from != (last ? last->to : stay->row.merged))
        return "it lacks operations";
    if (!last && !stay->has_row && told->record_count > 0 && told->lo <= cut)
        return "it tells of rounds that the union is past: is a clock wrong?";
    return told->lo > stay_told_up_to(stay) ? NULL : "it tells of rounds that were told";
}

static void refuse_feed(struct stays *stays, struct stay *stay, uint64_t round, const char *why)
{
    stay->again_at = clock_monotonic_ns() + min_u64(AGAIN_NS, stays->lease_ns);
    if (stay->refused == round)
        return;
    stay->refused = round;
    stay->why = why;
    log_warn("nodes: feeds/%016llx-%016llx of %s is not counted (%s): the union of all nodes goes "
             "no further until it is",
             (unsigned long long)round, (unsigned long long)stay->epoch, stay->holder, why);
}

static void accept_feed(struct stays *stays, struct stay *stay, const struct told *told)
{
    if (stay->refused)
        log_info("nodes: feeds/%016llx-%016llx of %s is counted again",
                 (unsigned long long)told->hi, (unsigned long long)stay->epoch, stay->holder);
    stay->refused = stay->doubted = 0;
    stay->why = NULL;
    hints_note(&stays->hints, told);
    vector_add(&stay->feeds, *told);
    if (stays->bytes + told->len > stays->bytes_max)
        told_forget(&stay->feeds.at[stay->feeds.count - 1]);
    else
        stays->bytes += told->len;
}

static bool feed_is_lost(int error)
{
    return prefix_object_is_lost(error) || error == -EPROTONOSUPPORT;
}

/* A listing may lack an object created while it was made, and contain a later one: a feed that does
 * not follow is read twice before it is refused. */
static int judge_feed(struct stays *stays, struct stay *stay, struct told *told, uint64_t cut)
{
    const char *why = why_not_next(stays, stay, told, cut);
    if (!why) {
        accept_feed(stays, stay, told);
        return 0;
    }
    told_forget(told);
    if (stay->doubted == told->hi)
        refuse_feed(stays, stay, told->hi, why);
    stay->doubted = told->hi;
    return 0;
}

static int judge_wish(struct stays *stays, struct stay *stay, struct told_wish *wish, uint64_t cut)
{
    int r = wish->result;
    if (feed_is_lost(r)) {
        refuse_feed(stays, stay, wish->round,
                    r == -ENOENT            ? "it is missing"
                    : r == -EPROTONOSUPPORT ? "it is of a newer version of CairnFS"
                                            : "it is damaged, or says what cannot be");
        return 0;
    }
    if (r < 0)
        return r;
    stay_say_early(stay, wish);
    if (wish->told.generation >= stays->generation)
        return judge_feed(stays, stay, &wish->told, cut);
    told_forget(&wish->told);
    stay->outdated = wish->round;
    return 0;
}

/* Feeds of a node follow each other: after one that is not counted, none is read. */
static bool is_next_to_read(const struct stay *stay, uint64_t round)
{
    bool is_over = stay->has_row && stay->row.state == HEAD_WRITER_ENDED;
    bool is_blocked = is_over || stay->is_unknown || (stay->doubted && stay->doubted < round);
    return round > max_u64(stay_told_up_to(stay), stay->outdated) && !is_blocked &&
           (!stay->refused || (stay->refused == round && clock_monotonic_ns() >= stay->again_at));
}

/* Chooses the next feeds to read, from the listed one at *at on: together no longer than one may
 * be, and none after one that is read again. */
static size_t choose_wishes(struct stays *stays, const struct feeds_seen *seen, size_t *at,
                            struct told_wish *ret)
{
    size_t count = 0;
    uint64_t len = 0;
    for (bool ends = false; *at < seen->count && count < TOLD_AT_ONCE && !ends; ++*at) {
        const struct feed_seen *feed = &seen->at[*at];
        struct stay *stay = stays_find(stays, feed->epoch);
        if (count > 0 && len + feed->len > FEED_LEN_MAX)
            break;
        if (!stay)
            continue; /* it joined after writers were listed, or was replaced */
        stay->heard_of = (int64_t)max_u64((uint64_t)stay->heard_of, (uint64_t)feed->modified);
        if (!is_next_to_read(stay, feed->round))
            continue;
        ret[count++] = (struct told_wish){
            .round = feed->round, .epoch = feed->epoch, .modified = feed->modified};
        len += feed->len;
        ends = stay->refused || stay->doubted;
    }
    return count;
}

/* One of them may turn out not to count: then those of its stay behind it are dropped. */
static int take_wish(struct stays *stays, struct told_wish *wish, uint64_t cut)
{
    struct stay *stay = stays_find(stays, wish->epoch);
    busy_say(stays->busy);
    if (is_next_to_read(stay, wish->round))
        return judge_wish(stays, stay, wish, cut);
    told_forget(&wish->told);
    return 0;
}

/* The first round to list: that of the union, which the newest feed of each stay that has not left
 * has reached. For a stay without a feed, all rounds. */
static uint64_t first_round(const struct stays *stays, const struct head *head)
{
    for (size_t i = 0; i < stays->list.count; i++)
        if (!stays->list.at[i].has_row && stays->list.at[i].feeds.count == 0)
            return 1;
    return max_u64(head_round(head), 1);
}

static int look_at_feeds(struct stays *stays, const struct head *head)
{
    struct feeds_seen seen = {0};
    struct tier *tier = stays->prefix->tier;
    char after[FEED_NAME_LEN];
    feed_name(first_round(stays, head) - 1, UINT64_MAX, after);
    int r = tier->ops->list(tier, "feeds", after, note_feed, &seen);
    vector_sort(&seen, compare_u64);
    struct told_wish wishes[TOLD_AT_ONCE];
    size_t at = 0, count;
    while (r == 0 && (count = choose_wishes(stays, &seen, &at, wishes)) > 0) {
        told_read_all(stays->prefix, wishes, count);
        for (size_t i = 0; i < count; i++)
            if (r == 0)
                r = take_wish(stays, &wishes[i], head_round(head));
            else
                told_forget(&wishes[i].told);
    }
    vector_free(&seen);
    return r;
}

int stays_look(struct stays *stays, const struct head *head)
{
    TRY(stays_look_at_ended(stays, clock_monotonic_ns()));
    TRY(look_at_writers(stays, head));
    return look_at_feeds(stays, head);
}

/* --- rounds ----------------------------------------------------------------------------------- */

uint64_t stay_round(const struct stay *stay, uint64_t round, uint64_t cut)
{
    for (size_t i = stay->feeds.count; i-- > 0;) {
        const struct told *told = &stay->feeds.at[i];
        if (told->lo <= round)
            return min_u64(round, told->hi) > cut ? min_u64(round, told->hi) : 0;
    }
    if (!stay->has_row)
        return 0;
    uint64_t row = stay->row.state == HEAD_WRITER_ENDED ? round : stay->row.feed_round;
    row = min_u64(round, row);
    return row > cut ? row : 0;
}

size_t stay_feeds_up_to(const struct stay *stay, uint64_t round)
{
    size_t count = 0;
    while (count < stay->feeds.count && stay->feeds.at[count].lo <= round)
        count++;
    return count;
}

/* --- the next head ---------------------------------------------------------------------------- */

static struct head_writer row_of(const struct stay *stay, const struct told *told)
{
    struct head_writer row = {.epoch = stay->epoch,
                              .node = stay->node,
                              .state =
                                  told->flags & FEED_LEAVES ? HEAD_WRITER_ENDED : HEAD_WRITER_LIVES,
                              .merged = told->to,
                              .feed_round = told->hi};
    memcpy(row.feed_hash, told->hash, sizeof row.feed_hash);
    return row;
}

/* The row of a stay that ended without leaving; or that left, but had not reported everything by
 * the round to which the union goes back. If it had reported nothing by then, the row only says
 * that it ended. */
static struct head_writer row_of_ended(const struct stay *stay, const struct told *told)
{
    struct head_writer row = told ? row_of(stay, told) : stay->row;
    row.epoch = stay->epoch;
    row.node = stay->node;
    row.state = HEAD_WRITER_ENDED;
    return row;
}

/* Reads the sums of a row whose feed was read by another merger. Without the feed the sums are too
 * low, and readers see too little of its node's files. */
static int read_totals(struct stays *stays, struct stay *stay)
{
    struct told told = {0};
    stay->has_totals = stay->row.feed_round == 0;
    if (stay->has_totals)
        return 0;
    int r = told_read(stays->prefix, stay->row.feed_round, stay->epoch, &told);
    if (r == 0 && memcmp(told.hash, stay->row.feed_hash, sizeof told.hash) != 0)
        r = -EUCLEAN;
    told_forget(&told);
    if (feed_is_lost(r))
        log_warn("nodes: feeds/%016llx-%016llx, which names the content of %s, is missing or "
                 "damaged: its files cannot be read elsewhere until it tells more",
                 (unsigned long long)stay->row.feed_round, (unsigned long long)stay->epoch,
                 stay->holder);
    if (r < 0 && !feed_is_lost(r))
        return r;
    stay->totals = r == 0 ? told.totals : (struct told_totals){0};
    stay->has_totals = true;
    return 0;
}

static bool has_told(const struct stay *stay, uint64_t round)
{
    return (stay->has_row && stay->row.feed_round > 0) || stay_feeds_up_to(stay, round) > 0;
}

/* A node's newest feed names all content of the node: so the row of an earlier stay is useless,
 * unless the later one ended before it reported anything. */
static bool is_over(const struct stays *stays, const struct stay *stay, uint64_t round)
{
    for (size_t i = 0; i < stays->list.count; i++) {
        const struct stay *other = &stays->list.at[i];
        if (other->node == stay->node && other->epoch > stay->epoch && has_told(other, round))
            return true;
    }
    return false;
}

static void add_totals(struct head *head, const struct told_totals *totals)
{
    head->chunks += totals->chunks;
    head->stored_bytes += totals->stored_bytes;
    head->packs += totals->packs;
    head->pack_bytes += totals->pack_bytes;
}

static int fill_row(struct stays *stays, struct stay *stay, uint64_t round, struct head *head)
{
    size_t count = stay_feeds_up_to(stay, round);
    const struct told *told = count > 0 ? &stay->feeds.at[count - 1] : NULL;
    for (size_t i = 0; i < count; i++) {
        head->max_ino = max_u64(head->max_ino, stay->feeds.at[i].totals.max_ino);
        head->max_id = max_u64(head->max_id, stay->feeds.at[i].totals.max_id);
    }
    bool is_dead = stay_is_dead(stays, stay), ends = head_generation(head) > stays->generation;
    if (!told && !stay->has_row && !is_dead)
        return 0; /* at the end of a generation it may have reported nothing */
    struct head_writer row = told ? row_of(stay, told) : stay->row;
    if (is_dead || (ends && stay_has_left(stay)))
        row = row_of_ended(stay, told);
    if (row.state == HEAD_WRITER_ENDED && is_over(stays, stay, round))
        return 0;
    if (head->writer_count == HEAD_WRITERS_MAX)
        return -E2BIG;
    if (!told && !stay->has_totals)
        TRY(read_totals(stays, stay));
    add_totals(head, told ? &told->totals : &stay->totals);
    head->writers[head->writer_count++] = row;
    return 0;
}

int stays_fill_head(struct stays *stays, uint64_t round, struct head *head)
{
    head->writer_count = 0;
    memset(head->writers, 0, sizeof head->writers);
    head->chunks = head->stored_bytes = head->packs = head->pack_bytes = 0;
    for (size_t i = 0; i < stays->list.count; i++)
        TRY(fill_row(stays, &stays->list.at[i], round, head));
    return 0;
}

void stays_merged(struct stays *stays, const struct head *head)
{
    for (size_t i = stays->list.count; i-- > 0;) {
        struct stay *stay = &stays->list.at[i];
        const struct head_writer *row = head_writer_of(head, stay->epoch);
        bool begins = head_generation(head) > stays->generation;
        size_t count = stay_feeds_up_to(stay, head_round(head));
        if (!row) {
            remove_stay(stays, i);
            continue;
        }
        if (count > 0) {
            stay->totals = stay->feeds.at[count - 1].totals;
            stay->has_totals = true;
        }
        stay->has_row = true;
        stay->row = *row;
        hints_forget(&stays->hints, stay->epoch, begins ? UINT64_MAX : head_round(head));
        forget_feeds(stays, stay, begins ? stay->feeds.count : count);
        if (begins)
            stay->refused = stay->doubted = 0;
    }
    stays->generation = head_generation(head);
}
