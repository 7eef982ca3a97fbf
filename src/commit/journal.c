// SPDX-License-Identifier: Apache-2.0
/* The journal: segments of batches, each batch one step of the horizon. Invariants:
 *
 *   1. A batch is appended only after every chunk that it names is durable.
 *   2. It counts when all of it is there and its `prev` continues the chain. What follows the last
 *      that counts is what a crash tore, or else damage (journal_damage.c): then nothing is read
 *      on, and nothing touched.
 *   3. Every session begins a segment of its own, so that what a crash tore is never written over.
 *   4. After a failed append the segment is left, and the batch is written anew in the next one. */
#include <stdio.h>

#include "base/crc.h"
#include "base/log.h"
#include "base/vector.h"
#include "codec/hash.h"
#include "commit/journal_internal.h"
#include "commit/local.h"
#include "format/object.h"
#include "stage/stage.h"
#include "tier/tier.h"

#define SEGMENT_ROOM (16 * MIB)
#define READ_TRIES 3
/* The room of a session's first segment: a session may be short, and its segments stay. */
#define FIRST_ROOM (256 * KIB)

static void segment_name(uint64_t number, char buf[32])
{
    object_name("journal", number, buf);
}

static void chain_over(const void *header, const void *payload, size_t len, uint8_t ret[CHAIN_LEN])
{
    struct iovec iov[2] = {{(void *)(uintptr_t)header, BATCH_HEADER_LEN},
                           {(void *)(uintptr_t)payload, len}};
    hash_parts(iov, 2, ret);
}

struct journal *journal_new(struct local *local)
{
    struct journal *journal = xcalloc(1, sizeof *journal);
    journal->local = local;
    return journal;
}

/* --- reading ---------------------------------------------------------------------------------- */

struct numbers {
    VECTOR(uint64_t) of;
    uint64_t bytes;
};

static int add_number(const struct tier_object *object, void *arg)
{
    struct numbers *numbers = arg;
    uint64_t number;
    if (!object_number(object->name, "journal", &number))
        return 0;
    vector_add(&numbers->of, number);
    numbers->bytes += object->len;
    return 0;
}

struct reader {
    struct journal *journal;
    int (*fn)(const struct journal_batch *batch, void *arg);
    void *arg;
    uint64_t from; /* what is before this need not be read */
    bool is_first;
    uint64_t stop_seq; /* where the next segment begins: what this one has after it does not count
                          (rule 4) */
};

/* A segment that is being read. */
struct segment {
    uint64_t number, len;
    char object[32];
    struct segment_header header;
    bool is_last; /* none that has a header comes after it */
};

static bool batch_continues(const struct reader *rd, const struct batch_header *batch)
{
    return memcmp(batch->prev, rd->journal->chain, CHAIN_LEN) == 0 &&
           batch->base_seq == rd->journal->cut_seq;
}

/* One look at the batch at `offset`. 1: it counts; 0: it does not; its header and records are the
 * caller's. */
static int try_batch(struct reader *rd, const struct segment *seg, uint64_t offset,
                     uint8_t header[BATCH_HEADER_LEN], struct journal_batch *ret,
                     uint8_t **ret_payload)
{
    const struct tier_ops *ops = rd->journal->local->tier->ops;
    int r = ops->get_range(rd->journal->local->tier, seg->object, offset, header, BATCH_HEADER_LEN);
    if (r < 0)
        return r;
    r = batch_decode_header(header, BATCH_HEADER_LEN, &ret->header);
    if (r == -EPROTONOSUPPORT)
        return r;
    if (r < 0 || ret->header.payload_len > seg->len - offset - BATCH_HEADER_LEN ||
        !batch_continues(rd, &ret->header))
        return 0;
    _cleanup_free_ uint8_t *payload = xmalloc(ret->header.payload_len);
    r = ops->get_range(rd->journal->local->tier, seg->object, offset + BATCH_HEADER_LEN, payload,
                       ret->header.payload_len);
    if (r < 0)
        return r;
    if (crc32_of(0, payload, ret->header.payload_len) != ret->header.payload_crc)
        return 0;
    *ret_payload = payload;
    payload = NULL;
    return 1;
}

/* One batch at `offset`. 1: there was one; 0: none that counts. What was read wrongly once must not
 * be taken for the end. */
