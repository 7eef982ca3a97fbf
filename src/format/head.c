// SPDX-License-Identifier: Apache-2.0
/* Head:
 *
 *   OFFSET SIZE
 *        0    8  "CAIRNHED"
 *        8    4  version
 *       12    4  number of runs
 *       16    8  number
 *       24   16  history
 *       40   16  store id
 *       56   16  nonce
 *       72    8  epoch
 *       80    2  writer
 *       82    2  number of entries about heads that were given up
 *       84    4  features that a reader must know; zero in version 1
 *       88    8  hybrid time of the cut, ns
 *       96    8  published, ns since 1970
 *      104    8  cut
 *      112   32  chain
 *      144    8  largest inode number, without writer slot
 *      152    8  largest id of a pack or run
 *      160    8  files
 *      168    8  logical bytes
 *      176    8  chunks
 *      184    8  stored bytes
 *      192    8  packs
 *      200    8  bytes of packs
 *      208  128  holder, then zeros
 *      336       runs, 72 bytes each
 *                entries about heads that were given up, 40 bytes each
 *                with the feature NODES: writers, 72 bytes each, then number of writers 4, zero 4,
 *                time of the newest END 8
 *                with the feature HISTORY: states that stay, 24 bytes
 *                4  zero
 *                4  crc32 of everything before it
 *
 * Run of a head: run_list.c.
 *
 * Entry about heads that were given up:
 *
 *   OFFSET SIZE
 *        0    8  cut of the head from which the writer went on
 *        8    8  newest epoch of those given up
 *       16    8  first number of those given up
 *       24    8  last number
 *       32    8  when, ns since 1970
 *
 * Writer:
 *
 *   OFFSET SIZE
 *        0    8  epoch
 *        8    4  node
 *       12    4  state
 *       16    8  merged number
 *       24    8  round of its newest feed that is merged
 *       32   32  hash of that feed
 *       64    8  zero
 *
 * States that stay: how many of the newest 4, of hours 4, of days 4, of weeks 4, whether there may
 * be names 4 (1 or 0), zero 4.
 *
 * Magic, version, feature words and checksum stay where they are in every later version. */
#include "format/head.h"

#include "format/le.h"
#include "format/record.h"

static const uint8_t head_magic[8] = {'C', 'A', 'I', 'R', 'N', 'H', 'E', 'D'};

#define HEAD_RUNS_AT 336u
#define HEAD_GIVEN_UP_LEN 40u
#define HEAD_WRITER_LEN 72u
#define HEAD_WRITERS_TAIL_LEN 16u
#define HEAD_HISTORY_LEN 24u
#define HEAD_TAIL_LEN 8u
/* A feature of heads alone: entries about discarded heads. A writer that ignored them could take a
 * discarded state for an ancestor of this head's state, and then discard its own. */
#define HEAD_INCOMPAT_GIVEN_UP (1u << 31)
/* A feature of heads alone: some heads stay beyond the grace. The gc of a writer that ignored it
 * would remove them. */
#define HEAD_INCOMPAT_HISTORY (1u << 30)
#define HEAD_INCOMPAT_OWN (HEAD_INCOMPAT_GIVEN_UP | HEAD_INCOMPAT_HISTORY)
#define HEAD_INCOMPAT_KNOWN                                                                        \
    (SUPERBLOCK_INCOMPAT_ENCODINGS | SUPERBLOCK_INCOMPAT_NODES | HEAD_INCOMPAT_OWN)
#define INO_MAX ((1ull << 48) - 1)

_Static_assert(HEAD_RUNS_AT + HEAD_RUNS_MAX * RUN_LIST_ITEM_LEN +
                       HEAD_GIVEN_UP_MAX * HEAD_GIVEN_UP_LEN + HEAD_WRITERS_MAX * HEAD_WRITER_LEN +
                       HEAD_WRITERS_TAIL_LEN + HEAD_HISTORY_LEN + HEAD_TAIL_LEN <=
                   HEAD_LEN_MAX,
               "a full head fits");
