// SPDX-License-Identifier: Apache-2.0
#include "tier/tier.h"

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
