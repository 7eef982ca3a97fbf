// SPDX-License-Identifier: Apache-2.0
/* If a batch does not verify: is it the end of the journal, or damage?
 *
 * A batch is durable before the next one is written. So after a batch torn by a crash there is no
 * whole batch, but after one damaged later there may be some. The following bytes are searched for
 * batch headers of this store: their tags are made with the store's key, so user data, which is
 * inside records, is never taken for one. */
#include "base/crc.h"
#include "codec/hash.h"
#include "commit/journal_internal.h"
#include "commit/local.h"
#include "tier/tier.h"

#define WINDOW MIB

/* A label hashed with the header separates tags from names of chunks. */
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
    const struct segment *segment;
    uint64_t least; /* earlier batches do not count */
    uint64_t resume_at;
    struct behind *ret;
};

static int payload_verifies(const struct search *s, uint64_t offset,
                            const struct batch_header *batch, bool *ret)
{
    struct tier *tier = s->journal->local->tier;
    *ret = false;
    if (batch->payload_len > s->segment->len - offset - BATCH_HEADER_LEN)
        return 0;
    _cleanup_free_ uint8_t *payload = xmalloc(batch->payload_len);
    TRY(tier->ops->get_range(tier, s->segment->object, offset + BATCH_HEADER_LEN, payload,
                             batch->payload_len));
    *ret = crc32_of(0, payload, batch->payload_len) == batch->payload_crc;
    return 0;
}

/* *ret_is_ours: the store wrote this header. Headers of version 1 have no tag: for these, all other
 * fields must be plausible. */
static int judge_header(const struct search *s, const uint8_t *bytes, uint64_t offset,
                        struct batch_header *ret, bool *ret_is_ours)
{
    const struct segment_header *segment = s->segment->has_header ? &s->segment->header : NULL;
    uint8_t tag[BATCH_TAG_LEN];
    *ret_is_ours = false;
    if (batch_decode_header(bytes, BATCH_HEADER_LEN, ret) < 0 || ret->base_seq < s->least ||
        ret->writer != s->journal->local->sb.writer || (segment && ret->epoch != segment->epoch))
        return 0;
    if (ret->version == 1)
        return !segment || segment->version == 1 ? payload_verifies(s, offset, ret, ret_is_ours)
                                                 : 0;
    journal_batch_tag(s->journal, bytes, tag);
    *ret_is_ours = memcmp(tag, ret->tag, sizeof tag) == 0;
    return 0;
}

static void note_batch(struct search *s, uint64_t offset, const struct batch_header *batch)
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

/* `bytes`: from offset `at` on; headers may begin in the first `count`. */
static int search_window(struct search *s, const uint8_t *bytes, size_t len, uint64_t at,
                         size_t count)
{
    if (is_zero(bytes, len))
        return 0;
    s->ret->has_content = true;
    for (size_t i = 0; i < count && i + BATCH_HEADER_LEN <= len; i += 8) {
        struct batch_header batch;
        bool is_ours;
        if (memcmp(bytes + i, "BTCH", 4) != 0)
            continue;
        TRY(judge_header(s, bytes + i, at + i, &batch, &is_ours));
        if (is_ours)
            note_batch(s, at + i, &batch);
    }
    return 0;
}

int journal_look_behind(struct journal *journal, const struct segment *segment, uint64_t offset,
                        uint64_t resume_at, struct behind *ret)
{
    struct tier *tier = journal->local->tier;
    struct search s = {.journal = journal,
                       .segment = segment,
                       .least = segment->has_header ? journal->cut_seq : 0,
                       .resume_at = resume_at,
                       .ret = ret};
    *ret = (struct behind){0};
    _cleanup_free_ uint8_t *bytes = xmalloc(WINDOW + BATCH_HEADER_LEN);
    for (uint64_t at = align_up(offset, 8); at < segment->len; at += WINDOW) {
        size_t part = min_u64(segment->len - at, WINDOW + BATCH_HEADER_LEN);
        TRY(tier->ops->get_range(tier, segment->object, at, bytes, part));
        TRY(search_window(&s, bytes, part, at, WINDOW));
    }
    return 0;
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