_Static_assert(RUN_MERGE_MAX >= (1 + HEAD_WRITERS_MAX) * RUN_LIST_MAX,
               "the runs of a head and of the feeds that it names can be merged at once");
_Static_assert((HEAD_INCOMPAT_OWN & (SUPERBLOCK_INCOMPAT_ENCODINGS | SUPERBLOCK_INCOMPAT_NODES)) ==
                   0,
               "features of a head and of a superblock share a word");

/* --- head ------------------------------------------------------------------------------------- */

static bool given_up_sane(const struct head *head)
{
    if (head->given_up_count > HEAD_GIVEN_UP_MAX)
        return false;
    for (uint32_t i = 0; i < head->given_up_count; i++) {
        const struct head_given_up *g = &head->given_up[i];
        if (g->epoch > EPOCH_MAX || g->cut >> SEQ_EPOCH_SHIFT > g->epoch || g->first == 0 ||
            g->last < g->first - 1 || g->last > head->number || g->time < 0)
            return false;
    }
    return true;
}

static bool writer_sane(const struct head *head, uint32_t i)
{
    const struct head_writer *w = &head->writers[i];
    return w->epoch > (i ? head->writers[i - 1].epoch : 0) && w->epoch <= head->epoch &&
           w->node <= w->epoch &&
           (w->state == HEAD_WRITER_LIVES || w->state == HEAD_WRITER_ENDED) &&
           w->feed_round <= ROUND_MAX;
}

static bool writers_sane(const struct head *head)
{
    if (!head_has_nodes(head))
        return head->writer_count == 0 && head->end_time == 0;
    if (head->writer_count > HEAD_WRITERS_MAX || head->end_time < 0)
        return false;
    for (uint32_t i = 0; i < head->writer_count; i++)
        if (!writer_sane(head, i))
            return false;
    return true;
}

static bool keep_sane(const struct head_keep *keep)
{
    return keep->last <= HEAD_KEEP_MAX && keep->hourly <= HEAD_KEEP_MAX &&
           keep->daily <= HEAD_KEEP_MAX && keep->weekly <= HEAD_KEEP_MAX;
}

/* With several nodes, rounds may pass without a change of names; otherwise a cut without a run is
 * impossible. */
static bool cut_sane(const struct head *head)
{
    uint64_t cut;
    return run_list_is_sane(head->runs, head->run_count, head->history, &cut) &&
           (head_has_nodes(head) ? cut <= head->cut : cut == head->cut);
}

static bool head_sane(const struct head *head)
{
    return head->number > 0 && head->epoch <= EPOCH_MAX && head->max_ino <= INO_MAX &&
           head->run_count <= HEAD_RUNS_MAX && cut_sane(head) && given_up_sane(head) &&
           writers_sane(head) && keep_sane(&head->keep) &&
           !(head_has_nodes(head) && head_has_history(head));
}

const struct head_writer *head_writer_of(const struct head *head, uint64_t epoch)
{
    for (uint32_t i = 0; i < head->writer_count; i++)
        if (head->writers[i].epoch == epoch)
            return &head->writers[i];
    return NULL;
}

uint32_t head_living(const struct head *head)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < head->writer_count; i++)
        count += head->writers[i].state == HEAD_WRITER_LIVES;
    return count;
}

static void encode_given_up(const struct head_given_up *given_up, uint8_t *p)
{
    put_le64(p, given_up->cut);
    put_le64(p + 8, given_up->epoch);
    put_le64(p + 16, given_up->first);
    put_le64(p + 24, given_up->last);
    put_le64(p + 32, (uint64_t)given_up->time);
}

static void decode_given_up(const uint8_t *p, struct head_given_up *ret)
{
    *ret = (struct head_given_up){.cut = get_le64(p),
                                  .epoch = get_le64(p + 8),
                                  .first = get_le64(p + 16),
                                  .last = get_le64(p + 24),
                                  .time = (int64_t)get_le64(p + 32)};
}