static int read_batch(struct reader *rd, const struct segment *seg, uint64_t *offset)
{
    uint8_t header[BATCH_HEADER_LEN];
    struct journal_batch batch;
    _cleanup_free_ uint8_t *payload = NULL;
    int r = 0;
    if (seg->len - *offset < BATCH_HEADER_LEN)
        return 0;
    for (int i = 0; i < READ_TRIES && r == 0; i++)
        r = try_batch(rd, seg, *offset, header, &batch, &payload);
    if (r <= 0)
        return r;
    chain_over(header, payload, batch.header.payload_len, batch.chain);
    batch.records = payload;
    r = rd->fn(&batch, rd->arg);
    if (r < 0)
        return r;
    memcpy(rd->journal->chain, batch.chain, CHAIN_LEN);
    rd->journal->cut_seq = batch.header.cut_seq;
    rd->journal->time = batch.header.time;
    *offset += BATCH_HEADER_LEN + align_up(batch.header.payload_len, 8);
    return 1;
}

static int note_damage_at(struct reader *rd, uint64_t segment, uint64_t offset, uint64_t behind,
                          const char *what)
{
    rd->journal->damage = (struct journal_damage){
        .found = true, .segment = segment, .offset = offset, .behind = behind, .what = what};
    _cleanup_free_ char *text = journal_explain_damage(rd->journal);
    log_error("journal: %s", text);
    return -EUCLEAN;
}

/* No batch that counts lies at `offset`. 0: the segment ends there; 1: it is damaged there, and
 * reading goes on behind. */
static int judge_end(struct reader *rd, const struct segment *seg, uint64_t *offset)
{
    struct behind behind;
    uint64_t next = *offset + BATCH_HEADER_LEN; /* the next batch begins no sooner */
    int r = journal_look_behind(rd->journal, &seg->header, seg->object, seg->len, next, rd->from,
                                &behind);
    if (r < 0)
        return r;
    if (behind.resume_offset > 0 && rd->from > rd->journal->cut_seq) {
        log_warn("journal: segment %s is damaged from byte %llu on; the view has what it said up "
                 "to byte %llu, where reading goes on",
                 seg->object, (unsigned long long)*offset,
                 (unsigned long long)behind.resume_offset);
        rd->journal->was_skipped = true;
        rd->journal->cut_seq = behind.resume.base_seq;
        memcpy(rd->journal->chain, behind.resume.prev, CHAIN_LEN);
        *offset = behind.resume_offset;
        return 1;
    }
    if (behind.count > 0 || !seg->is_last)
        return note_damage_at(rd, seg->number, *offset, behind.count, "a batch does not verify");
    if (seg->len < seg->header.length)
        return note_damage_at(rd, seg->number, seg->len, 0, "the file is truncated");
    return 0; /* what a crash tore, or what was never written */
}

static int read_batches(struct reader *rd, const struct segment *seg)
{
    uint64_t offset = SEGMENT_HEADER_LEN;
    int r = 1;
    while (r == 1 && rd->journal->cut_seq < rd->stop_seq) {
        r = read_batch(rd, seg, &offset);
        if (r == 0)
            r = judge_end(rd, seg, &offset);
    }
    if (r == -EPROTONOSUPPORT)
        log_error("journal: segment %s has batches of a newer version of CairnFS at byte %llu; use "
                  "that version",
                  seg->object, (unsigned long long)offset);
    return r < 0 ? r : 0;
}

/* 1: nothing was ever written to it: it was allocated ahead. A header is written before any batch,
 * and in one sector. */
static int judge_without_header(struct reader *rd, const struct segment *seg)
{
    struct behind behind;
    int r = journal_look_behind(rd->journal, NULL, seg->object, seg->len, 0, 0, &behind);
    if (r < 0)
        return r;
    bool is_blank = seg->len >= SEGMENT_HEADER_LEN && !behind.has_content;
    return is_blank && seg->is_last
               ? 1
               : note_damage_at(rd, seg->number, 0, behind.count, "its header does not verify");
}

