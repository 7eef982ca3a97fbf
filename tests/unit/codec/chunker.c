// SPDX-License-Identifier: Apache-2.0
/* The chunker on content made by hand: rules, and the same borders however the content is split. */
#include "codec/chunker.h"

#include "../expect.h"
#include "../base/seeded.h"
#include "files.h"
#include "format/chunk.h"

Test(chunker, empty_and_short_content)
{
    _cleanup_file_ struct file f = {0};
    expect_borders(&f, NULL, 0);
    file_noise(&f, 5);
    expect_borders(&f, (uint64_t[]){5}, 1);
    f.data[0] = 'P', f.data[1] = 'K', f.data[2] = 3, f.data[3] = 4;
    expect_borders(&f, (uint64_t[]){5}, 1);
}

Test(chunker, plain_without_writes_is_a_grid)
{
    _cleanup_file_ struct file f = {0};
    file_noise(&f, 2 * MIB + 7);
    expect_borders(&f, (uint64_t[]){MIB, 2 * MIB, 2 * MIB + 7}, 3);
}

Test(chunker, large_writes_begin_chunks)
{
    _cleanup_file_ struct file f = {0};
    file_write(&f, 100);
    file_write(&f, 8);
    file_write(&f, MIB + 500);
    file_write(&f, 8);
    file_write(&f, 200000);
    file_write(&f, 2 * MIB);
    uint64_t a = 108, b = a + MIB + 500, c = b + 8, d = c + 200000;
    expect_borders(&f, (uint64_t[]){a, a + MIB, b, c, d, d + MIB, d + 2 * MIB}, 7);
}

Test(chunker, small_writes_share_chunks)
{
    _cleanup_file_ struct file f = {0};
    for (int i = 0; i < 200; i++)
        file_write(&f, 10000);
    expect_borders(&f, (uint64_t[]){MIB, 2000000}, 2);
}

Test(chunker, a_copy_through_a_buffer_is_a_grid)
{
    _cleanup_file_ struct file f = {0};
    for (int i = 0; i < 20; i++)
        file_write(&f, 128 * KIB);
    file_write(&f, 100000);
    expect_borders(&f, (uint64_t[]){MIB, 2 * MIB, 20 * 128 * KIB, 20 * 128 * KIB + 100000}, 4);
}

Test(chunker, equal_tensors_of_a_chunk_or_more_are_no_copy)
{
    _cleanup_file_ struct file f = {0};
    file_write(&f, MIB + 10);
    file_write(&f, MIB + 10);
    expect_borders(&f, (uint64_t[]){MIB, MIB + 10, 2 * MIB + 10, 2 * MIB + 20}, 4);
}

Test(chunker, zip_tensors_begin_and_end_chunks)
{
    _cleanup_file_ struct file f = {0};
    file_entry(&f, 300, 50, 16);
    file_entry(&f, MIB + 4096, 20, 16);
    uint64_t first = f.entry_data, first_end = first + MIB + 4096;
    file_entry(&f, 4095, 33, 16);
    file_entry(&f, 4096, 0, 24);
    uint64_t second = f.entry_data, second_end = second + 4096;
    file_entry(&f, 2, 9, 16);
    file_central(&f);
    expect_borders(&f, (uint64_t[]){first, first + MIB, first_end, second, second_end, f.len}, 6);
}

Test(chunker, zip_tensor_before_the_central_directory)
{
    _cleanup_file_ struct file f = {0};
    file_entry(&f, 10000, 50, 16);
    uint64_t data = f.entry_data;
    file_central(&f);
    uint64_t len = f.len;
    expect_borders(&f, (uint64_t[]){data, data + 10000, len}, 3);
    /* Another archive in the same file. */
    file_entry(&f, 5000, 50, 16);
    expect_borders(&f, (uint64_t[]){data, data + 10000, f.entry_data, f.len}, 4);
}

Test(chunker, zip_without_a_descriptor)
{
    _cleanup_file_ struct file f = {0};
    file_entry(&f, 10000, 5, 0);
    uint64_t data = f.entry_data, next = f.len;
    file_entry(&f, 10, 5, 0);
    expect_borders(&f, (uint64_t[]){data, next, f.len}, 3);
}

Test(chunker, zip_small_entries_share_chunks)
{
    _cleanup_file_ struct file f = {0};
    for (int i = 0; i < 100; i++)
        file_entry(&f, 3000, 20, 16);
    _cleanup_borders_ struct borders b = chunk_whole(&f);
    cr_assert(b.count >= 4 && b.count <= 6);
}

Test(chunker, safetensors)
{
    _cleanup_file_ struct file f = {0};
    file_text(&f, "{\"__metadata__\":{\"format\":\"pt\"},"
                  "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1100000,1200000]},"
                  "\"b\":{\"dtype\":\"F32\", \"data_offsets\" : [ 0 , 1099996 ]},"
                  "\"c\":{\"data_offsets\":[1099996,1100000]},"
                  "\"hostile\":{\"data_offsets\":[99999999999999999999,1]},\"x\":\"\\\"data_"
                  "offsets\\\"\"}    ");
    uint64_t base = f.len;
    file_noise(&f, 1200000);
    expect_borders(&f, (uint64_t[]){base, base + MIB, base + 1099996, base + 1100000, f.len}, 5);
}

Test(chunker, safetensors_header_longer_than_the_file)
{
    _cleanup_file_ struct file f = {0};
    file_text(&f, "{\"a\":{\"data_offsets\":[0,5000]}}");
    f.data[2] = 1;
    expect_borders(&f, (uint64_t[]){f.len}, 1);
}

Test(chunker, a_long_held_call_cuts)
{
    _cleanup_file_ struct file f = {0};
    file_text(&f, "{");
    file_noise(&f, CHUNKER_HOLD_MAX - f.len);
    f.data[2] = 0x3f;
    struct chunker state = {0};
    struct iovec iov = {f.data, f.len};
    struct chunker_input in = {.iov = &iov, .iov_count = 1};
    _cleanup_free_ uint64_t *at = xcalloc(f.len / 512 + 16, sizeof *at);
    cr_assert_gt(chunker_find_borders(&state, &in, at, f.len / 512 + 16), 0);
    chunker_done(&state);
}

/* Content from the middle of a file whose beginning is not known. */
Test(chunker, unknown_beginning_is_plain)
{
    _cleanup_file_ struct file f = {0};
    file_entry(&f, 10000, 5, 16);
    struct chunker state = {0};
    struct iovec iov = {f.data, f.len};
    struct chunker_input in = {.iov = &iov, .iov_count = 1, .offset = 777, .is_last = true};
    uint64_t at[100];
    assert_u64(chunker_find_borders(&state, &in, at, 100), 1);
    assert_u64(at[0], 777 + f.len);
}

/* Two calls; the first one ends anywhere about the end of a tensor that ends about where a chunk
 * does. */
Test(chunker, a_call_may_end_within_bookkeeping)
{
    for (size_t len = MIB - 60; len < MIB + 4; len += 3) {
        _cleanup_file_ struct file f = {0};
        file_entry(&f, len, 20, len % 2 ? 16 : 24);
        file_entry(&f, 5000, 20, 16);
        _cleanup_borders_ struct borders whole = chunk_whole(&f);
        for (uint64_t end = f.entry_data - 120; end < f.entry_data + 10; end++) {
            _cleanup_borders_ struct borders pieces = chunk_in_two(&f, end);
            expect_same(&whole, &pieces);
        }
    }
}
