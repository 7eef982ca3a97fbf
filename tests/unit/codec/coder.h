// SPDX-License-Identifier: Apache-2.0
/* What must hold of every encoding: all levels of instructions make the same bytes, these come back
 * as what they were, a limit is kept, and nothing that is decoded reaches outside. All fail the
 * test that calls them. */
#pragma once

#include "../base/seeded.h"
#include "base/cpu.h"
#include "exact.h"

/* An encoding, with all that it needs besides the content: the struct around it has that. The
 * functions are of one level. */
struct coder {
    /* Returns the stored length; 0: it would be more than `limit`. */
    size_t (*encode)(const struct coder *coder, enum cpu_level level, const uint8_t *raw,
                     size_t raw_len, uint8_t *dst, size_t limit);
    /* 0 or -EBADMSG. */
    int (*decode)(const struct coder *coder, enum cpu_level level, const uint8_t *src, size_t len,
                  uint8_t *dst, size_t raw_len);
};

/* At all levels that the machine has; they must agree. Empty where it does not fit in `limit`. */
struct exact coder_encode(const struct coder *coder, const uint8_t *raw, size_t raw_len,
                          size_t limit);
/* The same result at all levels, and the same bytes where it is 0. */
int coder_decode(const struct coder *coder, const void *stored, size_t len, struct exact *ret,
                 size_t raw_len);
/* The same, of bytes that are not wanted. */
int coder_try(const struct coder *coder, const void *stored, size_t len, size_t raw_len);
/* Returns the stored length, which is a limit that suffices, too; 0: it cannot be coded. */
size_t coder_round_trip(const struct coder *coder, const uint8_t *raw, size_t raw_len);
/* The same; stored bytes for 1,000 raw ones. 1000: it cannot be coded. */
size_t coder_permille(const struct coder *coder, const uint8_t *raw, size_t raw_len);
/* All that is shorter is refused, and content of another length. */
void coder_expect_whole(const struct coder *coder, const struct exact *stored, size_t raw_len);
/* A copy in which up to four bits are others, in even rounds anywhere, else among the first `head`
 * bytes. */
struct exact coder_flip(struct seeded *s, const struct exact *stored, unsigned round, size_t head);
/* `stored` is what the golden file has, and that comes back as `raw`. */
void coder_expect_golden(const struct coder *coder, const char *name, const struct exact *stored,
                         const uint8_t *raw, size_t raw_len);