static int read_journal_header(struct reader *rd, struct segment *seg)
{
    uint8_t bytes[SEGMENT_HEADER_LEN];
    const struct tier_ops *ops = rd->journal->local->tier->ops;
    int r = ops->stat(rd->journal->local->tier, seg->object, &seg->len);
    if (r < 0)
        return r;
    r = -EUCLEAN;
    for (int i = 0;
         i < READ_TRIES && seg->len >= SEGMENT_HEADER_LEN && (r == -EUCLEAN || r == -EBADMSG);
         i++) {
        r = ops->get_range(rd->journal->local->tier, seg->object, 0, bytes, sizeof bytes);
        if (r < 0)
            return r;
        r = segment_decode_header(bytes, sizeof bytes, &seg->header);
    }
    if (r == -EUCLEAN || r == -EBADMSG)
        return judge_without_header(rd, seg);
    if (r == 0 && (!superblock_has_id(&rd->journal->local->sb, seg->header.store) ||
                   seg->header.number != seg->number))
        return note_damage_at(rd, seg->number, 0, 0,
                              "it is of another journal, or another segment");
    return r;
}

/* 0: read; 1: an empty segment that was only allocated. */
static int read_segment(struct reader *rd, struct segment *seg)
{
    int r = read_journal_header(rd, seg);
    if (r != 0)
        return r;
    const struct segment_header *header = &seg->header;
    if (rd->is_first && rd->from > 0 && header->base_seq <= rd->from) {
        /* Earlier batches are in the snapshot that the anchor names, or in the view, and are
         * compared there. */
        rd->journal->cut_seq = header->base_seq;
        memcpy(rd->journal->chain, header->prev, CHAIN_LEN);
    }
    rd->is_first = false;
    if (header->base_seq != rd->journal->cut_seq ||
        memcmp(header->prev, rd->journal->chain, CHAIN_LEN) != 0) {
        log_error("journal: segment %s does not continue the one before it: batches are missing; "
                  "with a remote, mount an empty "
                  "store on it",
                  seg->object);
        return note_damage_at(rd, seg->number, 0, 0, "it does not continue what comes before it");
    }
    if (header->epoch > rd->journal->epoch)
        rd->journal->epoch = header->epoch;
    r = read_batches(rd, seg);
    rd->journal->segment = seg->number;
    return r;
}

/* Where segment `number` begins, or UINT64_MAX if it has no header. */
static uint64_t base_of_segment(struct journal *journal, uint64_t number)
{
    char object[32];
    uint8_t bytes[SEGMENT_HEADER_LEN];
    struct segment_header header;
    segment_name(number, object);
    for (int i = 0; i < READ_TRIES; i++)
        if (journal->local->tier->ops->get_range(journal->local->tier, object, 0, bytes,
                                                 sizeof bytes) == 0 &&
            segment_decode_header(bytes, sizeof bytes, &header) == 0)
            return header.base_seq;
    return UINT64_MAX;
}

/* The last segment that begins at or before `from`; the first if there is none. */
static size_t first_to_read(struct journal *journal, const struct numbers *numbers, uint64_t from)
{
    size_t i = numbers->of.count ? numbers->of.count - 1 : 0;
    while (i > 0 && base_of_segment(journal, numbers->of.at[i]) > from)
        i--;
    return i;
}

int journal_read(struct journal *journal, uint64_t from,
                 int (*fn)(const struct journal_batch *batch, void *arg), void *arg)
{
    struct numbers numbers = {0};
    struct reader rd = {.journal = journal, .fn = fn, .arg = arg, .is_first = true};
    rd.from = max_u64(from, journal->anchor.exists ? journal->anchor.cut : 0);
    *journal = (struct journal){.local = journal->local,
                                .anchor = journal->anchor,
                                .cut_seq = journal->anchor.cut,
                                .time = journal->anchor.time};
    memcpy(journal->chain, journal->anchor.chain, CHAIN_LEN);
    int r = journal->local->tier->ops->list(journal->local->tier, "journal", NULL, add_number,
                                            &numbers);
    if (r == 0)
        vector_sort(&numbers.of, compare_u64);
    size_t begin = from > 0 ? first_to_read(journal, &numbers, from) : 0;
    for (size_t i = begin; i < numbers.of.count && r >= 0; i++) {
        struct segment seg = {.number = numbers.of.at[i]};
        segment_name(seg.number, seg.object);
        rd.stop_seq =
            i + 1 == numbers.of.count ? UINT64_MAX : base_of_segment(journal, numbers.of.at[i + 1]);
        seg.is_last = rd.stop_seq == UINT64_MAX;
        r = read_segment(&rd, &seg);
        if (r == 1)
            journal->spare = numbers.of.at[i];
    }
    journal->bytes = numbers.bytes;
    vector_free(&numbers.of);
    return r < 0 ? r : 0;
}

