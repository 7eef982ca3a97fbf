// SPDX-License-Identifier: Apache-2.0
/* Hash tables of uthash. */
#pragma once

#include <stdlib.h>
#include <uthash.h>

/* Frees a table, and all that is in it. */
#define HASH_FREE_ALL(head)                                                                        \
    do {                                                                                           \
        __typeof__(head) hash_at, hash_next;                                                       \
        HASH_ITER(hh, head, hash_at, hash_next)                                                    \
        {                                                                                          \
            HASH_DEL(head, hash_at);                                                               \
            free(hash_at);                                                                         \
        }                                                                                          \
    } while (0)
