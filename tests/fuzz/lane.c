// SPDX-License-Identifier: Apache-2.0
/* What any program may say of its lazy saves. */
#include "fs/lanes.c"

#include "fuzz.h"

/* Written again it says the same. */
static void check_again(const struct fs_lane *lane, bool is_of_steps)
{
    struct fs_lane again = {0};
    bool is_again = false;
    _cleanup_free_ char *text =
        is_of_steps
            ? xasprintf("2 step_ns=%llu cost_ns=%llu", (unsigned long long)lane->step_ns,
                        (unsigned long long)lane->save_cost_ns)
            : xasprintf("1 pending=%llu saves=%llu blocked_ns=%llu published=%llu "
                        "failed=%llu error=%s",
                        (unsigned long long)lane->pending_bytes,
                        (unsigned long long)lane->pending_saves,
                        (unsigned long long)lane->blocked_ns, (unsigned long long)lane->published,
                        (unsigned long long)lane->failed, lane->error);
    check(parse_report(text, strlen(text), &again, &is_again) == 0 && is_again == is_of_steps &&
          memcmp(lane, &again, sizeof again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fs_lane lane = {0};
    bool is_of_steps = false;
    uint8_t *copy = exact_copy(data, size);
    int r = parse_report(copy, size, &lane, &is_of_steps);
    check(r == 0 || r == -EINVAL);
    check(strnlen(lane.error, sizeof lane.error) < sizeof lane.error);
    check(r < 0 || (size <= TEXT_MAX && memcmp(copy, is_of_steps ? "2 " : "1 ", 2) == 0));
    if (r == 0)
        check_again(&lane, is_of_steps);
    free(copy);
    return 0;
}