struct journal_found journal_found(const struct journal *journal)
{
    struct journal_found found = {.is_empty = journal->segment == 0,
                                  .cut_seq = journal->cut_seq,
                                  .epoch = journal->epoch,
                                  .bytes = journal->bytes,
                                  .time = journal->time,
                                  .damage = journal->damage,
                                  .was_skipped = journal->was_skipped};
    memcpy(found.chain, journal->chain, CHAIN_LEN);
    return found;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* A segment file with room for `need` bytes of batches; the one that was allocated ahead if it is
 * large enough. */
static int make_segment_file(struct journal *journal, uint64_t number, uint64_t need,
                             uint64_t least)
{
    char object[32];
    segment_name(number, object);
    uint64_t room = max_u64(least, align_up(SEGMENT_HEADER_LEN + need, 4096));
    if (journal->spare == number) {
        uint64_t len = 0;
        journal->spare = 0;
        if (journal->local->tier->ops->stat(journal->local->tier, object, &len) == 0 &&
            len >= room) {
            journal->room = len;
            return 0;
        }
        journal->bytes -= min_u64(len, journal->bytes);
        int r = journal->local->tier->ops->remove(journal->local->tier, object);
        if (r < 0)
            return r;
    }
    /* A segment that a failed try left under this number holds nothing. */
    int r = journal->local->tier->ops->remove(journal->local->tier, object);
    if (r == 0)
        r = journal->local->tier->ops->log_create(journal->local->tier, object, room);
    if (r == -EFBIG) { /* a limit of file sizes: as long as need be */
        room = max_u64(FIRST_ROOM, align_up(SEGMENT_HEADER_LEN + need, 4096));
        r = journal->local->tier->ops->log_create(journal->local->tier, object, room);
    }
    if (r == 0) {
        journal->room = room;
        journal->bytes += room;
    }
    return r;
}

/* Room for the next segment, so that deletions can always be recorded. */
static void allocate_ahead(struct journal *journal)
{
    char object[32];
    if (journal->spare)
        return;
    segment_name(journal->segment + 1, object);
    int r = journal->local->tier->ops->log_create(journal->local->tier, object, SEGMENT_ROOM);
    if (r < 0)
        return;
    journal->spare = journal->segment + 1;
    journal->bytes += SEGMENT_ROOM;
}

static int begin_segment(struct journal *journal, uint64_t need, uint64_t least)
{
    uint64_t number = journal->segment + 1;
    int r = make_segment_file(journal, number, need, least);
    if (r < 0)
        return r;
    struct segment_header header = {.number = number,
                                    .epoch = journal->local->epoch,
                                    .base_seq = journal->cut_seq,
                                    .length = journal->room,
                                    .writer = journal->local->sb.writer};
    memcpy(header.store, journal->local->sb.store, sizeof header.store);
    memcpy(header.prev, journal->chain, CHAIN_LEN);
    uint8_t bytes[SEGMENT_HEADER_LEN];
    char object[32];
    segment_encode_header(&header, bytes);
    segment_name(number, object);
    r = journal->local->tier->ops->log_append(journal->local->tier, object, 0, bytes, sizeof bytes);
    if (r < 0) {
        journal->bytes -= min_u64(journal->room, journal->bytes);
        return r;
    }
    journal->segment = number;
    journal->offset = SEGMENT_HEADER_LEN;
    journal->epoch = journal->local->epoch;
    allocate_ahead(journal);
    return 0;
}

int journal_begin(struct journal *journal)
{
    /* The segment allocated ahead holds nothing: it was looked at. */
    if (journal->spare) {
        char object[32];
        segment_name(journal->spare, object);
        int r = journal->local->tier->ops->remove(journal->local->tier, object);
        if (r < 0)
            return r;
        journal->bytes -= min_u64(SEGMENT_ROOM, journal->bytes);
        journal->spare = 0;
    }
    return begin_segment(journal, 0, FIRST_ROOM);
}

/* Header and records as one buffer, so that they are one write. */
static uint8_t *encode_batch(struct journal *journal, uint64_t cut, int64_t time,
                             const void *records, size_t len, uint32_t count, size_t *ret_len)
{
    struct batch_header header = {.payload_len = len,
                                  .payload_crc = crc32_of(0, records, len),
                                  .count = count,
                                  .base_seq = journal->cut_seq,
                                  .cut_seq = cut,
                                  .epoch = journal->local->epoch,
                                  .writer = journal->local->sb.writer,
                                  .time = time};
    memcpy(header.prev, journal->chain, CHAIN_LEN);
    *ret_len = BATCH_HEADER_LEN + align_up(len, 8);
    uint8_t *bytes = xcalloc(1, *ret_len);
    batch_encode_header(&header, bytes);
    journal_batch_tag(journal, bytes, header.tag);
    batch_encode_header(&header, bytes);
    if (len)
        memcpy(bytes + BATCH_HEADER_LEN, records, len);
    return bytes;
}

int journal_append(struct journal *journal, uint64_t cut, int64_t time, const void *records,
                   size_t len, uint32_t count)
{
    size_t batch_len;
    _cleanup_free_ uint8_t *bytes =
        encode_batch(journal, cut, time, records, len, count, &batch_len);
    int r = 0;
    if (journal->offset == 0 || batch_len > journal->room - journal->offset)
        r = begin_segment(journal, batch_len, SEGMENT_ROOM);
    if (r < 0)
        return r;
    char object[32];
    segment_name(journal->segment, object);
    r = journal->local->tier->ops->log_append(journal->local->tier, object, journal->offset, bytes,
                                              batch_len);
    if (r < 0) {
        journal->offset = 0;
        return r;
    }
    chain_over(bytes, records, len, journal->chain);
    journal->offset += batch_len;
    journal->cut_seq = cut;
    return 0;
}

/* --- removing --------------------------------------------------------------------------------- */

int journal_remove_all(struct journal *journal)
{
    struct numbers numbers = {0};
    int r = journal->local->tier->ops->list(journal->local->tier, "journal", NULL, add_number,
                                            &numbers);
    for (size_t i = 0; i < numbers.of.count && r == 0; i++) {
        char object[32];
        segment_name(numbers.of.at[i], object);
        r = journal->local->tier->ops->remove(journal->local->tier, object);
    }
    vector_free(&numbers.of);
    return r < 0 ? r : journal->local->tier->ops->sync(journal->local->tier);
}

/* The journal and the stage's durable number belong to the state before. A follower's own batches
 * have numbers above the head's: if the stage kept their number, the next recovery would take the
 * new journal for one that lost its end. If this fails, the next batch begins a segment. */
int journal_begin_anew(struct journal *journal, const struct head *head)
{
    int r = journal_remove_all(journal);
    journal->offset = journal->room = journal->bytes = journal->spare = 0;
    journal->cut_seq = head->cut;
    memcpy(journal->chain, head->chain, sizeof journal->chain);
    journal_set_anchor(journal, head);
    stage_note_durable(journal->local->stage, head->cut);
    return r < 0 ? r : journal_begin(journal);
}

/* A segment may go when the one after it begins at or before the cut. From the oldest on, so that a
 * crash leaves no gap. */
void journal_trim(struct journal *journal, uint64_t cut)
{
    struct numbers numbers = {0};
    int r = journal->local->tier->ops->list(journal->local->tier, "journal", NULL, add_number,
                                            &numbers);
    if (r == 0)
        vector_sort(&numbers.of, compare_u64);
    size_t end = first_to_read(journal, &numbers, cut);
    for (size_t i = 0; i < end && r == 0 && numbers.of.at[i] < journal->segment; i++) {
        char object[32];
        uint64_t len = 0;
        segment_name(numbers.of.at[i], object);
        r = journal->local->tier->ops->stat(journal->local->tier, object, &len);
        if (r == 0)
            r = journal->local->tier->ops->remove(journal->local->tier, object);
        if (r == 0)
            r = journal->local->tier->ops->sync(journal->local->tier);
        if (r == 0)
            journal->bytes -= min_u64(len, journal->bytes);
    }
    if (r < 0)
        log_warn("journal: segments that are no longer needed could not be removed: %s",
                 strerror(-r));
    vector_free(&numbers.of);
}
