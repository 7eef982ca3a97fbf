// SPDX-License-Identifier: Apache-2.0
/* Finds the stretches of an fp32 chunk that have their bf16 image in another chunk, whatever the
 * files are like: an index of landmarks, places that bf16 content itself chooses, about one in 22
 * KB. The fp32 chunk is rounded, has the same landmarks, and from each that is known the match
 * grows in both directions. So slices that cross tensors are found, too, and numbers that are not
 * aligned. The first element of a chunk is one, too: tensors begin chunks, and short ones may have
 * no other. So are the last ones of a longer chunk; where they end is looked for next to what was
 * found. An index has one user at a time; nothing here waits. */
#pragma once

#include "base/base.h"
#include "base/cpu.h"
#include "codec/fx.h"
#include "format/chunk.h"

#define TWIN_INDEX_MIN (128u * 1024) /* bytes */
#define TWIN_STRETCH_MIN 1024u       /* elements of a match; fewer are not worth a reference */

struct twin_index;

/* Takes at most about 1 MB for each GB that is added or allowed for, and never more than
 * `bytes_max`, at least TWIN_INDEX_MIN: then the oldest landmarks go. */
struct twin_index *twin_index_new(size_t bytes_max);
void twin_index_free(struct twin_index *index);

/* So many bytes came that are no image, and may have theirs here: the index may take as much for
 * them as for images. A search may go on meanwhile. */
void twin_index_allow(struct twin_index *index, size_t len);

/* Memory that it takes now. */
size_t twin_index_bytes(const struct twin_index *index);

/* Adds a chunk that may be an image, if it has elements of 2 bytes. `guess` is what fx_look() says
 * of it; `tag` is what the caller calls it. Nothing of the bytes is kept. */
void twin_index_add(struct twin_index *index, enum cpu_level level, const struct fx_guess *guess,
                    const void *bytes, size_t len, uint64_t tag);

/* A stretch of the probed chunk, and where its image lies. */
struct twin_match {
    uint64_t tag;
    uint32_t offset; /* of the image in its chunk, in bytes */
    uint32_t at;     /* of the stretch in the probed chunk, in bytes */
    uint32_t count;  /* elements */
};

/* The calls by which the caller hands out chunks that it added. */
struct twin_images {
    /* The raw bytes of a chunk; NULL: they cannot be had. They stay until the next call. */
    const uint8_t *(*get)(void *arg, uint64_t tag, size_t *ret_len);
    void *arg;
};

#define TWIN_GETS_MAX 16u /* images that are asked for to probe one chunk */

/* Finds the longest matches of a chunk, in its order, none over another one; returns how many. None
 * unless it has elements of 4 bytes, as `guess` says. Images are asked for only where landmarks are
 * known, so a chunk without a twin costs one pass over it. */
size_t twin_find(const struct twin_index *index, enum cpu_level level, const struct fx_guess *guess,
                 const void *src, size_t raw_len, const struct twin_images *images,
                 struct twin_match ret[CHUNK_REFS_MAX]);
