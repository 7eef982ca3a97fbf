// SPDX-License-Identifier: Apache-2.0
#include "format/prefix.h"

#include "../expect.h"
#include "samples.h"

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

Test(prefix_info, versions_and_features)
{
    static const struct change changes[] = {
        {8, PREFIX_INFO_VERSION, 4, 0, "this version"},
        {8, PREFIX_INFO_VERSION + 1, 4, -EPROTONOSUPPORT, "a later version"},
        {8, 0, 4, -EUCLEAN, "version 0"},
        {12, 1, 4, -EUCLEAN, "reserved"},
    };
    expect_changes(SAMPLE_PREFIX_INFO, changes, ARRAY_LEN(changes));
    for (unsigned bit = 0; bit < 64; bit++) {
        bool is_known = bit >= 2 && bit <= 6;
        assert_i64(sample_decode_changed(SAMPLE_PREFIX_INFO, 16, 1ull << bit, 8),
                   is_known ? 0 : -EPROTONOSUPPORT, "fx, dense, matrix, ans and nodes are known");
        assert_i64(sample_decode_changed(SAMPLE_PREFIX_INFO, 24, 1ull << bit, 8), 0);
        assert_i64(sample_decode_changed(SAMPLE_PREFIX_INFO, 32, 1ull << bit, 8), 0);
    }
    assert_i64(sample_decode_changed(SAMPLE_PREFIX_INFO, 104, 1, 1), -EUCLEAN);
    assert_i64(sample_decode_changed(SAMPLE_PREFIX_INFO, 251, 1, 1), -EUCLEAN);
    uint8_t buf[PREFIX_INFO_LEN];
    struct prefix_info info = sample_prefix_info();
    info.compat = 1;
    prefix_info_encode(&info, buf);
    sample_change(buf, sizeof buf, 251, 1, 1);
    assert_i64(prefix_info_decode(buf, sizeof buf, &info), 0,
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

Test(lease, fields_are_checked)
{
    static const struct change changes[] = {
        {8, LEASE_VERSION, 4, 0, "this version"},
        {8, LEASE_VERSION + 1, 4, -EPROTONOSUPPORT, "a later version"},
        {8, 0, 4, -EUCLEAN, "version 0"},
        {12, 1, 4, -EUCLEAN, "reserved"},
        {48, (1 << 24) - 1, 8, 0, ""},
        {48, 1 << 24, 8, -EUCLEAN, "epochs have 24 bits"},
        {56, 0, 1, -EUCLEAN, "a holder that goes on after its end"},
        {183, 'x', 1, -EUCLEAN, "after the holder's end"},
        {184, 1, 1, -EUCLEAN, "reserved"},
        {251, 1, 1, -EUCLEAN, "reserved"},
    };
    expect_changes(SAMPLE_LEASE, changes, ARRAY_LEN(changes));
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
    assert_u64(out.lease_ms, in.lease_ms);
    assert_u64(out.clock_error_ms, in.clock_error_ms);
    assert_str(out.holder, in.holder);
}

Test(writer_entry, fields_are_checked)
{
    static const struct change changes[] = {
        {8, WRITER_ENTRY_VERSION + 1, 4, -EPROTONOSUPPORT, "a later version"},
        {12, 0, 4, 0, "a lease that is not known"},
        {48, 7, 8, 0, "the daemon that joined"},
        {48, 6, 8, -EUCLEAN, "an epoch above its number"},
        {48, 1 << 24, 8, -EUCLEAN, "numbers have 24 bits"},
        {56, 0, 8, -EUCLEAN, ""},
        {64, 0, 4, 0, "of the prefix's first writer"},
        {64, 8, 4, -EUCLEAN, "a first epoch above this one"},
        {195, 'x', 1, -EUCLEAN, "a holder that goes on"},
        {196, 0, 4, 0, "a clock of which nothing is known"},
        {200, 1, 1, -EUCLEAN, "reserved"},
        {251, 1, 1, -EUCLEAN, "reserved"},
    };
    expect_changes(SAMPLE_WRITER_ENTRY, changes, ARRAY_LEN(changes));
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
}

Test(ended, fields_are_checked)
{
    static const struct change changes[] = {
        {8, ENDED_VERSION + 1, 4, -EPROTONOSUPPORT, "a later version"},
        {12, 0, 4, -EUCLEAN, ""},
        {12, ENDED_BY_HAND, 4, 0, ""},
        {12, ENDED_BY_HAND + 1, 4, -EUCLEAN, ""},
        {32, 0, 8, -EUCLEAN, ""},
        {32, 1 << 24, 8, -EUCLEAN, ""},
        {40, 0, 8, 0, "by no writer"},
        {40, 1 << 24, 8, -EUCLEAN, ""},
        {56, 1, 1, -EUCLEAN, "reserved"},
    };
    expect_changes(SAMPLE_ENDED, changes, ARRAY_LEN(changes));
}
