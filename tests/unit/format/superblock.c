// SPDX-License-Identifier: Apache-2.0
#include "format/superblock.h"

#include "../expect.h"
#include "base/cause.h"
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
    assert_i64(superblock_decode(buf, sizeof buf, &out), 0);
    assert_u64(out.version, in.version);
    assert_u64(out.compat, in.compat);
    assert_u64(out.ro_compat, in.ro_compat);
    assert_u64(out.incompat, 0);
    assert_u64(out.writer, in.writer);
    assert_i64(out.created, in.created);
    cr_assert_arr_eq(out.store, in.store, sizeof in.store);
    cr_assert_arr_eq(out.key_id, in.key_id, sizeof in.key_id);
    cr_assert_arr_eq(out.key.bytes, in.key.bytes, sizeof in.key.bytes);
}

Test(superblock, versions_and_features)
{
    struct superblock sb = sample_superblock();
    assert_i64(decode_of(sb), 0);
    sb.version = SUPERBLOCK_VERSION + 1;
    assert_i64(decode_of(sb), -EPROTONOSUPPORT);
    sb = sample_superblock();
    assert_str(cause_text(), "its format has version 2, and this one knows 1");
    sb.incompat = 1ull << 63;
    assert_i64(decode_of(sb), -EPROTONOSUPPORT);
    assert_str(cause_text(), "it needs features that this version does not know: incompat bit 63");
    sb.incompat = ~0ull & ~(1ull << 4 | 1ull << 5 | 1ull << 9);
    assert_i64(decode_of(sb), -EPROTONOSUPPORT);
    cr_assert_not_null(strstr(cause_text(), "incompat bits 8, 10, 11"), "%s", cause_text());
    cr_assert_not_null(strstr(cause_text(), ", 63"), "%s", cause_text());
}

/* What chunks may be encoded as is the caller's to say, and stays through what else changes. */
Test(superblock, encodings)
{
    uint8_t buf[SUPERBLOCK_LEN];
    struct superblock in = sample_adopted_superblock(), out;
    in.incompat = SUPERBLOCK_INCOMPAT_ENCODINGS;
    superblock_encode(&in, buf);
    assert_u64(get_le64(buf + 16), 1 | 4 | 8 | 16 | 32, "history, fx, dense, matrix, ans");
    assert_i64(superblock_decode(buf, sizeof buf, &out), 0);
    superblock_encode(&out, buf);
    assert_u64(get_le64(buf + 16), 1 | 4 | 8 | 16 | 32);
}

/* The feature bit is the encoder's: what the caller says of it does not count. */
Test(superblock, history_of_another_store)
{
    uint8_t buf[SUPERBLOCK_LEN];
    struct superblock in = sample_adopted_superblock(), out;
    superblock_encode(&in, buf);
    assert_u64(get_le64(buf + 16), SUPERBLOCK_INCOMPAT_HISTORY);
    cr_assert_arr_eq(buf + 104, in.history, sizeof in.history);
    assert_i64(superblock_decode(buf, sizeof buf, &out), 0);
    assert_u64(out.incompat, SUPERBLOCK_INCOMPAT_HISTORY);
    cr_assert_arr_eq(out.history, in.history, sizeof in.history);
    cr_assert_arr_eq(out.store, in.store, sizeof in.store);
    memcpy(out.history, out.store, sizeof out.history);
    superblock_encode(&out, buf);
    assert_u64(get_le64(buf + 16), 0, "its own again");
    cr_assert(bytes_are_zero(buf + 104, 16));
}

Test(superblock, history_of_its_own)
{
    uint8_t zeros[SUPERBLOCK_LEN], own[SUPERBLOCK_LEN];
    struct superblock in = sample_superblock(), out;
    superblock_encode(&in, zeros);
    memcpy(in.history, in.store, sizeof in.history);
    in.incompat = SUPERBLOCK_INCOMPAT_HISTORY;
    superblock_encode(&in, own);
    cr_assert_arr_eq(zeros, own, sizeof own, "no history named is its own");
    assert_i64(superblock_decode(own, sizeof own, &out), 0);
    assert_u64(out.incompat, 0);
    cr_assert_arr_eq(out.history, in.store, sizeof in.store);
}

