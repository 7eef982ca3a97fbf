// SPDX-License-Identifier: Apache-2.0
#include "codec/stream.h"

#include "../expect.h"
#include "numbers.h"

#define MOST 20000u
#define EDGE 200u

Test(stream, it_copies_just_what_is_asked)
{
    static uint8_t from[MOST + EDGE], to[MOST + 2 * EDGE], wanted[MOST + 2 * EDGE];
    struct seeded s = {1};
    seeded_fill(&s, from, sizeof from);
    for (unsigned round = 0; round < 4000; round++) {
        size_t len = seeded_below(&s, round % 2 ? MOST : 4500), skip = seeded_below(&s, EDGE),
               at = seeded_below(&s, EDGE);
        memset(to, (int)round, sizeof to);
        memset(wanted, (int)round, sizeof wanted);
        memcpy(wanted + at, from + skip, len);
        stream_copy(to + at, from + skip, len);
        cr_assert_arr_eq(to, wanted, sizeof to, "%zu bytes from %zu to %zu", len, skip, at);
    }
}
