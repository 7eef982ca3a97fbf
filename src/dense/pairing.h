// SPDX-License-Identifier: Apache-2.0
/* Pairs the chunks of a file with those at the same place in another version of the file. Pure. */
#pragma once

#include "base/vector.h"
#include "codec/tensors.h"
#include "format/chunk.h"

/* A chunk at its place in a file. */
struct part {
    struct chunk_name chunk;
    uint64_t offset; /* in the file */
    uint32_t length; /* of the chunk */
};

/* In order of offset. */
DEFINE_VECTOR(parts, struct part);

#define UNPAIRED UINT32_MAX

/* For each part, finds the index of its partner among the parts of the base, of the same length; or
 * UNPAIRED. `ret` has parts->count elements. No partner is used twice. */

/* By order and lengths: both files contain the same tensors in the same order, except for some
 * inserted, removed or resized ones. */
void parts_pair_by_order(const struct parts *parts, const struct parts *base, uint32_t *ret);

/* The tensors of a file, from tensors_list(). */
struct tensor_list {
    const struct tensor *at;
    size_t count;
};

/* By the name of the tensor in which a part begins and its offset there, wherever the tensor is in
 * the file. */
void parts_pair_by_name(const struct parts *parts, const struct tensor_list *tensors,
                        const struct parts *base, const struct tensor_list *base_tensors,
                        uint32_t *ret);

/* Do both begin with the same chunk, and consist of chunks of the same lengths? Then pairing by
 * order suffices, as equal first chunks imply equal headers. */
bool parts_are_alike(const struct parts *parts, const struct parts *base);
