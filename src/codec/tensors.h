// SPDX-License-Identifier: Apache-2.0
/* The header of a safetensors file: where its tensors lie. Pure; any thread. */
#pragma once

#include "base/base.h"

/* A longer header is not parsed. One tensor takes about 100 bytes of it. */
#define TENSORS_HEADER_MAX (4u * 1024 * 1024)

/* Returns the whole length of the header that begins with these 9 bytes; 0: not a safetensors file,
 * or the header is too long. */
size_t tensors_header_len(const uint8_t first[9]);

/* A tensor of a header, at file offsets [start, end). */
struct tensor {
    uint64_t start, end;
    uint64_t name; /* a hash of its name; 0: it has no name */
};

/* Lists the tensors of a header of tensors_header_len() bytes, in order of their starts, without
 * empty ones and ones with invalid offsets. The caller frees *ret_tensors. */
void tensors_list(const uint8_t *header, size_t len, struct tensor **ret_tensors,
                  size_t *ret_count);

/* Lists the file offsets at which a grid of chunks begins, ascending: first bytes of tensors, and
 * of the content behind them. Tensors shorter than CHUNKER_SEGMENT_MIN only count where enough of
 * them follow each other. `header` has tensors_header_len() bytes. The caller frees *ret_anchors.
 * An invalid header results in few offsets or none. */
void tensors_parse(const uint8_t *header, size_t len, uint64_t **ret_anchors, size_t *ret_count);
