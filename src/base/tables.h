// SPDX-License-Identifier: Apache-2.0
/* Helpers for uthash tables. */
#pragma once

#include <stdlib.h>
#include <uthash.h>

/* Frees a table and all its elements. */
#define HASH_FREE_ALL(head)                                                                        \
    do {                                                                                           \
        __typeof__(head) hash_at, hash_next;                                                       \
        HASH_ITER(hh, head, hash_at, hash_next)                                                    \
        {                                                                                          \
            HASH_DEL(head, hash_at);                                                               \
            free(hash_at);                                                                         \
        }                                                                                          \
    } while (0)
