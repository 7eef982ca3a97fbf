// SPDX-License-Identifier: Apache-2.0
/* Files that look like the tensors of a training, and their chunks made dense in the remote by
 * hand, as an upload with reduce=dense does. */
#pragma once

#include "fetch_fixture.h"
#include "format/chunk.h"

/* A file of bf16 numbers; with another `step`, of numbers a little further on. */
void dense_put_weights(const char *name, unsigned seed, unsigned step, size_t length);
/* The fp32 numbers that those of dense_put_weights() were rounded from: twice as long. */
void dense_put_master(const char *name, unsigned seed, unsigned step, size_t length);
void dense_expect_weights(const char *name, unsigned seed, unsigned step, size_t length);
void dense_expect_master(const char *name, unsigned seed, unsigned step, size_t length);
/* What `length` bytes from `offset` on of such a file are read as: 0 and they are right, or the
 * error. */
int dense_read_weights(const char *name, unsigned seed, unsigned step, uint64_t offset,
                       size_t length);

/* Stores all chunks of the file in a new pack of the remote, as dx of those of `base` at the same
 * place, or as twin beside the image that they are rounded to; `depth`: of each. Returns the pack.
 */
uint64_t dense_place_dx(const char *name, const char *base, unsigned depth);
uint64_t dense_place_twin(const char *name, const char *image, unsigned depth);
/* "base", and "next" as dx of it; NVMe has both still. */
void dense_put_pair(size_t length);
/* How the chunk at this offset of the file lies in the remote now. */
struct chunk_entry dense_entry(const char *name, uint64_t offset);
/* Until the newest head says all that is noted in the view. */
void dense_publish(void);
/* Bytes of the object of a remote pack are exchanged for others: [from, from + length). */
void dense_spoil(uint64_t pack, uint64_t from, uint64_t length);
/* No chunk of a pack on NVMe refers to another; returns how many there are. */
size_t dense_expect_none_local(void);
/* Gets are counted anew. */
void dense_reopen(void);
/* All of it is in the remote, and nowhere else. */
void dense_leave_only_the_remote(void);