static int decode_with_history(uint64_t incompat, uint64_t compat, const uint8_t history[16])
{
    uint8_t buf[SUPERBLOCK_LEN];
    struct superblock sb = sample_superblock();
    sb.compat = compat;
    superblock_encode(&sb, buf);
    memcpy(buf + 104, history, 16);
    sample_change(buf, sizeof buf, 16, incompat, 8);
    return superblock_decode(buf, sizeof buf, &sb);
}

Test(superblock, number_of_a_node)
{
    uint8_t buf[SUPERBLOCK_LEN];
    struct superblock in = sample_renamed_superblock(), out;
    in.incompat |= SUPERBLOCK_INCOMPAT_NODES;
    in.node = NODE_MAX;
    superblock_encode(&in, buf);
    assert_i64(superblock_decode(buf, sizeof buf, &out), 0);
    assert_u64(out.node, NODE_MAX);
    assert_u64(out.former_count, 2);
    sample_change(buf, sizeof buf, 125, 1, 1);
    assert_i64(superblock_decode(buf, sizeof buf, &out), -EUCLEAN, "numbers have 24 bits");
    in.node = 0;
    in.incompat &= ~SUPERBLOCK_INCOMPAT_NODES;
    superblock_encode(&in, buf);
    sample_change(buf, sizeof buf, 122, 1, 1);
    assert_i64(superblock_decode(buf, sizeof buf, &out), -EUCLEAN, "a number without the bit");
}

Test(superblock, history_and_its_bit_go_together)
{
    static const uint8_t zeros[16];
    struct superblock own = sample_superblock(), other = sample_adopted_superblock();
    for (uint64_t compat = 0; compat < 2; compat++) {
        assert_i64(decode_with_history(0, compat, zeros), 0);
        assert_i64(decode_with_history(1, compat, other.history), 0);
        assert_i64(decode_with_history(0, compat, other.history), -EUCLEAN);
        assert_i64(decode_with_history(0, compat, own.store), -EUCLEAN);
        assert_i64(decode_with_history(1, compat, zeros), -EUCLEAN);
        assert_i64(decode_with_history(1, compat, own.store), -EUCLEAN);
        assert_i64(decode_with_history(1 | 256, compat, other.history), -EPROTONOSUPPORT);
    }
}

Test(superblock, reserved_bytes)
{
    uint8_t buf[SUPERBLOCK_LEN];
    struct superblock in = sample_superblock(), out;
    assert_i64(sample_decode_changed(SAMPLE_SUPERBLOCK, 2000, 1, 1), -EUCLEAN);
    in.compat = 1;
    superblock_encode(&in, buf);
    sample_change(buf, sizeof buf, 2000, 1, 1);
    assert_i64(superblock_decode(buf, sizeof buf, &out), 0,
               "fields of a feature that need not be known");
    sample_change(buf, sizeof buf, 8, 0, 4);
    assert_i64(superblock_decode(buf, sizeof buf, &out), -EUCLEAN, "version 0");
}

Test(superblock, former_ids)
{
    uint8_t buf[SUPERBLOCK_LEN];
    struct superblock in = sample_renamed_superblock(), out;
    superblock_encode(&in, buf);
    assert_i64(superblock_decode(buf, sizeof buf, &out), 0);
    assert_u64(out.incompat, SUPERBLOCK_INCOMPAT_HISTORY | SUPERBLOCK_INCOMPAT_FORMER);
    assert_u64(out.former_count, 2);
    cr_assert_arr_eq(out.former, in.former, sizeof in.former);
    cr_expect(superblock_has_id(&out, in.store) && superblock_has_id(&out, in.former[0]) &&
              superblock_has_id(&out, in.former[1]));
    cr_expect_not(superblock_has_id(&out, in.history));
    for (unsigned count = 0; count <= SUPERBLOCK_FORMER_MAX + 1; count++) {
        sample_change(buf, sizeof buf, 120, count, 2);
        bool fits = count >= 2 && count <= SUPERBLOCK_FORMER_MAX;
        expect_i64(superblock_decode(buf, sizeof buf, &out), fits ? 0 : -EUCLEAN, "%u", count);
    }
}
