// SPDX-License-Identifier: Apache-2.0
/* Which cases of a campaign run: all where CAIRN_TESTS_FULL is set (tests/run --full), else one of
 * each ten. Which one follows from CAIRN_TESTS_SEED, so that another commit runs others. */
#pragma once

#include <stdlib.h>

#include "base/base.h"
#include "seeded.h"

static inline bool campaign_is_full(void)
{
    return getenv("CAIRN_TESTS_FULL") != NULL;
}

/* Each instruction costs a hundred (tests/cross): what runs whole elsewhere is a campaign there. */
static inline bool campaign_is_emulated(void)
{
    return getenv("CAIRN_TESTS_EMULATED") != NULL;
}

/* The one of `count` cases from number `first` on. */
static inline unsigned campaign_pick(unsigned first, unsigned count)
{
    const char *seed = getenv("CAIRN_TESTS_SEED");
    struct seeded s = {.state = (seed ? strtoull(seed, NULL, 10) << 32 : 0) + first};
    return first + (unsigned)seeded_below(&s, count);
}

/* The next case that runs of `total`; *next is where the search goes on. False: there is none. */
static inline bool campaign_next(unsigned total, unsigned *next, unsigned *ret)
{
    unsigned among = (unsigned)min_u64(campaign_is_full() ? 1 : 10, total - *next);
    if (*next == total)
        return false;
    *ret = campaign_pick(*next, among);
    *next += among;
    return true;
}

#define FOR_CAMPAIGN(i, total) for (unsigned i##_next = 0, i; campaign_next(total, &i##_next, &i);)

/* Does this case run? They are counted in *count, as they come. */
static inline bool campaign_takes(unsigned *count)
{
    unsigned i = (*count)++;
    return campaign_is_full() || campaign_pick(i - i % 10, 10) == i;
}

/* The same, of what is a campaign under emulation alone. */
static inline bool campaign_takes_here(unsigned *count)
{
    return !campaign_is_emulated() || campaign_takes(count);
}
