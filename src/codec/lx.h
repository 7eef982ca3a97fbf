// SPDX-License-Identifier: Apache-2.0
/* lx: a prefix code for bytes of which few values are frequent. fx codes the planes of floats with
 * it, dx the lengths of differences. The layout is at the top of lx.c. Pure; any thread. */
#pragma once

#include "base/base.h"
#include "codec/fx_kernels.h"
#include "format/le.h"

#define LX_VALUES_MAX 16384u /* values of one lx_put() */
#define LX_LEVELS_MAX 6u
#define LX_BITS_MAX 4u

struct lx_code {
    uint8_t levels;   /* 0: there is no code */
    bool is_in_order; /* the symbols ascend: ranks are equal to values */
    uint8_t bits[LX_LEVELS_MAX];
    uint8_t symbols[256]; /* rank to value, for all ranks */
    uint8_t ranks[256];   /* value to rank; only for encoding */
};

/* Counts how often each value occurs. */
void lx_count(const uint8_t *bytes, size_t len, uint32_t ret[256]);

/* Makes the best code for `len` bytes with these counts of values; without `ranks`. Returns the
 * bits that all of them take; the code has no levels if it would take 8 bits a byte. */
uint64_t lx_code_make(const uint32_t counts[256], size_t len, struct lx_code *ret);

/* As lx_code_make(), for more bytes than 16 bits count: about the best code. */
uint64_t lx_code_make_of_many(const uint32_t counts[256], size_t len, struct lx_code *ret);

/* Makes the code in which `value` takes 1 bit, and every other value takes 9: for data in which no
 * value is frequent, but the format needs a code. */
void lx_code_make_of_one(uint8_t value, struct lx_code *ret);

/* Fills in `ranks` and `is_in_order`. */
void lx_code_rank(struct lx_code *code);

/* A buffer that is written from front to back. */
struct writer {
    uint8_t *at, *end;
};

/* Returns the next `len` bytes, which the caller writes; NULL: no room left. */
uint8_t *writer_take(struct writer *w, size_t len);
/* Copies bytes into the buffer. False: no room left. */
CAIRN_MUST_CHECK bool writer_put(struct writer *w, const void *bytes, size_t len);

/* Copies the next `len` bytes to `dst`. False: there are fewer. */
CAIRN_MUST_CHECK bool cursor_copy(struct cursor *c, uint8_t *dst, size_t len);

/* Working memory of lx_put() and lx_get(); its content is undefined between calls. */
struct lx_work {
    uint8_t values[2][LX_VALUES_MAX + FX_SLACK] __attribute__((aligned(64)));
};

/* Write and read the code itself. False: no room left; the bytes are no valid code. */
CAIRN_MUST_CHECK bool lx_put_code(struct writer *w, const struct lx_code *code);
CAIRN_MUST_CHECK bool lx_get_code(struct cursor *c, struct lx_code *ret);

/* Writes `count` values, up to LX_VALUES_MAX; changes them and the bytes behind them up to the next
 * multiple of FX_GROUP. False: no room left. */
CAIRN_MUST_CHECK bool lx_put(struct writer *w, const struct fx_kernels *kernels,
                             const struct lx_code *code, uint8_t *values, size_t count,
                             struct lx_work *work);

/* Reads `count` values; bytes behind them up to the next multiple of FX_GROUP are undefined. False:
 * the bytes are no values of that code. */
CAIRN_MUST_CHECK bool lx_get(struct cursor *c, const struct fx_kernels *kernels,
                             const struct lx_code *code, uint8_t *values, size_t count,
                             struct lx_work *work);

/* --- the same in pieces ----------------------------------------------------------------------- */

/* Values in pieces, each but the last one a multiple of FX_GROUP, so that the steps before and
 * after find a piece in the nearest cache. All structs refer to `work`, `code` and `kernels`, which
 * must stay. */
struct lx_put {
    struct writer *to;
    const struct fx_kernels *kernels;
    const struct lx_code *code;
    struct lx_work *work;
    uint8_t *counts, *masks; /* of the first level, of the next piece */
    size_t escaped;          /* of the pieces so far */
};

/* Begins `count` values in all. False: no room left. */
CAIRN_MUST_CHECK bool lx_put_begin(struct lx_put *put, size_t count);
/* As lx_put(), for one piece. */
void lx_put_piece(struct lx_put *put, uint8_t *values, size_t count);
CAIRN_MUST_CHECK bool lx_put_end(struct lx_put *put);

struct lx_get {
    const struct fx_kernels *kernels;
    const struct lx_code *code;
    struct lx_work *work;
    const uint8_t *masks, *escaped; /* of the next piece */
    size_t values_left, escaped_left;
};

/* Begins `count` values in all. False: the bytes are no values of that code. */
CAIRN_MUST_CHECK bool lx_get_begin(struct lx_get *get, struct cursor *c, size_t count);
/* As lx_get(), for one piece. */
CAIRN_MUST_CHECK bool lx_get_piece(struct lx_get *get, uint8_t *values, size_t count);