static void encode_writers(const struct head *head, uint8_t *p)
{
    for (uint32_t i = 0; i < head->writer_count; i++, p += HEAD_WRITER_LEN) {
        const struct head_writer *w = &head->writers[i];
        put_le64(p, w->epoch);
        put_le32(p + 8, w->node);
        put_le32(p + 12, w->state);
        put_le64(p + 16, w->merged);
        put_le64(p + 24, w->feed_round);
        memcpy(p + 32, w->feed_hash, sizeof w->feed_hash);
    }
    put_le32(p, head->writer_count);
    put_le64(p + 8, (uint64_t)head->end_time);
}

/* The tail holds their number. False: reserved bytes are not zero. */
static bool decode_writers(const uint8_t *p, struct head *head)
{
    for (uint32_t i = 0; i < head->writer_count; i++, p += HEAD_WRITER_LEN) {
        struct head_writer *w = &head->writers[i];
        *w = (struct head_writer){.epoch = get_le64(p),
                                  .node = get_le32(p + 8),
                                  .state = get_le32(p + 12),
                                  .merged = get_le64(p + 16),
                                  .feed_round = get_le64(p + 24)};
        memcpy(w->feed_hash, p + 32, sizeof w->feed_hash);
        if (!bytes_are_zero(p + 64, 8))
            return false;
    }
    head->end_time = (int64_t)get_le64(p + 8);
    return bytes_are_zero(p + 4, 4);
}

static size_t writers_len(const struct head *head)
{
    return head_has_nodes(head) ? head->writer_count * HEAD_WRITER_LEN + HEAD_WRITERS_TAIL_LEN : 0;
}

static void encode_history(const struct head *head, uint8_t *p)
{
    put_le32(p, head->keep.last);
    put_le32(p + 4, head->keep.hourly);
    put_le32(p + 8, head->keep.daily);
    put_le32(p + 12, head->keep.weekly);
    put_le32(p + 16, head->has_names);
}

/* False: no state is to stay, or reserved bytes are not zero. */
static bool decode_history(const uint8_t *p, struct head *head)
{
    uint32_t has_names = get_le32(p + 16);
    head->keep = (struct head_keep){.last = get_le32(p),
                                    .hourly = get_le32(p + 4),
                                    .daily = get_le32(p + 8),
                                    .weekly = get_le32(p + 12)};
    head->has_names = has_names == 1;
    return has_names <= 1 && bytes_are_zero(p + 20, 4) && head_has_history(head);
}

static size_t given_up_at(const struct head *head)
{
    return HEAD_RUNS_AT + (size_t)head->run_count * RUN_LIST_ITEM_LEN;
}

static size_t writers_at(const struct head *head)
{
    return given_up_at(head) + (size_t)head->given_up_count * HEAD_GIVEN_UP_LEN;
}

static size_t head_len(const struct head *head)
{
    return writers_at(head) + writers_len(head) + (head_has_history(head) ? HEAD_HISTORY_LEN : 0) +
           HEAD_TAIL_LEN;
}

static void encode_head_state(const struct head *head, uint8_t *p)
{
    put_le64(p + 104, head->cut);
    memcpy(p + 112, head->chain, sizeof head->chain);
    put_le64(p + 144, head->max_ino);
    put_le64(p + 152, head->max_id);
    put_le64(p + 160, head->files);
    put_le64(p + 168, head->logical_bytes);
    put_le64(p + 176, head->chunks);
    put_le64(p + 184, head->stored_bytes);
    put_le64(p + 192, head->packs);
    put_le64(p + 200, head->pack_bytes);
}

