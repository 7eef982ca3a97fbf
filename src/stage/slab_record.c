// SPDX-License-Identifier: Apache-2.0
/* Write records in slabs: written, and read by a recovery.
 *
 * Slabs are reused without clearing, so bytes after the last record of a slab may be old user data.
 * They are never read: the slab table records how far a slab is filled, and a slab that was
 * received into has one record. A record also has a tag, keyed with a secret of the stage: user
 * data that imitates a record does not verify, wherever it lies. */
#include "base/crc.h"
#include "base/log.h"
#include "stage/internal.h"

#define RECORD_LEN ((uint32_t)sizeof(struct slab_record))

static const uint8_t *tagged_part(const struct slab_record *rec)
{
    return (const uint8_t *)&rec->generation;
}

#define TAGGED_LEN (sizeof(struct slab_record) - offsetof(struct slab_record, generation))

uint64_t slab_record_tag(const struct stage *stage, const struct slab_record *rec, uint32_t slab,
                         uint32_t at)
{
    uint8_t bytes[TAGGED_LEN + 2 * sizeof(uint32_t)];
    memcpy(bytes, tagged_part(rec), TAGGED_LEN);
    memcpy(bytes + TAGGED_LEN, &slab, sizeof slab);
    memcpy(bytes + TAGGED_LEN + sizeof slab, &at, sizeof at);
    return hash_tag(stage->header->secret, bytes, sizeof bytes);
}

void slab_record_write(struct stage *stage, uint32_t slab, uint32_t at, struct slab_record *rec)
{
    rec->tag = slab_record_tag(stage, rec, slab, at);
    /* the payload must be visible before the record that names it */
    atomic_thread_fence(memory_order_release);
    memcpy(slab_at(stage, slab) + at, rec, sizeof *rec);
    atomic_thread_fence(memory_order_release);
}

static uint64_t newest_epoch(const struct stage *stage)
{
    return max_u64(atomic_load(&stage->header->epoch), atomic_load(&stage->header->next_epoch));
}

bool stage_may_have_seq(const struct stage *stage, uint64_t seq)
{
    return seq >> SEQ_EPOCH_SHIFT <= newest_epoch(stage);
}

/* Every write has a unique number, from an epoch of this stage. */
static bool seq_ok(const struct stage *stage, uint64_t seq)
{
    return stage_may_have_seq(stage, seq) && seq >> SEQ_EPOCH_SHIFT >= stage->header->created_epoch;
}

/* Is it the record of a slab that was received into? */
static bool is_received(const struct slab_record *rec, uint32_t at)
{
    return at == 0 && rec->payload == SLAB_PAYLOAD_OFFSET;
}

static bool fields_ok(const struct stage *stage, const struct slab_record *rec, uint32_t slab,
                      uint32_t at)
{
    return rec->generation == atomic_load(&stage->slab_table[slab].generation) && rec->length > 0 &&
           rec->length <= SLAB_PAYLOAD && rec->payload <= SLAB_STRIDE - rec->length &&
           rec->offset <= (uint64_t)INT64_MAX - rec->length && seq_ok(stage, rec->seq) &&
           (rec->payload == at + RECORD_LEN || is_received(rec, at));
}

static uint32_t end_of(const struct slab_record *rec)
{
    return (uint32_t)align_up(rec->payload + rec->length, SLAB_RECORD_ALIGN);
}

static struct slab_record record_at(const struct stage *stage, uint32_t slab, uint32_t at)
{
    struct slab_record rec;
    memcpy(&rec, slab_at(stage, slab) + at, sizeof rec);
    return rec;
}

static int report_damage(uint32_t slab, uint32_t at)
{
    log_error("stage: the write record at byte %u of slab %u is damaged; keep the stage and this "
              "log for a report",
              at, slab);
    return -EBADMSG;
}

static int read_keyed_records(const struct stage *stage, uint32_t slab, uint32_t use,
                              slab_record_fn *fn, void *arg)
{
    bool received = slab_use_state(use) == SLAB_SHARED_RECEIVED;
    uint32_t end = received ? 1 : slab_use_fill(use); /* records begin before this offset */
    if (end > SLAB_STRIDE)
        return -EUCLEAN;
    for (uint32_t at = 0; at < end;) {
        if (at + RECORD_LEN > SLAB_STRIDE)
            return report_damage(slab, at);
        struct slab_record rec = record_at(stage, slab, at);
        if (rec.tag != slab_record_tag(stage, &rec, slab, at) ||
            !fields_ok(stage, &rec, slab, at) || received != is_received(&rec, at))
            return report_damage(slab, at);
        fn(&rec, slab, arg);
        at = end_of(&rec);
    }
    return 0;
}

static bool unkeyed_ok(const struct slab_record *rec)
{
    return rec->unkeyed.magic == SLAB_RECORD_MAGIC &&
           rec->unkeyed.crc == crc32_of(0, tagged_part(rec), TAGGED_LEN);
}

/* The end of the records in a shared slab is not stored: it is the first record that does not
 * verify, and the bytes there may be user data from an earlier use of the slab. A record is
 * accepted only if it has the slab's current generation, a number of the stage's epochs above that
 * of the preceding record, and its payload directly behind it. A user who predicts these can still
 * forge a record of any file, even one they may not open: it changes content that is not durable,
 * or begins a draft. The older daemon stored nothing that distinguishes it from a genuine record.
 * This ends with the recovery, which upgrades the stage. */
static int read_unkeyed(const struct stage *stage, uint32_t slab, slab_record_fn *fn, void *arg)
{
    uint64_t last = 0;
    for (uint32_t at = 0; at + RECORD_LEN <= SLAB_STRIDE;) {
        struct slab_record rec = record_at(stage, slab, at);
        if (!unkeyed_ok(&rec) || !fields_ok(stage, &rec, slab, at) || rec.seq <= last)
            break;
        fn(&rec, slab, arg);
        if (is_received(&rec, at))
            break;
        last = rec.seq;
        at = end_of(&rec);
    }
    return 0;
}

int slab_records_read(const struct stage *stage, uint32_t slab, slab_record_fn *fn, void *arg)
{
    uint32_t use = atomic_load(&stage->slab_table[slab].use);
    switch (slab_use_state(use)) {
    case SLAB_SHARED_FREE:
        return 0;
    case SLAB_SHARED_USED:
    case SLAB_SHARED_RECEIVED:
        return atomic_load(&stage->header->version) == STAGE_VERSION_UNKEYED
                   ? read_unkeyed(stage, slab, fn, arg)
                   : read_keyed_records(stage, slab, use, fn, arg);
    }
    log_error(
        "stage: the state of slab %u is damaged (%#x); keep the stage and this log for a report",
        slab, use);
    return -EUCLEAN;
}
