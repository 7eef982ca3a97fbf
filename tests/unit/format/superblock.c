#include "format/superblock.h"

#include <criterion/criterion.h>

#include "../base/seeded.h"
#include "base/crc.h"
#include "format/le.h"
#include "samples.h"

static int decode_of(struct superblock in)
{
    uint8_t buf[SUPERBLOCK_LEN];
    struct superblock out;
    superblock_encode(&in, buf);
    return superblock_decode(buf, sizeof buf, &out);
}

Test(superblock, round_trips)
{
    uint8_t buf[SUPERBLOCK_LEN];
    struct superblock in = sample_superblock(), out;
    in.compat = 4;
    in.ro_compat = 2;
    memset(buf, 0xee, sizeof buf);
    superblock_encode(&in, buf);
    cr_assert_eq(superblock_decode(buf, sizeof buf, &out), 0);
    cr_assert_eq(out.version, in.version);
    cr_assert_eq(out.compat, in.compat);
    cr_assert_eq(out.ro_compat, in.ro_compat);
    cr_assert_eq(out.incompat, 0);
    cr_assert_eq(out.writer, in.writer);
    cr_assert_eq(out.created, in.created);
    cr_assert_arr_eq(out.store, in.store, sizeof in.store);
    cr_assert_arr_eq(out.key_id, in.key_id, sizeof in.key_id);
    cr_assert_arr_eq(out.key.bytes, in.key.bytes, sizeof in.key.bytes);
}

Test(superblock, versions_and_features)
{
    struct superblock sb = sample_superblock();
    cr_assert_eq(decode_of(sb), 0);
    sb.version = SUPERBLOCK_VERSION + 1;
    cr_assert_eq(decode_of(sb), -EPROTONOSUPPORT);
    sb = sample_superblock();
    sb.incompat = 1ull << 63;
    cr_assert_eq(decode_of(sb), -EPROTONOSUPPORT);
}

Test(superblock, damage)
{
    uint8_t buf[SUPERBLOCK_LEN];
    struct superblock in = sample_superblock(), out;
    superblock_encode(&in, buf);
    cr_assert_eq(superblock_decode(buf, sizeof buf - 1, &out), -EUCLEAN);
    cr_assert_eq(superblock_decode(buf, 0, &out), -EUCLEAN);
    for (size_t i = 0; i < sizeof buf; i++) {
        buf[i] ^= 0x40;
        cr_assert_eq(superblock_decode(buf, sizeof buf, &out), i < 8 ? -EUCLEAN : -EBADMSG);
        buf[i] ^= 0x40;
    }
}

Test(superblock, reserved_bytes)
{
    uint8_t buf[SUPERBLOCK_LEN];
    struct superblock in = sample_superblock(), out;
    superblock_encode(&in, buf);
    buf[2000] = 1;
    put_le32(buf + 4092, crc32_of(0, buf, 4092));
    cr_assert_eq(superblock_decode(buf, sizeof buf, &out), -EUCLEAN);
    in.compat = 1;
    superblock_encode(&in, buf);
    buf[2000] = 1;
    put_le32(buf + 4092, crc32_of(0, buf, 4092));
    cr_assert_eq(superblock_decode(buf, sizeof buf, &out), 0, "fields of a feature that nobody must know");
    put_le32(buf + 8, 0);
    put_le32(buf + 4092, crc32_of(0, buf, 4092));
    cr_assert_eq(superblock_decode(buf, sizeof buf, &out), -EUCLEAN, "version 0");
}

Test(superblock, hostile_bytes)
{
    struct seeded seeded = {4};
    for (int round = 0; round < 5000; round++) {
        size_t len = seeded_below(&seeded, 2) ? SUPERBLOCK_LEN : seeded_below(&seeded, SUPERBLOCK_LEN);
        uint8_t whole[SUPERBLOCK_LEN];
        struct superblock sb = sample_superblock();
        superblock_encode(&sb, whole);
        whole[seeded_below(&seeded, 128)] = (uint8_t)seeded_u64(&seeded);
        if (seeded_below(&seeded, 2))
            put_le32(whole + 4092, crc32_of(0, whole, 4092));
        _cleanup_free_ uint8_t *exact = xmalloc(len);
        memcpy(exact, whole, len);
        int r = superblock_decode(exact, len, &sb);
        cr_assert(r == 0 || r == -EUCLEAN || r == -EBADMSG || r == -EPROTONOSUPPORT);
    }
}
