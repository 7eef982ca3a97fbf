// SPDX-License-Identifier: Apache-2.0
/* twin: a chunk of fp32 numbers beside the bf16 ones that they were rounded to. Mixed-precision
 * training saves both: the weights, and the master copy that the optimizer steps on. The bf16 tell
 * the higher half of each fp32, so what is left are the lower halves. The layout stands at the top
 * of twin.c. Lossless. Pure; any thread. Calls take up to 192 KiB of stack. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "base/cpu.h"
#include "format/chunk.h"

/* A stretch of the chunk whose bf16 image is known. Neither of the two need be aligned. */
struct twin_part {
    const uint8_t *image; /* 2 bytes an element */
    uint32_t at;          /* where in the chunk the first element begins, in bytes */
    uint32_t count;       /* elements, at least 1; 4 bytes each in the chunk */
};

/* A chunk with its parts, 1 to CHUNK_REFS_MAX, in its order, none over another one. */
struct twin_chunk {
    const struct twin_part *parts;
    size_t part_count;
    const uint8_t *raw;
    size_t raw_len;
};

/* Bytes of the caller that twin_encode() works with. */
#define TWIN_SCRATCH_LEN (CHUNK_SIZE_MAX / 2)

/* Encodes into `dst`, of which `limit` bytes may be used. Elements that do not round to their
 * element of the image cost 6 bytes more; bytes that no part covers are stored beside. Returns the
 * stored length; 0: it would be more than `limit`. Never writes past it. The result is the same at
 * all levels. */
size_t twin_encode(enum cpu_level level, const struct twin_chunk *chunk, void *scratch, void *dst,
                   size_t limit);

/* Decodes into exactly `raw_len` bytes. `images` are those of the parts, in the same order and of
 * exactly their lengths. `dst` has no byte in common with `src` or an image. -EBADMSG: `src` is no
 * twin of that length with such images. Reads and writes nothing outside of the buffers, whatever
 * they hold. Images with other bytes give other numbers: the chunk's name tells. */
CAIRN_MUST_CHECK int twin_decode(enum cpu_level level, const void *src, size_t stored_len,
                                 const struct iovec *images, size_t image_count, void *dst,
                                 size_t raw_len);
