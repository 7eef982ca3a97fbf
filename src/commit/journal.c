// SPDX-License-Identifier: Apache-2.0
/* The journal: segments of batches, each batch one step of the horizon. Invariants:
 *
 * 1. A batch is appended only after every chunk that it names is durable.
 * 2. A batch counts if it is complete and its `prev` continues the chain. Bytes after the last one
 *    that counts are a batch torn by a crash, or else damage (journal_damage.c): then nothing more
 *    is read, and nothing is modified.
 * 3. Every session begins a new segment, so that a torn batch is never overwritten.
 * 4. After a failed append the segment is abandoned, and the batch is written again in the next
 * one. */
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
/* Length of a session's first segment: a session may be short, and its segments stay. */
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

static void numbers_done(struct numbers *numbers)
{
    vector_free(&numbers->of);
}

/* Ascending. */
static int list_segments(struct journal *journal, struct numbers *ret)
{
    struct tier *tier = journal->local->tier;
    TRY(tier->ops->list(tier, "journal", NULL, add_number, ret));
    vector_sort(&ret->of, compare_u64);
    return 0;
}

struct reader {
    struct journal *journal;
    struct tier *tier;
    int (*fn)(const struct journal_batch *batch, void *arg);
    void *arg;
    uint64_t from; /* batches before this need not be read */
    bool is_first;
    /* where the next segment begins: later batches of this one do not count (rule 4) */
    uint64_t stop_seq;
};

static bool batch_continues(const struct reader *rd, const struct batch_header *batch)
{
    return memcmp(batch->prev, rd->journal->chain, CHAIN_LEN) == 0 &&
           batch->base_seq == rd->journal->cut_seq;
}

/* Reads the batch at `offset`. *ret_payload: its records, owned by the caller; NULL: it does not
 * count. */
static int try_batch(struct reader *rd, const struct segment *seg, uint64_t offset,
                     uint8_t header[BATCH_HEADER_LEN], struct journal_batch *ret,
                     uint8_t **ret_payload)
{
    const struct tier_ops *ops = rd->tier->ops;
    *ret_payload = NULL;
    TRY(ops->get_range(rd->tier, seg->object, offset, header, BATCH_HEADER_LEN));
    int r = batch_decode_header(header, BATCH_HEADER_LEN, &ret->header);
    if (r == -EPROTONOSUPPORT)
        return r;
    if (r < 0 || ret->header.payload_len > seg->len - offset - BATCH_HEADER_LEN ||
        !batch_continues(rd, &ret->header))
        return 0;
    _cleanup_free_ uint8_t *payload = xmalloc(ret->header.payload_len);
    TRY(ops->get_range(rd->tier, seg->object, offset + BATCH_HEADER_LEN, payload,
                       ret->header.payload_len));
    if (crc32_of(0, payload, ret->header.payload_len) != ret->header.payload_crc)
        return 0;
    *ret_payload = payload;
    payload = NULL;
    return 0;
}

/* Reads the batch at *offset, and moves *offset past it; *ret_counts: whether it counts. Retries,
 * so that a misread is not taken for the end. */
