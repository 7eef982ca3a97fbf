// SPDX-License-Identifier: Apache-2.0
#include "format/prefix.h"

#include <signal.h>

#include "../expect.h"
#include "../base/seeded.h"
#include "base/crc.h"
#include "format/le.h"
#include "samples.h"

static void fix_crc(uint8_t *buf, size_t len)
{
    put_le32(buf + len - 4, crc32_of(0, buf, len - 4));
}

/* --- prefix info ------------------------------------------------------------------------------ */

Test(prefix_info, round_trips)
{
    uint8_t buf[PREFIX_INFO_LEN];
    struct prefix_info in = sample_prefix_info(), out;
    in.compat = 4;
    in.ro_compat = 2;
    memset(buf, 0xee, sizeof buf);
    prefix_info_encode(&in, buf);
    assert_i64(prefix_info_decode(buf, sizeof buf, &out), 0);
    assert_u64(out.version, in.version);
    assert_u64(out.incompat, 0);
    assert_u64(out.ro_compat, in.ro_compat);
    assert_u64(out.compat, in.compat);
    cr_assert_arr_eq(out.history, in.history, sizeof in.history);
    assert_i64(out.created, in.created);
    cr_assert_arr_eq(out.key_id, in.key_id, sizeof in.key_id);
    cr_assert_arr_eq(out.key.bytes, in.key.bytes, sizeof in.key.bytes);
}

Test(prefix_info, damage)
{
    uint8_t buf[PREFIX_INFO_LEN];
    struct prefix_info in = sample_prefix_info(), out;
    prefix_info_encode(&in, buf);
    for (size_t i = 0; i < sizeof buf; i++) {
        assert_i64(prefix_info_decode(buf, i, &out), -EUCLEAN);
        buf[i] ^= 0x40;
        assert_i64(prefix_info_decode(buf, sizeof buf, &out), i < 8 ? -EUCLEAN : -EBADMSG);
        buf[i] ^= 0x40;
    }
}

static int decode_changed_prefix(uint64_t compat, size_t at, uint64_t value, size_t len)
{
    uint8_t buf[PREFIX_INFO_LEN], field[8];
    struct prefix_info info = sample_prefix_info();
    info.compat = compat;
    prefix_info_encode(&info, buf);
    put_le64(field, value);
    memcpy(buf + at, field, len);
    fix_crc(buf, sizeof buf);
    return prefix_info_decode(buf, sizeof buf, &info);
}

Test(prefix_info, versions_and_features)
{
    assert_i64(decode_changed_prefix(0, 8, PREFIX_INFO_VERSION, 4), 0);
    assert_i64(decode_changed_prefix(0, 8, PREFIX_INFO_VERSION + 1, 4), -EPROTONOSUPPORT);
    assert_i64(decode_changed_prefix(0, 8, 0, 4), -EUCLEAN);
    assert_i64(decode_changed_prefix(0, 12, 1, 4), -EUCLEAN);
    for (unsigned bit = 0; bit < 64; bit++) {
        bool is_known = bit >= 2 && bit <= 5;
        assert_i64(decode_changed_prefix(0, 16, 1ull << bit, 8), is_known ? 0 : -EPROTONOSUPPORT,
                   "fx, dense, matrix and ans are known");
        assert_i64(decode_changed_prefix(0, 24, 1ull << bit, 8), 0);
        assert_i64(decode_changed_prefix(0, 32, 1ull << bit, 8), 0);
    }
    assert_i64(decode_changed_prefix(0, 104, 1, 1), -EUCLEAN);
    assert_i64(decode_changed_prefix(0, 251, 1, 1), -EUCLEAN);
    assert_i64(decode_changed_prefix(1, 251, 1, 1), 0,
               "a field of a feature that need not be known");
}

/* --- lease ------------------------------------------------------------------------------------ */

Test(lease, round_trips)
{
    uint8_t buf[LEASE_LEN];
    struct lease in = sample_lease(), out;
    memset(buf, 0xee, sizeof buf);
    lease_encode(&in, buf);
    assert_i64(lease_decode(buf, sizeof buf, &out), 0);
    cr_assert_arr_eq(out.history, in.history, sizeof in.history);
    cr_assert_arr_eq(out.store, in.store, sizeof in.store);
    assert_u64(out.epoch, in.epoch);
    assert_str(out.holder, in.holder);
}

Test(lease, damage)
{
    uint8_t buf[LEASE_LEN];
    struct lease in = sample_lease(), out;
    lease_encode(&in, buf);
    for (size_t i = 0; i < sizeof buf; i++) {
        assert_i64(lease_decode(buf, i, &out), -EUCLEAN);
        buf[i] ^= 0x40;
        assert_i64(lease_decode(buf, sizeof buf, &out), i < 8 ? -EUCLEAN : -EBADMSG);
        buf[i] ^= 0x40;
    }
}

static int decode_changed_lease(size_t at, uint64_t value, size_t len)
{
    uint8_t buf[LEASE_LEN], field[8];
    struct lease lease = sample_lease();
    lease_encode(&lease, buf);
    put_le64(field, value);
    memcpy(buf + at, field, len);
    fix_crc(buf, sizeof buf);
    return lease_decode(buf, sizeof buf, &lease);
}

