// SPDX-License-Identifier: Apache-2.0
/* Finds the stretches of an fp32 chunk whose bf16 image is in another chunk, independent of file
 * formats: by an index of landmarks, places that the content of bf16 chunks itself determines,
 * about one in 22 KB. The fp32 chunk is rounded, and then has the same landmarks; from each
 * landmark that the index has, the match is extended in both directions. So slices that cross
 * tensors are found, too, and numbers that are not aligned. The first element of a chunk is a
 * landmark, too: tensors begin chunks, and short tensors may have no other landmark. So are the
 * last elements of a longer chunk; ends of images are looked for next to the matches already found.
 * An index has one user at a time; no call blocks. */
#pragma once

#include "base/base.h"
#include "base/cpu.h"
#include "codec/fx.h"
#include "format/chunk.h"

#define TWIN_INDEX_MIN (128u * 1024) /* bytes */
#define TWIN_STRETCH_MIN 1024u       /* elements of a match; fewer are not worth a reference */

struct twin_index;

/* Returns a new, empty index. It uses at most about 1 MB for each GB that is added or allowed for,
 * and never more than `bytes_max`, at least TWIN_INDEX_MIN: beyond that the oldest landmarks are
 * dropped. */
struct twin_index *twin_index_new(size_t bytes_max);
void twin_index_free(struct twin_index *index);

/* Reports `len` bytes that are no image, but may have their image in the index: the index may use
 * as much memory for them as for images. A search may be under way. */
void twin_index_allow(struct twin_index *index, size_t len);

/* Returns the memory that the index uses now. */
size_t twin_index_bytes(const struct twin_index *index);

/* Adds a chunk that may be an image, if it has elements of 2 bytes. `guess` is the one from
 * fx_look() for the chunk; `tag` is the caller's name for the chunk. The bytes are not kept. */
void twin_index_add(struct twin_index *index, enum cpu_level level, const struct fx_guess *guess,
                    const void *bytes, size_t len, uint64_t tag);

/* A stretch of the probed chunk, and the place of its image. */
struct twin_match {
    uint64_t tag;
    uint32_t offset; /* of the image in its chunk, in bytes */
    uint32_t at;     /* of the stretch in the probed chunk, in bytes */
    uint32_t count;  /* elements */
};

/* The calls by which the caller passes in the chunks that it added. */
struct twin_images {
    /* Returns the raw bytes of a chunk; NULL: not available. They stay valid until the next
     * call. */
    const uint8_t *(*get)(void *arg, uint64_t tag, size_t *ret_len);
    void *arg;
};

#define TWIN_GETS_MAX 16u /* images that are fetched to probe one chunk */

/* Finds the longest matches of a chunk, in the order of the chunk, without overlap; returns how
 * many. None unless the chunk has elements of 4 bytes according to `guess`. Images are fetched only
 * where a landmark is in the index, so a chunk without a twin costs one pass over it. */
size_t twin_find(const struct twin_index *index, enum cpu_level level, const struct fx_guess *guess,
                 const void *src, size_t raw_len, const struct twin_images *images,
                 struct twin_match ret[CHUNK_REFS_MAX]);
