// SPDX-License-Identifier: Apache-2.0
/* twin: a chunk of fp32 numbers stored beside the bf16 numbers that they were rounded to.
 * Mixed-precision training saves both: the weights, and the master copy that the optimizer steps
 * on. The bf16 numbers predict the higher half of each fp32, so only the lower halves are stored.
 * The layout is at the top of twin.c. Lossless. Pure; any thread. Calls use up to 192 KiB of
 * stack. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "base/cpu.h"
#include "format/chunk.h"

/* A stretch of the chunk whose bf16 image is known. Neither the stretch nor the image need be
 * aligned. */
struct twin_part {
    const uint8_t *image; /* 2 bytes an element */
    uint32_t at;          /* where in the chunk the first element begins, in bytes */
    uint32_t count;       /* elements, at least 1; 4 bytes each in the chunk */
};

/* A chunk with its parts, 1 to CHUNK_REFS_MAX, in the order of the chunk, without overlap. */
struct twin_chunk {
    const struct twin_part *parts;
    size_t part_count;
    const uint8_t *raw;
    size_t raw_len;
};

/* Working memory that the caller passes to twin_encode(). */
#define TWIN_SCRATCH_LEN (CHUNK_SIZE_MAX / 2)

/* Encodes into `dst`, of which `limit` bytes may be used. Each element that does not round to its
 * element of the image costs 6 bytes more; bytes that no part covers are stored beside. Returns the
 * stored length; 0: it would be more than `limit`. Never writes past `limit` bytes. All levels
 * store the same bytes. */
size_t twin_encode(enum cpu_level level, const struct twin_chunk *chunk, void *scratch, void *dst,
                   size_t limit);

/* Decodes into exactly `raw_len` bytes. `images` are those of the parts, in the same order and of
 * exactly their lengths. `dst` overlaps neither `src` nor an image. -EBADMSG: `src` is no twin of
 * that length with such images. Reads and writes only within the buffers, whatever they contain.
 * Images with other bytes result in other numbers, which the caller detects by the chunk's name. */
CAIRN_MUST_CHECK int twin_decode(enum cpu_level level, const void *src, size_t stored_len,
                                 const struct iovec *images, size_t image_count, void *dst,
                                 size_t raw_len);
