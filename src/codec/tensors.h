// SPDX-License-Identifier: Apache-2.0
/* The header of a safetensors file: where its tensors lie. Pure; any thread. */
#pragma once

#include "base/base.h"

/* A longer header is not parsed. One tensor takes about 100 bytes of it. */
#define TENSORS_HEADER_MAX (4u * 1024 * 1024)

/* Whole length of the header that begins with these 9 bytes; 0: not a safetensors file, or one with
 * too long a header. */
size_t tensors_header_len(const uint8_t first[9]);

/* A tensor that a header tells of, at file offsets [start, end). */
struct tensor {
    uint64_t start, end;
    uint64_t name; /* a hash of its name; 0: it has none */
};

/* The tensors of a header of tensors_header_len() bytes, in order of their starts. Those that are
 * empty, and those that make no sense, are not among them. The caller frees *ret_tensors. */
void tensors_list(const uint8_t *header, size_t len, struct tensor **ret_tensors,
                  size_t *ret_count);

/* File offsets at which a grid of chunks begins, ascending: first bytes of tensors, and of what
 * follows them. Tensors shorter than CHUNKER_SEGMENT_MIN only count where enough of them came
 * together. `header` has tensors_header_len() bytes. The caller frees *ret_anchors. A header that
 * makes no sense gives few or none. */
void tensors_parse(const uint8_t *header, size_t len, uint64_t **ret_anchors, size_t *ret_count);
