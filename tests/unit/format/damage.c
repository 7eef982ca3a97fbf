// SPDX-License-Identifier: Apache-2.0
/* Random damage and hostile bytes, for every object of a prefix. */
#include "../expect.h"
#include "../base/seeded.h"
#include "base/crc.h"
#include "format/le.h"
#include "samples.h"

#define ROOM HEAD_LEN_MAX

static size_t encode_head(uint32_t runs, uint8_t *buf)
{
    struct head head = sample_head(runs);
    return head_encode(&head, buf);
}

static int decode_head(const uint8_t *buf, size_t len)
{
    static struct head head;
    return head_decode(buf, len, &head);
}

static size_t encode_union_head(uint32_t runs, uint8_t *buf)
{
    struct head head = sample_union_head(runs, runs);
    return head_encode(&head, buf);
}

static size_t encode_prefix_info(uint32_t runs, uint8_t *buf)
{
    (void)runs;
    struct prefix_info info = sample_prefix_info();
    prefix_info_encode(&info, buf);
    return PREFIX_INFO_LEN;
}

static int decode_prefix_info(const uint8_t *buf, size_t len)
{
    struct prefix_info info;
    return prefix_info_decode(buf, len, &info);
}

static size_t encode_lease(uint32_t runs, uint8_t *buf)
{
    (void)runs;
    struct lease lease = sample_lease();
    lease_encode(&lease, buf);
    return LEASE_LEN;
}

static int decode_lease(const uint8_t *buf, size_t len)
{
    struct lease lease;
    return lease_decode(buf, len, &lease);
}

static size_t encode_writer_entry(uint32_t runs, uint8_t *buf)
{
    (void)runs;
    struct writer_entry entry = sample_writer_entry();
    writer_entry_encode(&entry, buf);
    return WRITER_ENTRY_LEN;
}

static int decode_writer_entry(const uint8_t *buf, size_t len)
{
    struct writer_entry entry;
    return writer_entry_decode(buf, len, &entry);
}

static size_t encode_ended(uint32_t runs, uint8_t *buf)
{
    (void)runs;
    struct ended ended = sample_ended();
    ended_encode(&ended, buf);
    return ENDED_LEN;
}

static int decode_ended(const uint8_t *buf, size_t len)
{
    struct ended ended;
    return ended_decode(buf, len, &ended);
}

static size_t encode_feed(uint32_t runs, uint8_t *buf)
{
    uint8_t room[FEED_SAMPLE_LEN];
    struct feed feed = sample_feed(runs, room);
    feed_encode(&feed, buf);
    return feed_encoded_len(&feed);
}

static int decode_feed(const uint8_t *buf, size_t len)
{
    static struct feed feed;
    return feed_decode(buf, len, &feed);
}

static const struct object {
    const char *name;
    size_t (*encode)(uint32_t runs, uint8_t *buf); /* runs: up to RUN_LIST_MAX; the length */
    int (*decode)(const uint8_t *buf, size_t len);
} objects[] = {
    {"head", encode_head, decode_head},
    {"head of several nodes", encode_union_head, decode_head},
    {"prefix info", encode_prefix_info, decode_prefix_info},
    {"lease", encode_lease, decode_lease},
    {"writer entry", encode_writer_entry, decode_writer_entry},
    {"ended", encode_ended, decode_ended},
    {"feed", encode_feed, decode_feed},
};

static const struct object *choose(struct seeded *seeded, uint8_t *buf, size_t *ret_len)
{
    const struct object *object = &objects[seeded_below(seeded, ARRAY_LEN(objects))];
    *ret_len = object->encode((uint32_t)seeded_below(seeded, RUN_LIST_MAX + 1), buf);
    return object;
}

Test(damage, flipped_bits_are_found)
{
    struct seeded seeded = {21};
    for (int round = 0; round < 30000; round++) {
        uint8_t buf[ROOM];
        size_t len;
        const struct object *object = choose(&seeded, buf, &len);
        buf[seeded_below(&seeded, len)] ^= (uint8_t)(1u << seeded_below(&seeded, 8));
        int r = object->decode(buf, len);
        cr_assert(r == -EUCLEAN || r == -EBADMSG, "%s: %d", object->name, r);
    }
}

Test(damage, hostile_bytes_never_reach_outside)
{
    struct seeded seeded = {22};
    for (int round = 0; round < 80000; round++) {
        uint8_t whole[ROOM] = {0};
        size_t len;
        const struct object *object = choose(&seeded, whole, &len);
        for (uint64_t flips = 1 + seeded_below(&seeded, 3); flips > 0; flips--)
            whole[seeded_below(&seeded, seeded_below(&seeded, 2) ? min_u64(256, len) : len)] =
                (uint8_t)seeded_u64(&seeded);
        if (seeded_below(&seeded, 3) == 0)
            len = seeded_below(&seeded, ROOM + 1);
        if (len >= 4 && seeded_below(&seeded, 4))
            put_le32(whole + len - 4, crc32_of(0, whole, len - 4));
        _cleanup_free_ uint8_t *exact = xmalloc(len);
        memcpy(exact, whole, len);
        int r = object->decode(exact, len);
        cr_assert(r == 0 || r == -EUCLEAN || r == -EBADMSG || r == -EPROTONOSUPPORT, "%s: %d",
                  object->name, r);
    }
}
