// SPDX-License-Identifier: Apache-2.0
/* The index of landmarks: from a key, made of the bytes at the landmark, to the places of the
 * newest images that have this key. */
#pragma once

#include "codec/twin_find.h"

#define TWIN_PLACES_MAX 4u

struct twin_place {
    uint64_t tag;
    uint32_t offset; /* of the landmark in the image's chunk, in bytes, less than 2^20 */
};

/* Begins an image. */
void twin_index_begin(struct twin_index *index, size_t len, uint64_t tag);

/* Adds a landmark of the image that was begun last. It is dropped if the image has the same key
 * already, or more landmarks than its share. */
void twin_index_put(struct twin_index *index, uint64_t key, uint32_t offset);

/* Returns the places with this key, newest first. */
size_t twin_index_get(const struct twin_index *index, uint64_t key,
                      struct twin_place ret[TWIN_PLACES_MAX]);
