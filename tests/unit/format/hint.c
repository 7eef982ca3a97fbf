// SPDX-License-Identifier: Apache-2.0
/* Hints: which texts are some, and which numbers they have. */
#include "format/hint.h"
#include "../expect.h"

Test(hint, numbers)
{
    const char *text = "1 0 18446744073709551615 42";
    const uint64_t wanted[] = {0, UINT64_MAX, 42};
    size_t at = 0, count = 0;
    uint64_t number;
    cr_assert(hint_is_valid(text, strlen(text)));
    for (; hint_next(text, strlen(text), &at, &number); count++)
        assert_u64(number, wanted[count]);
    assert_u64(count, ARRAY_LEN(wanted));
}

Test(hint, other_texts)
{
    static const char *const texts[] = {"",      "1",    "1 ",   "2 5",
                                        "1 5 ",  " 1 5", "1  5", "1 -5",
                                        "1 5,6", "1 x",  "15",   "1 18446744073709551616"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        cr_assert_not(hint_is_valid(texts[i], strlen(texts[i])), "%s", texts[i]);
    cr_assert_not(hint_is_valid("1 5\0", 4));
}

Test(hint, records)
{
    struct record rec = {.type = REC_SETXATTR, .name = HINT_XATTR, .name_len = strlen(HINT_XATTR)};
    cr_assert(record_is_hint(&rec));
    rec.name_len--;
    cr_assert_not(record_is_hint(&rec));
    rec = (struct record){
        .type = REC_REMOVEXATTR, .name = HINT_XATTR, .name_len = strlen(HINT_XATTR)};
    cr_assert_not(record_is_hint(&rec));
}
