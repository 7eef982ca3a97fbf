// SPDX-License-Identifier: Apache-2.0
/* Where to split file content into chunks: at tensor starts, then every CHUNK_SIZE_MAX bytes.
 *
 * Tensors are found by a light parse (design: torch zip local headers anywhere in a file that
 * starts as a zip, so torch.save files and DCP's files of many of them; the safetensors header). A
 * tensor of at least CHUNKER_SEGMENT_MIN bytes begins a chunk and ends one, so that what lies
 * between tensors and differs from save to save costs no tensor bytes. Shorter ones share chunks
 * with each other and with the bookkeeping around them, with a border at the next one's start after
 * each CHUNKER_WRITE_MIN bytes.
 *
 * In other content the application's own writes are the borders (`write_starts`): a write of at
 * least CHUNKER_WRITE_MIN bytes begins a chunk, and so does what follows it. Only a write shorter
 * than a chunk and exactly as long as the one before it goes on in that one's chunks: that is a
 * copy through a buffer, not a row of tensors.
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

/* State kept of a file between two calls, so that content that comes in pieces (a large draft, an
 * append) is split as if it had come whole. Zeroed: start of the file, or of content of which
 * nothing is known. */
struct chunker {
    uint8_t kind;         /* 0 unknown yet, then enum in chunker.c: plain, zip, safetensors */
    uint64_t anchor;      /* file offset of the last border that began a grid of CHUNK_SIZE_MAX */
    uint64_t write_start; /* plain: of the last write that begins before the last border */
    uint64_t *tensors;    /* safetensors: where grids begin, owned; see codec/tensors.h */
    size_t tensor_count;
    /* zip that was looked ahead at: all its headers, owned; NULL: they are searched */
    struct marker *markers;
    size_t marker_count;
};

/* Frees what the state owns and zeroes it. */
void chunker_done(struct chunker *state);

/* Before the first call, where the whole file is there: a zip whose directory explains each of its
 * bytes tells where its headers are, and no call has to search for them. The borders are the same,
 * but for what looks like a header within an entry's data (a zip in a zip), which then is data.
 * Other content is left to the calls. */
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
 * length when is_last; otherwise it may be less: the content after it must come again, first, in
 * the next call. Never two borders more than CHUNK_SIZE_MAX apart. `borders_max` is at least length
 * / 512 + 16. Returns the count. */
size_t chunker_find_borders(struct chunker *state, const struct chunker_input *in,
                            uint64_t *borders, size_t borders_max);
