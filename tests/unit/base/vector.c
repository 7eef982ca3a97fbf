// SPDX-License-Identifier: Apache-2.0
#include "base/vector.h"
#include "../expect.h"

#include <signal.h>

DEFINE_VECTOR(numbers, uint64_t);

struct pair {
    uint64_t key;
    char value;
};

static uint64_t sum(const struct numbers *numbers)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < numbers->count; i++)
        sum += numbers->at[i];
    return sum;
}

Test(vector, keeps_what_is_added_while_it_grows)
{
    _cleanup_vector_ struct numbers numbers = {0};
    for (uint64_t i = 0; i < 1000; i++)
        vector_add(&numbers, i);
    expect_u64(numbers.count, 1000);
    expect_u64(sum(&numbers), 999 * 1000 / 2);
    cr_expect(numbers.capacity >= 1000 && numbers.capacity < 2000);
}

Test(vector, an_element_of_its_own_can_be_added)
{
    _cleanup_vector_ struct numbers numbers = {0};
    vector_add(&numbers, 5);
    for (size_t i = 0; i < 100; i++)
        vector_add(&numbers, numbers.at[0]);
    expect_u64(sum(&numbers), 101 * 5);
}

Test(vector, many_are_added_at_once)
{
    static const uint64_t items[] = {1, 2, 3};
    _cleanup_vector_ struct numbers numbers = {0};
    for (size_t i = 0; i < 50; i++)
        vector_add_all(&numbers, items, ARRAY_LEN(items));
    vector_add_all(&numbers, NULL, 0);
    expect_u64(numbers.count, 150);
    expect_u64(sum(&numbers), 300);
}

Test(vector, a_buffer_is_extended)
{
    _cleanup_vector_ struct bytes text = {0};
    cr_assert(bytes_extend(&text, 0));
    expect_u64(text.count, 0);
    for (size_t i = 0; i < 300; i++)
        memset(bytes_extend(&text, i), (int)(i & 0xff), i);
    expect_u64(text.count, 299 * 300 / 2);
    for (size_t i = 0, at = 0; i < 300; at += i++)
        for (size_t j = 0; j < i; j++)
            cr_assert(text.at[at + j] == (i & 0xff));
}

Test(vector, numbers_are_left_once_each)
{
    _cleanup_vector_ struct numbers numbers = {0};
    vector_sort_unique(&numbers);
    expect_u64(numbers.count, 0);
    for (uint64_t i = 0; i < 100; i++)
        vector_add(&numbers, i * 37 % 10);
    vector_sort_unique(&numbers);
    expect_u64(numbers.count, 10);
    for (uint64_t i = 0; i < numbers.count; i++)
        expect_u64(numbers.at[i], i);
}

Test(vector, what_was_reserved_does_not_move)
{
    VECTOR(struct pair) pairs = {0};
    vector_reserve(&pairs, 1000);
    const struct pair *begin = pairs.at;
    for (uint64_t i = 0; i < 1000; i++)
        *vector_next(&pairs) = (struct pair){.key = i};
    expect_ptr(pairs.at, begin);
    vector_free(&pairs);
    expect_ptr(pairs.at, NULL);
    expect_u64(pairs.count, 0);
}

Test(vector, sorted_ones_are_searched)
{
    VECTOR(struct pair) pairs = {0};
    uint64_t wanted = 7;
    vector_sort(&pairs, compare_u64);
    expect_ptr(vector_search(&pairs, &wanted, compare_u64), NULL);
    for (uint64_t i = 20; i-- > 0;)
        vector_add(&pairs,
                   (struct pair){.key = i == 10 ? UINT64_MAX : i, .value = (char)('a' + i)});
    vector_sort(&pairs, compare_u64);
    for (size_t i = 1; i < pairs.count; i++)
        cr_expect(pairs.at[i - 1].key < pairs.at[i].key);
    const struct pair *found = vector_search(&pairs, &wanted, compare_u64);
    cr_assert(found);
    expect_u64((uint64_t)found->value, 'h');
    wanted = 10;
    expect_ptr(vector_search(&pairs, &wanted, compare_u64), NULL);
    vector_free(&pairs);
}

Test(vector, a_length_that_overflows_dies, .signal = SIGABRT)
{
    struct numbers numbers = {0};
    vector_reserve(&numbers, SIZE_MAX / sizeof(uint64_t));
}

Test(vector, an_extension_that_overflows_dies, .signal = SIGABRT)
{
    struct bytes bytes = {0};
    vector_add(&bytes, 1);
    (void)bytes_extend(&bytes, SIZE_MAX);
}