size_t head_encode(const struct head *head, void *buf)
{
    check(head_sane(head));
    size_t len = head_len(head);
    uint32_t incompat = head->incompat | (head->given_up_count ? HEAD_INCOMPAT_GIVEN_UP : 0) |
                        (head_has_history(head) ? HEAD_INCOMPAT_HISTORY : 0);
    uint8_t *p = buf;
    memset(p, 0, len);
    put_le32(p + 12, head->run_count);
    put_le64(p + 16, head->number);
    memcpy(p + 24, head->history, sizeof head->history);
    memcpy(p + 40, head->store, sizeof head->store);
    memcpy(p + 56, head->nonce, sizeof head->nonce);
    put_le64(p + 72, head->epoch);
    put_le16(p + 80, head->writer);
    put_le16(p + 82, (uint16_t)head->given_up_count);
    put_le32(p + 84, incompat);
    put_le64(p + 88, (uint64_t)head->time);
    put_le64(p + 96, (uint64_t)head->published);
    encode_head_state(head, p);
    frame_put_holder(p + 208, head->holder);
    run_list_encode(head->runs, head->run_count, p + HEAD_RUNS_AT);
    for (uint32_t i = 0; i < head->given_up_count; i++)
        encode_given_up(&head->given_up[i], p + given_up_at(head) + (size_t)i * HEAD_GIVEN_UP_LEN);
    if (head_has_nodes(head))
        encode_writers(head, p + writers_at(head));
    if (head_has_history(head))
        encode_history(head, p + writers_at(head) + writers_len(head));
    frame_put(p, len, head_magic, incompat ? HEAD_VERSION : 1);
    return len;
}

static void decode_fixed(const uint8_t *p, struct head *head)
{
    *head = (struct head){.run_count = get_le32(p + 12),
                          .number = get_le64(p + 16),
                          .epoch = get_le64(p + 72),
                          .writer = get_le16(p + 80),
                          .given_up_count = get_le16(p + 82),
                          .incompat = get_le32(p + 84),
                          .time = (int64_t)get_le64(p + 88),
                          .published = (int64_t)get_le64(p + 96),
                          .cut = get_le64(p + 104),
                          .max_ino = get_le64(p + 144),
                          .max_id = get_le64(p + 152),
                          .files = get_le64(p + 160),
                          .logical_bytes = get_le64(p + 168),
                          .chunks = get_le64(p + 176),
                          .stored_bytes = get_le64(p + 184),
                          .packs = get_le64(p + 192),
                          .pack_bytes = get_le64(p + 200)};
    memcpy(head->history, p + 24, sizeof head->history);
    memcpy(head->store, p + 40, sizeof head->store);
    memcpy(head->nonce, p + 56, sizeof head->nonce);
    memcpy(head->chain, p + 112, sizeof head->chain);
}

/* Decodes the fields of HEAD_INCOMPAT_OWN, right before the tail; a head of several nodes has
 * none. */
static bool decode_own(const uint8_t *p, size_t len, struct head *head)
{
    uint32_t own = head->incompat & HEAD_INCOMPAT_OWN;
    head->incompat &= ~HEAD_INCOMPAT_OWN;
    if (own & HEAD_INCOMPAT_HISTORY &&
        (len < HEAD_RUNS_AT + HEAD_HISTORY_LEN + HEAD_TAIL_LEN ||
         !decode_history(p + len - HEAD_TAIL_LEN - HEAD_HISTORY_LEN, head)))
        return false;
    return !!(own & HEAD_INCOMPAT_GIVEN_UP) == (head->given_up_count > 0);
}

static int decode_lists(const uint8_t *p, size_t len, struct head *head)
{
    if (head_has_nodes(head) && len >= HEAD_RUNS_AT + HEAD_WRITERS_TAIL_LEN + HEAD_TAIL_LEN)
        head->writer_count = get_le32(p + len - HEAD_TAIL_LEN - HEAD_WRITERS_TAIL_LEN);
    if (head->run_count > HEAD_RUNS_MAX || head->given_up_count > HEAD_GIVEN_UP_MAX ||
        head->writer_count > HEAD_WRITERS_MAX || len != head_len(head))
        return -EUCLEAN;
    run_list_decode(p + HEAD_RUNS_AT, head->run_count, head->history, head->runs);
    for (uint32_t i = 0; i < head->given_up_count; i++)
        decode_given_up(p + given_up_at(head) + (size_t)i * HEAD_GIVEN_UP_LEN, &head->given_up[i]);
    return head_has_nodes(head) && !decode_writers(p + writers_at(head), head) ? -EUCLEAN : 0;
}