Test(lease, fields_are_checked)
{
    assert_i64(decode_changed_lease(8, LEASE_VERSION, 4), 0);
    assert_i64(decode_changed_lease(8, LEASE_VERSION + 1, 4), -EPROTONOSUPPORT);
    assert_i64(decode_changed_lease(8, 0, 4), -EUCLEAN);
    assert_i64(decode_changed_lease(12, 1, 4), -EUCLEAN);
    assert_i64(decode_changed_lease(48, (1 << 24) - 1, 8), 0);
    assert_i64(decode_changed_lease(48, 1 << 24, 8), -EUCLEAN, "epochs have 24 bits");
    assert_i64(decode_changed_lease(56, 0, 1), -EUCLEAN, "a holder that goes on after its end");
    assert_i64(decode_changed_lease(183, 'x', 1), -EUCLEAN);
    assert_i64(decode_changed_lease(184, 1, 1), -EUCLEAN);
    assert_i64(decode_changed_lease(251, 1, 1), -EUCLEAN);
}

/* --- writer entry ----------------------------------------------------------------------------- */

Test(writer_entry, round_trips)
{
    uint8_t buf[WRITER_ENTRY_LEN];
    struct writer_entry in = sample_writer_entry(), out;
    memset(buf, 0xee, sizeof buf);
    writer_entry_encode(&in, buf);
    assert_i64(writer_entry_decode(buf, sizeof buf, &out), 0);
    cr_assert_arr_eq(out.history, in.history, sizeof in.history);
    cr_assert_arr_eq(out.store, in.store, sizeof in.store);
    assert_u64(out.number, in.number);
    assert_u64(out.epoch, in.epoch);
    assert_u64(out.node, in.node);
    assert_str(out.holder, in.holder);
    for (size_t i = 0; i < sizeof buf; i++) {
        assert_i64(writer_entry_decode(buf, i, &out), -EUCLEAN);
        buf[i] ^= 0x40;
        assert_i64(writer_entry_decode(buf, sizeof buf, &out), i < 8 ? -EUCLEAN : -EBADMSG);
        buf[i] ^= 0x40;
    }
}

static int decode_changed_entry(size_t at, uint64_t value, size_t len)
{
    uint8_t buf[WRITER_ENTRY_LEN], field[8];
    struct writer_entry entry = sample_writer_entry();
    writer_entry_encode(&entry, buf);
    put_le64(field, value);
    memcpy(buf + at, field, len);
    fix_crc(buf, sizeof buf);
    return writer_entry_decode(buf, sizeof buf, &entry);
}

Test(writer_entry, fields_are_checked)
{
    assert_i64(decode_changed_entry(8, WRITER_ENTRY_VERSION + 1, 4), -EPROTONOSUPPORT);
    assert_i64(decode_changed_entry(12, 1, 4), -EUCLEAN);
    assert_i64(decode_changed_entry(48, 7, 8), 0, "the daemon that joined");
    assert_i64(decode_changed_entry(48, 6, 8), -EUCLEAN, "an epoch above its number");
    assert_i64(decode_changed_entry(48, 1 << 24, 8), -EUCLEAN, "numbers have 24 bits");
    assert_i64(decode_changed_entry(56, 0, 8), -EUCLEAN);
    assert_i64(decode_changed_entry(64, 0, 4), 0, "of the prefix's first writer");
    assert_i64(decode_changed_entry(64, 8, 4), -EUCLEAN, "a first epoch above this one");
    assert_i64(decode_changed_entry(195, 'x', 1), -EUCLEAN, "a holder that goes on");
    assert_i64(decode_changed_entry(196, 1, 1), -EUCLEAN);
    assert_i64(decode_changed_entry(251, 1, 1), -EUCLEAN);
}

/* --- ended epoch ------------------------------------------------------------------------------ */

Test(ended, round_trips)
{
    uint8_t buf[ENDED_LEN];
    struct ended in = sample_ended(), out;
    memset(buf, 0xee, sizeof buf);
    ended_encode(&in, buf);
    assert_i64(ended_decode(buf, sizeof buf, &out), 0);
    cr_assert_arr_eq(out.history, in.history, sizeof in.history);
    assert_i64(out.why, in.why);
    assert_u64(out.epoch, in.epoch);
    assert_u64(out.by, in.by);
    assert_i64(out.time, in.time);
    for (size_t i = 0; i < sizeof buf; i++) {
        assert_i64(ended_decode(buf, i, &out), -EUCLEAN);
        buf[i] ^= 0x40;
        assert_i64(ended_decode(buf, sizeof buf, &out), i < 8 ? -EUCLEAN : -EBADMSG);
        buf[i] ^= 0x40;
    }
}

static int decode_changed_ended(size_t at, uint64_t value, size_t len)
{
    uint8_t buf[ENDED_LEN], field[8];
    struct ended ended = sample_ended();
    ended_encode(&ended, buf);
    put_le64(field, value);
    memcpy(buf + at, field, len);
    fix_crc(buf, sizeof buf);
    return ended_decode(buf, sizeof buf, &ended);
}

Test(ended, fields_are_checked)
{
    assert_i64(decode_changed_ended(8, ENDED_VERSION + 1, 4), -EPROTONOSUPPORT);
    assert_i64(decode_changed_ended(12, 0, 4), -EUCLEAN);
    assert_i64(decode_changed_ended(12, ENDED_BY_HAND, 4), 0);
    assert_i64(decode_changed_ended(12, ENDED_BY_HAND + 1, 4), -EUCLEAN);
    assert_i64(decode_changed_ended(32, 0, 8), -EUCLEAN);
    assert_i64(decode_changed_ended(32, 1 << 24, 8), -EUCLEAN);
    assert_i64(decode_changed_ended(40, 0, 8), 0, "by no writer");
    assert_i64(decode_changed_ended(40, 1 << 24, 8), -EUCLEAN);
    assert_i64(decode_changed_ended(56, 1, 1), -EUCLEAN);
}
