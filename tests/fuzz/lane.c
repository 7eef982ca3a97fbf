// SPDX-License-Identifier: Apache-2.0
/* What any program may say of its lazy saves. */
#include "fs/lanes.c"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fs_lane lane = {0};
    uint8_t *copy = exact_copy(data, size);
    int r = parse_lane(copy, size, &lane);
    check(r == 0 || r == -EINVAL);
    check(strnlen(lane.error, sizeof lane.error) < sizeof lane.error);
    check(r < 0 || (size <= TEXT_MAX && memcmp(copy, "1 pending=", 10) == 0));
    if (r == 0) {
        /* Written again it says the same. */
        struct fs_lane again = {0};
        _cleanup_free_ char *text = xasprintf(
            "1 pending=%llu saves=%llu blocked_ns=%llu published=%llu failed=%llu error=%s",
            (unsigned long long)lane.pending_bytes, (unsigned long long)lane.pending_saves,
            (unsigned long long)lane.blocked_ns, (unsigned long long)lane.published,
            (unsigned long long)lane.failed, lane.error);
        check(parse_lane(text, strlen(text), &again) == 0 &&
              memcmp(&lane, &again, sizeof lane) == 0);
    }
    free(copy);
    return 0;
}
