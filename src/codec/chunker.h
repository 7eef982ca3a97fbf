// SPDX-License-Identifier: Apache-2.0
/* Where to split file content into chunks: at tensor starts, then every CHUNK_SIZE_MAX bytes.
 *
 * Tensors are found by a light parse (design: torch zip local headers anywhere in a file that
 * starts as a zip, so both torch.save files and DCP's files, which hold many of them; the
 * safetensors header). A tensor of at least CHUNKER_SEGMENT_MIN bytes begins a chunk and ends one,
 * so that the bytes between tensors, which differ from save to save, cost no tensor bytes. Shorter
 * tensors share chunks with each other and with the bookkeeping around them, with a border at the
 * start of the next tensor after each CHUNKER_WRITE_MIN bytes.
 *
 * In other content the application's own writes are the borders (`write_starts`): a write of at
 * least CHUNKER_WRITE_MIN bytes begins a chunk, and so does the content after it. Only a write
 * shorter than a chunk and exactly as long as the write before it continues the chunks of that
 * write: this is a copy through a buffer, not a row of tensors.
 *
 * The result depends on the content and the write borders only, never on how the content is split
 * into iovecs or calls, and (for zip and safetensors) not on where in the file the tensors lie.
 * Pure; any thread. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"

struct marker;

#define CHUNKER_WRITE_MIN (64u * 1024)
#define CHUNKER_SEGMENT_MIN 4096u
/* a call with this much content finds a border at least */
#define CHUNKER_HOLD_MAX (8u * 1024 * 1024)

/* State of a file that is kept between two calls, so that content that arrives in pieces (a large
 * draft, an append) is split as if it had arrived whole. Zeroed: start of the file, or of content
 * without known earlier content. */
struct chunker {
    uint8_t kind;         /* 0 unknown yet, then enum in chunker.c: plain, zip, safetensors */
    uint64_t anchor;      /* file offset of the last border that began a grid of CHUNK_SIZE_MAX */
    uint64_t write_start; /* plain: of the last write that begins before the last border */
    uint64_t *tensors;    /* safetensors: where grids begin, owned; see codec/tensors.h */
    size_t tensor_count;
    /* zip, after chunker_look_ahead(): all headers, owned; NULL: the calls search for headers */
    struct marker *markers;
    size_t marker_count;
};

/* Frees the members of the state and zeroes it. */
void chunker_done(struct chunker *state);

/* Called before the first call where the whole file is in memory: if the directory of a zip
 * explains each byte of the file, the headers are taken from the directory, and no call has to
 * search for them. The borders are the same, except that bytes within an entry's data that look
 * like a header (a zip in a zip) are then treated as data. Other content is left to the calls. */
void chunker_look_ahead(struct chunker *state, const struct iovec *iov, size_t iov_count);

struct chunker_input {
    const struct iovec *iov; /* consecutive content, all memory-resident */
    size_t iov_count;
    uint64_t offset; /* file offset of the first byte */
    /* ascending file offsets within the content where application writes begin */
    const uint64_t *write_starts;
    size_t write_count;
    bool is_last; /* false: more content of this file follows directly; the tail may be held back */
};

/* Appends to `borders` the ascending file offsets at which chunks END. The last one is offset +
 * length when is_last; otherwise it may be less: the content after it must be passed again, first,
 * in the next call. Two borders are never more than CHUNK_SIZE_MAX apart. `borders_max` is at least
 * length / 512 + 16. Returns the count. */
size_t chunker_find_borders(struct chunker *state, const struct chunker_input *in,
                            uint64_t *borders, size_t borders_max);
