// SPDX-License-Identifier: Apache-2.0
/* The policy of -o keep, the same as restic's: each rule goes from the newest state to the oldest,
 * and chooses the first state of each hour, day or week that it meets, until it has chosen as many
 * as its number. */
#include "base/clock.h"
#include "snapshots/policy.h"

#define HOUR (3600 * SECOND_NS)
#define DAY (24 * HOUR)
#define MONDAY (3 * DAY) /* 1970 began on a Thursday */

struct rule {
    uint32_t left;
    int64_t unit, shift;
    int64_t last; /* the newest unit of time of which it chose a state; -1: none yet */
};

static bool rule_chooses(struct rule *rule, int64_t published)
{
    int64_t unit = (published + rule->shift) / rule->unit;
    if (rule->left == 0 || unit == rule->last)
        return false;
    rule->left--;
    rule->last = unit;
    return true;
}

void keep_choose(const struct head_keep *keep, struct keep_state *states, size_t count)
{
    struct rule rules[] = {{keep->hourly, HOUR, 0, -1},
                           {keep->daily, DAY, 0, -1},
                           {keep->weekly, 7 * DAY, MONDAY, -1}};
    uint32_t last = keep->last;
    for (size_t i = count; i-- > 0;) {
        states[i].stays = false;
        if (i + 1 < count && states[i + 1].cut == states[i].cut)
            continue;
        bool stays = last > 0;
        last -= stays;
        for (size_t k = 0; k < ARRAY_LEN(rules); k++)
            stays = rule_chooses(&rules[k], states[i].published) || stays;
        states[i].stays = stays;
    }
}
