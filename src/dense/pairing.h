// SPDX-License-Identifier: Apache-2.0
/* Pairs the chunks of a file with those that stood there in another version of the file. Pure. */
#pragma once

#include "base/vector.h"
#include "codec/tensors.h"
#include "format/chunk.h"

/* A chunk where a file has it. */
struct part {
    struct chunk_name chunk;
    uint64_t offset; /* in the file */
    uint32_t length; /* of the chunk */
};

/* In order of offset. */
DEFINE_VECTOR(parts, struct part);

#define UNPAIRED UINT32_MAX

/* For each part the index of its partner among those of the base, of the same length; or UNPAIRED.
 * `ret` has parts->count elements. No partner is given twice. */

/* By their order and lengths: tensors follow each other in both files, but for some that were put
 * in, taken out or got another length. */
void parts_pair_by_order(const struct parts *parts, const struct parts *base, uint32_t *ret);

/* The tensors of a file, as tensors_list() has them. */
struct tensor_list {
    const struct tensor *at;
    size_t count;
};

/* By the name of the tensor that they begin in and their place in it, wherever in the file
 * that is. */
void parts_pair_by_name(const struct parts *parts, const struct tensor_list *tensors,
                        const struct parts *base, const struct tensor_list *base_tensors,
                        uint32_t *ret);

/* Do both begin with the same chunk, and consist of chunks of the same lengths? Then their order
 * says all: a header is the same. */
bool parts_are_alike(const struct parts *parts, const struct parts *base);
