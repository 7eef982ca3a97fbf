// SPDX-License-Identifier: Apache-2.0
/* The header of a safetensors file: where its tensors lie. Pure; any thread. */
#pragma once

#include "base/base.h"

/* A longer header is not parsed. One tensor takes about 100 bytes of it. */
#define TENSORS_HEADER_MAX (4u * 1024 * 1024)

/* Whole length of the header that begins with these 9 bytes; 0: not a safetensors file, or one with
 * too long a header. */
size_t tensors_header_len(const uint8_t first[9]);

/* File offsets at which a grid of chunks begins, ascending: first bytes of tensors, and of what
 * follows them. Tensors shorter than CUT_SEGMENT_MIN only count where enough of them came together.
 * `header` has tensors_header_len() bytes. The caller frees *ret_anchors. A header that makes no
 * sense gives
 * few or none. */
void tensors_parse(const uint8_t *header, size_t len, uint64_t **ret_anchors, size_t *ret_count);
