// SPDX-License-Identifier: Apache-2.0
/* Where a batch does not verify: is it the end of the journal, or damage?
 *
 * A batch is durable before the next one is written. So behind one that a crash tore there is no
 * whole batch, and behind one that was damaged later there may be some. What lies behind is
 * searched for batch headers of this store: their tags are made with the store's key, so what users
 * wrote, which lies in records, is never taken for one. */
#include "base/crc.h"
#include "codec/hash.h"
#include "commit/journal_internal.h"
#include "commit/local.h"
#include "tier/tier.h"

#define WINDOW MIB

/* The label hashed beside the header keeps a tag apart from the name of a chunk. */
static const char tag_label[] = "CairnFS journal batch";

void journal_batch_tag(const struct journal *journal, const void *header,
                       uint8_t ret_tag[BATCH_TAG_LEN])
{
    struct iovec iov[2] = {{(void *)(uintptr_t)tag_label, sizeof tag_label},
                           {(void *)(uintptr_t)header, BATCH_TAGGED_LEN}};
    struct chunk_name name = hash_chunk(&journal->local->sb.key, iov, 2);
    _Static_assert(sizeof name.bytes == BATCH_TAG_LEN, "a tag is as long as a name");
    memcpy(ret_tag, name.bytes, BATCH_TAG_LEN);
}

struct search {
    struct journal *journal;
    const struct segment_header *segment;
    const char *object;
    uint64_t len;   /* of the segment's file */
    uint64_t least; /* batches of before do not count */
    uint64_t resume_at;
    struct behind *ret;
};

static int payload_verifies(const struct search *s, uint64_t offset,
                            const struct batch_header *batch)
{
    uint64_t room = s->len - offset - BATCH_HEADER_LEN;
    if (batch->payload_len > room)
        return 0;
    _cleanup_free_ uint8_t *payload = xmalloc(batch->payload_len);
    int r = s->journal->local->tier->ops->get_range(
        s->journal->local->tier, s->object, offset + BATCH_HEADER_LEN, payload, batch->payload_len);
    return r < 0 ? r : crc32_of(0, payload, batch->payload_len) == batch->payload_crc;
}

/* 1: the store wrote this header. Those of version 1 have no tag: there, all else that can be known
 * must fit. */
static int is_genuine(const struct search *s, const uint8_t *bytes, uint64_t offset,
                      struct batch_header *ret)
{
    uint8_t tag[BATCH_TAG_LEN];
    if (batch_decode_header(bytes, BATCH_HEADER_LEN, ret) < 0 || ret->base_seq < s->least ||
        ret->writer != s->journal->local->sb.writer)
        return 0;
    if (s->segment && ret->epoch != s->segment->epoch)
        return 0;
    if (ret->version == 1)
        return !s->segment || s->segment->version == 1 ? payload_verifies(s, offset, ret) : 0;
    journal_batch_tag(s->journal, bytes, tag);
    return memcmp(tag, ret->tag, sizeof tag) == 0;
}

static void journal_damage_note_batch(struct search *s, uint64_t offset,
                                      const struct batch_header *batch)
{
    struct behind *found = s->ret;
    if (found->count++ == 0)
        found->offset = offset;
    found->cut_seq = max_u64(found->cut_seq, batch->cut_seq);
    if (batch->base_seq <= s->resume_at) {
        found->resume_offset = offset;
        found->resume = *batch;
    }
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
    return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

/* `bytes`: those from `at` on, of which headers begin in the first `count`. */
static int search_window(struct search *s, const uint8_t *bytes, size_t len, uint64_t at,
                         size_t count)
{
    if (is_zero(bytes, len))
        return 0;
    s->ret->has_content = true;
    for (size_t i = 0; i < count && i + BATCH_HEADER_LEN <= len; i += 8) {
        struct batch_header batch;
        if (memcmp(bytes + i, "BTCH", 4) != 0)
            continue;
        int r = is_genuine(s, bytes + i, at + i, &batch);
        if (r < 0)
            return r;
        if (r == 1)
            journal_damage_note_batch(s, at + i, &batch);
    }
    return 0;
}

int journal_look_behind(struct journal *journal, const struct segment_header *segment,
                        const char *object, uint64_t len, uint64_t offset, uint64_t resume_at,
                        struct behind *ret)
{
    struct search s = {.journal = journal,
                       .segment = segment,
                       .object = object,
                       .len = len,
                       .resume_at = resume_at,
                       .ret = ret};
    s.least = segment ? journal->cut_seq : 0;
    *ret = (struct behind){0};
    _cleanup_free_ uint8_t *bytes = xmalloc(WINDOW + BATCH_HEADER_LEN);
    int r = 0;
    for (uint64_t at = align_up(offset, 8); at < len && r == 0; at += WINDOW) {
        size_t part = min_u64(len - at, WINDOW + BATCH_HEADER_LEN);
        r = journal->local->tier->ops->get_range(journal->local->tier, object, at, bytes, part);
        if (r == 0)
            r = search_window(&s, bytes, part, at, WINDOW);
    }
    return r;
}

char *journal_explain_damage(const struct journal *journal)
{
    const struct journal_damage *damage = &journal->damage;
    if (!damage->found)
        return NULL;
    _cleanup_free_ char *behind = damage->behind ? xasprintf(", and %llu whole batches behind it",
                                                             (unsigned long long)damage->behind)
                                                 : xstrdup("");
    return xasprintf("segment journal/%016llx is damaged at byte %llu (%s)%s",
                     (unsigned long long)damage->segment, (unsigned long long)damage->offset,
                     damage->what, behind);
}
