// SPDX-License-Identifier: Apache-2.0
#include "tier/tier.h"

int tier_source_read(struct tier_source *source, uint64_t offset, void *buf, size_t len)
{
    int r = source->read(offset, buf, len, source->arg);
    if (r < 0)
        source->error = r;
    return r;
}

int tier_source_each(struct tier_source *source,
                     void (*fn)(const void *bytes, size_t len, void *arg), void *arg)
{
    _cleanup_free_ void *step = xmalloc(TIER_SOURCE_STEP);
    for (uint64_t at = 0; at < source->len; at += TIER_SOURCE_STEP) {
        size_t len = min_u64(TIER_SOURCE_STEP, source->len - at);
        TRY(tier_source_read(source, at, step, len));
        fn(step, len, arg);
    }
    return 0;
}

int tier_put_from(struct tier *tier, const char *object, struct tier_source *source)
{
    source->error = 0;
    if (source->len > TIER_SOURCE_STEP)
        return tier->ops->put_from(tier, object, source);
    _cleanup_free_ void *bytes = aligned_alloc(4096, align_up(max_u64(source->len, 1), 4096));
    check(bytes); /* out of memory */
    int r = tier_source_read(source, 0, bytes, source->len);
    return r < 0 ? r : tier->ops->put(tier, object, bytes, source->len);
}