int head_decode(const void *buf, size_t len, struct head *ret_head)
{
    const uint8_t *p = buf;
    if (len < HEAD_RUNS_AT + HEAD_TAIL_LEN || len > HEAD_LEN_MAX || len % 8 != 0)
        return -EUCLEAN;
    TRY(frame_check(p, len, head_magic, HEAD_VERSION));
    struct head head;
    decode_fixed(p, &head);
    if (get_le32(p + 8) == 1 && head.incompat)
        return -EUCLEAN;
    TRY(format_check_known(get_le32(p + 8), HEAD_VERSION, head.incompat, HEAD_INCOMPAT_KNOWN));
    if (!decode_own(p, len, &head) || !bytes_are_zero(p + len - 8, 4) ||
        !frame_get_holder(p + 208, head.holder) || decode_lists(p, len, &head) < 0 ||
        !head_sane(&head))
        return -EUCLEAN;
    *ret_head = head;
    return 0;
}

uint64_t head_merged(const struct head *head, uint32_t node)
{
    uint64_t merged = 0;
    for (uint32_t i = 0; i < head->writer_count; i++)
        if (head->writers[i].node == node)
            merged = max_u64(merged, head->writers[i].merged);
    return merged;
}

/* --- heads that were given up ----------------------------------------------------------------- */

void head_give_up(struct head *head, const struct head_given_up *more)
{
    struct head_given_up *at = head->given_up;
    check(head->given_up_count <= HEAD_GIVEN_UP_MAX);
    if (head->given_up_count == HEAD_GIVEN_UP_MAX) {
        at[1] = (struct head_given_up){.cut = min_u64(at[0].cut, at[1].cut),
                                       .epoch = max_u64(at[0].epoch, at[1].epoch),
                                       .first = at[1].first,
                                       .last = at[1].last,
                                       .time = at[1].time};
        memmove(at, at + 1, --head->given_up_count * sizeof *at);
    }
    at[head->given_up_count++] = *more;
}

const struct head_given_up *head_gave_up(const struct head *head, const struct head *other)
{
    for (uint32_t i = 0; i < head->given_up_count; i++)
        if (other->epoch <= head->given_up[i].epoch && other->cut > head->given_up[i].cut)
            return &head->given_up[i];
    return NULL;
}

static bool is_listed(const struct head_given_up *list, uint32_t count,
                      const struct head_given_up *g)
{
    for (uint32_t i = 0; i < count; i++)
        if (list[i].cut == g->cut && list[i].epoch == g->epoch)
            return true;
    return false;
}

void head_take_back(struct head *head, const struct head *known, uint64_t cut)
{
    struct head_given_up list[HEAD_GIVEN_UP_MAX];
    uint32_t count = head->given_up_count;
    memcpy(list, head->given_up, sizeof list);
    head->given_up_count = 0;
    for (uint32_t i = 0; known && i < known->given_up_count; i++) {
        struct head_given_up g = known->given_up[i];
        g.last = min_u64(g.last, head->number);
        g.first = min_u64(g.first, g.last + 1);
        if (!is_listed(list, count, &g))
            head_give_up(head, &g);
    }
    for (uint32_t i = 0; i < count; i++) {
        bool has_some = cut > list[i].cut && cut >> SEQ_EPOCH_SHIFT <= list[i].epoch;
        bool has_all = has_some && known && known->epoch >= list[i].epoch;
        if (has_some)
            list[i].cut = cut;
        if (!has_all)
            head_give_up(head, &list[i]);
    }
}

uint64_t head_after_given_up(const struct head *head, uint64_t number)
{
    for (uint32_t i = 0; i < head->given_up_count; i++)
        if (number >= head->given_up[i].first && number <= head->given_up[i].last)
            return head->given_up[i].last + 1;
    return number;
}