static int read_batch(struct reader *rd, const struct segment *seg, uint64_t *offset,
                      bool *ret_counts)
{
    uint8_t header[BATCH_HEADER_LEN];
    struct journal_batch batch;
    _cleanup_free_ uint8_t *payload = NULL;
    *ret_counts = false;
    if (seg->len - *offset < BATCH_HEADER_LEN)
        return 0;
    for (int i = 0; i < READ_TRIES && !payload; i++)
        TRY(try_batch(rd, seg, *offset, header, &batch, &payload));
    if (!payload)
        return 0;
    chain_over(header, payload, batch.header.payload_len, batch.chain);
    batch.records = payload;
    TRY(rd->fn ? rd->fn(&batch, rd->arg) : 0);
    memcpy(rd->journal->chain, batch.chain, CHAIN_LEN);
    rd->journal->cut_seq = batch.header.cut_seq;
    rd->journal->time = batch.header.time;
    *offset += BATCH_HEADER_LEN + align_up(batch.header.payload_len, 8);
    *ret_counts = true;
    return 0;
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

/* Call if no batch that counts is at *offset. *ret_goes_on: the segment is damaged there, and
 * reading continues after the damage, at the new *offset; else the segment has ended. */
static int judge_end(struct reader *rd, const struct segment *seg, uint64_t *offset,
                     bool *ret_goes_on)
{
    struct behind behind;
    uint64_t next = *offset + BATCH_HEADER_LEN; /* the next batch begins no earlier */
    TRY(journal_look_behind(rd->journal, seg, next, rd->from, &behind));
    *ret_goes_on = behind.resume_offset > 0 && rd->from > rd->journal->cut_seq;
    if (*ret_goes_on) {
        log_warn("journal: segment %s is damaged from byte %llu on; the view has what it said up "
                 "to byte %llu, where reading goes on",
                 seg->object, (unsigned long long)*offset,
                 (unsigned long long)behind.resume_offset);
        rd->journal->was_skipped = true;
        rd->journal->cut_seq = behind.resume.base_seq;
        memcpy(rd->journal->chain, behind.resume.prev, CHAIN_LEN);
        *offset = behind.resume_offset;
        return 0;
    }
    if (behind.count > 0 || !seg->is_last)
        return note_damage_at(rd, seg->number, *offset, behind.count, "a batch does not verify");
    if (seg->len < seg->header.length)
        return note_damage_at(rd, seg->number, seg->len, 0, "the file is truncated");
    return 0; /* torn by a crash, or never written */
}

static int read_batches(struct reader *rd, const struct segment *seg)
{
    uint64_t offset = SEGMENT_HEADER_LEN;
    bool goes_on = true;
    int r = 0;
    while (r == 0 && goes_on && rd->journal->cut_seq < rd->stop_seq) {
        r = read_batch(rd, seg, &offset, &goes_on);
        if (r == 0 && !goes_on)
            r = judge_end(rd, seg, &offset, &goes_on);
    }
    if (r == -EPROTONOSUPPORT)
        log_error("journal: segment %s has batches of a newer version of CairnFS at byte %llu; use "
                  "that version",
                  seg->object, (unsigned long long)offset);
    return r;
}

/* Was the segment only allocated ahead, and never written? A header is written before any batch,
 * and within one sector. */
static int judge_without_header(struct reader *rd, const struct segment *seg)
{
    struct behind behind;
    TRY(journal_look_behind(rd->journal, seg, 0, 0, &behind));
    if (seg->len >= SEGMENT_HEADER_LEN && !behind.has_content && seg->is_last)
        return 0;
    return note_damage_at(rd, seg->number, 0, behind.count, "its header does not verify");
}

/* A segment without a header was allocated ahead. */
static int read_segment_header(struct reader *rd, struct segment *seg)
{
    uint8_t bytes[SEGMENT_HEADER_LEN];
    TRY(rd->tier->ops->stat(rd->tier, seg->object, &seg->len));
    int r = -EUCLEAN;
    for (int i = 0;
         i < READ_TRIES && seg->len >= SEGMENT_HEADER_LEN && (r == -EUCLEAN || r == -EBADMSG);
         i++) {
        TRY(rd->tier->ops->get_range(rd->tier, seg->object, 0, bytes, sizeof bytes));
        r = segment_decode_header(bytes, sizeof bytes, &seg->header);
    }
    if (r == -EUCLEAN || r == -EBADMSG)
        return judge_without_header(rd, seg);
    seg->has_header = r == 0;
    if (r == 0 && (!superblock_has_id(&rd->journal->local->sb, seg->header.store) ||
                   seg->header.number != seg->number))
        return note_damage_at(rd, seg->number, 0, 0,
                              "it is of another journal, or another segment");
    return r;
}

static int read_segment(struct reader *rd, struct segment *seg)
{
    struct journal *journal = rd->journal;
    const struct segment_header *header = &seg->header;
    TRY(read_segment_header(rd, seg));
    if (!seg->has_header) {
        journal->spare = seg->number;
        return 0;
    }
    if (rd->is_first && rd->from > 0 && header->base_seq <= rd->from) {
        /* earlier batches are in the snapshot that the anchor names, or in the view, which is
         * compared there */
        journal->cut_seq = header->base_seq;
        memcpy(journal->chain, header->prev, CHAIN_LEN);
    }
    rd->is_first = false;
    if (header->base_seq != journal->cut_seq ||
        memcmp(header->prev, journal->chain, CHAIN_LEN) != 0) {
        log_error("journal: segment %s does not continue the one before it: batches are missing; "
                  "with a remote, mount an empty store on it",
                  seg->object);
        return note_damage_at(rd, seg->number, 0, 0, "it does not continue what comes before it");
    }
    journal->epoch = max_u64(journal->epoch, header->epoch);
    int r = read_batches(rd, seg);
    journal->segment = seg->number;
    return r;
}

/* The base number of segment `number`, or UINT64_MAX if it has no header. */
static uint64_t base_of_segment(struct tier *tier, uint64_t number)
{
    char object[32];
    uint8_t bytes[SEGMENT_HEADER_LEN];
    struct segment_header header;
    segment_name(number, object);
    for (int i = 0; i < READ_TRIES; i++)
        if (tier->ops->get_range(tier, object, 0, bytes, sizeof bytes) == 0 &&
            segment_decode_header(bytes, sizeof bytes, &header) == 0)
            return header.base_seq;
    return UINT64_MAX;
}

/* The last segment that begins at or before `from`; the first if there is none. */
static size_t first_to_read(struct tier *tier, const struct numbers *numbers, uint64_t from)
{
    size_t i = numbers->of.count ? numbers->of.count - 1 : 0;
    while (i > 0 && base_of_segment(tier, numbers->of.at[i]) > from)
        i--;
    return i;
}

int journal_read(struct journal *journal, uint64_t from,
                 int (*fn)(const struct journal_batch *batch, void *arg), void *arg)
{
    struct tier *tier = journal->local->tier;
    _cleanup_(numbers_done) struct numbers numbers = {0};
    struct reader rd = {.journal = journal, .tier = tier, .fn = fn, .arg = arg, .is_first = true};
    rd.from = max_u64(from, journal->anchor.exists ? journal->anchor.cut : 0);
    *journal = (struct journal){.local = journal->local,
                                .anchor = journal->anchor,
                                .cut_seq = journal->anchor.cut,
                                .time = journal->anchor.time};
    memcpy(journal->chain, journal->anchor.chain, CHAIN_LEN);
    TRY(list_segments(journal, &numbers));
    journal->bytes = numbers.bytes;
    for (size_t i = from > 0 ? first_to_read(tier, &numbers, from) : 0; i < numbers.of.count; i++) {
        struct segment seg = {.number = numbers.of.at[i]};
        segment_name(seg.number, seg.object);
        rd.stop_seq =
            i + 1 == numbers.of.count ? UINT64_MAX : base_of_segment(tier, numbers.of.at[i + 1]);
        seg.is_last = rd.stop_seq == UINT64_MAX;
        TRY(read_segment(&rd, &seg));
    }
    return 0;
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

/* Creates a segment file with room for `need` bytes of batches; uses the one allocated ahead if it
 * is large enough. */
static int make_segment_file(struct journal *journal, uint64_t number, uint64_t need,
                             uint64_t least)
{
    struct tier *tier = journal->local->tier;
    char object[32];
    segment_name(number, object);
    uint64_t room = max_u64(least, align_up(SEGMENT_HEADER_LEN + need, 4096)), len = 0;
    if (journal->spare == number) {
        journal->spare = 0;
        if (tier->ops->stat(tier, object, &len) == 0 && len >= room) {
            journal->room = len;
            return 0;
        }
        journal->bytes -= min_u64(len, journal->bytes);
    }
    /* a file of this number that is too short, or left by a failed attempt, is empty */
    TRY(tier->ops->remove(tier, object));
    int r = tier->ops->log_create(tier, object, room);
    if (r == -EFBIG) { /* a limit of file sizes: allocates no more than needed */
        room = max_u64(FIRST_ROOM, align_up(SEGMENT_HEADER_LEN + need, 4096));
        r = tier->ops->log_create(tier, object, room);
    }
    if (r < 0)
        return r;
    journal->room = room;
    journal->bytes += room;
    return 0;
}

/* Allocates the next segment, so that deletions can always be recorded. */
static void allocate_ahead(struct journal *journal)
{
    struct tier *tier = journal->local->tier;
    char object[32];
    segment_name(journal->segment + 1, object);
    if (journal->spare || tier->ops->log_create(tier, object, SEGMENT_ROOM) < 0)
        return;
    journal->spare = journal->segment + 1;
    journal->bytes += SEGMENT_ROOM;
}

static int begin_segment(struct journal *journal, uint64_t need, uint64_t least)
{
    uint64_t number = journal->segment + 1;
    TRY(make_segment_file(journal, number, need, least));
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
    struct tier *tier = journal->local->tier;
    int r = tier->ops->log_append(tier, object, 0, bytes, sizeof bytes);
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

static int remove_segment(struct journal *journal, uint64_t number)
{
    char object[32];
    segment_name(number, object);
    return journal->local->tier->ops->remove(journal->local->tier, object);
}

int journal_begin(struct journal *journal)
{
    /* the segment allocated ahead is empty: it was checked */
    if (journal->spare) {
        TRY(remove_segment(journal, journal->spare));
        journal->bytes -= min_u64(SEGMENT_ROOM, journal->bytes);
        journal->spare = 0;
    }
    return begin_segment(journal, 0, FIRST_ROOM);
}

/* Encodes header and records in one buffer, so that they are written together. */
static uint8_t *encode_batch(struct journal *journal, struct batch_header *header,
                             const void *records, size_t *ret_len)
{
    *ret_len = BATCH_HEADER_LEN + align_up(header->payload_len, 8);
    uint8_t *bytes = xcalloc(1, *ret_len);
    batch_encode_header(header, bytes);
    journal_batch_tag(journal, bytes, header->tag);
    batch_encode_header(header, bytes);
    if (header->payload_len)
        memcpy(bytes + BATCH_HEADER_LEN, records, header->payload_len);
    return bytes;
}

int journal_append(struct journal *journal, uint64_t cut, int64_t time, const void *records,
                   size_t len, uint32_t count)
{
    struct tier *tier = journal->local->tier;
    struct batch_header header = {.payload_len = len,
                                  .payload_crc = crc32_of(0, records, len),
                                  .count = count,
                                  .base_seq = journal->cut_seq,
                                  .cut_seq = cut,
                                  .epoch = journal->local->epoch,
                                  .writer = journal->local->sb.writer,
                                  .time = time};
    check(cut >= journal->cut_seq);
    memcpy(header.prev, journal->chain, CHAIN_LEN);
    size_t batch_len;
    _cleanup_free_ uint8_t *bytes = encode_batch(journal, &header, records, &batch_len);
    if (journal->offset == 0 || batch_len > journal->room - journal->offset)
        TRY(begin_segment(journal, batch_len, SEGMENT_ROOM));
    char object[32];
    segment_name(journal->segment, object);
    int r = tier->ops->log_append(tier, object, journal->offset, bytes, batch_len);
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
    _cleanup_(numbers_done) struct numbers numbers = {0};
    TRY(list_segments(journal, &numbers));
    for (size_t i = 0; i < numbers.of.count; i++)
        TRY(remove_segment(journal, numbers.of.at[i]));
    return journal->local->tier->ops->sync(journal->local->tier);
}

/* The journal and the stage's durable number belong to the previous state. Numbers of a follower's
 * own batches are above the head's: if the stage kept their number, the next recovery would take
 * the new journal for one that lost its end. If this fails, the next batch begins a segment. */
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

/* Removes a segment if its successor begins at or before the cut. Oldest first, so that a crash
 * leaves no gap. */
static int remove_before(struct journal *journal, uint64_t cut)
{
    struct tier *tier = journal->local->tier;
    _cleanup_(numbers_done) struct numbers numbers = {0};
    TRY(list_segments(journal, &numbers));
    size_t end = first_to_read(tier, &numbers, cut);
    for (size_t i = 0; i < end && numbers.of.at[i] < journal->segment; i++) {
        char object[32];
        uint64_t len = 0;
        segment_name(numbers.of.at[i], object);
        TRY(tier->ops->stat(tier, object, &len));
        TRY(tier->ops->remove(tier, object));
        TRY(tier->ops->sync(tier));
        journal->bytes -= min_u64(len, journal->bytes);
    }
    return 0;
}

void journal_trim(struct journal *journal, uint64_t cut)
{
    int r = remove_before(journal, cut);
    if (r < 0)
        log_warn("journal: segments that are no longer needed could not be removed: %s",
                 strerror(-r));
}
