// SPDX-License-Identifier: Apache-2.0
#include "tier/tier.h"

int tier_remove_all(struct tier *tier, const char *const *objects, size_t count)
{
    int r = 0;
    if (tier->ops->remove_many)
        return tier->ops->remove_many(tier, objects, count);
    for (size_t i = 0; i < count && r == 0; i++)
        r = tier->ops->remove(tier, objects[i]);
    return r;
}

bool tier_error_is_transient(int error)
{
    switch (-error) {
    case EAGAIN:
    case EBUSY:
    case EIO:
    case ESTALE:
    case EREMOTEIO:
    case ETIMEDOUT:
    case EPIPE:
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
        return true;
    default:
        return false;
    }
}
