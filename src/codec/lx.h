// SPDX-License-Identifier: Apache-2.0
/* lx: a prefix code for bytes of which few values are frequent. fx codes the planes of floats with
 * it, dx the lengths of differences. The layout stands at the top of lx.c. Pure; any thread. */
#pragma once

#include "base/base.h"
#include "codec/fx_kernels.h"
#include "format/le.h"

#define LX_VALUES_MAX 16384u /* of one lx_put() */
#define LX_LEVELS_MAX 6u
#define LX_BITS_MAX 4u

struct lx_code {
    uint8_t levels;   /* 0: there is no code */
    bool is_in_order; /* the symbols ascend: ranks are values */
    uint8_t bits[LX_LEVELS_MAX];
    uint8_t symbols[256]; /* rank to value, all of them */
    uint8_t ranks[256];   /* value to rank; only for encoding */
};

/* Counts how often each value occurs. */
void lx_count(const uint8_t *bytes, size_t len, uint32_t ret[256]);

/* The best code for `len` bytes of which each value occurs so often; without `ranks`. Returns the
 * bits that all of them take; the code has no levels where it would take 8 each. */
uint64_t lx_code_make(const uint32_t counts[256], size_t len, struct lx_code *ret);

/* The same for more bytes than 16 bits count: about the best code. */
uint64_t lx_code_make_of_many(const uint32_t counts[256], size_t len, struct lx_code *ret);

/* The code with which `value` takes a bit, and all others take 9: where none is frequent, and there
 * has to be one. */
void lx_code_make_of_one(uint8_t value, struct lx_code *ret);

/* Fills in `ranks` and `is_in_order`. */
void lx_code_rank(struct lx_code *code);

/* Room that is written from front to back. */
struct writer {
    uint8_t *at, *end;
};

/* The next `len` bytes; NULL: there is no room for them. */
uint8_t *writer_take(struct writer *w, size_t len);
/* Copies bytes there. False: there is no room for them. */
CAIRN_MUST_CHECK bool writer_put(struct writer *w, const void *bytes, size_t len);

/* Copies the next `len` bytes to `dst`. False: there are fewer. */
CAIRN_MUST_CHECK bool cursor_copy(struct cursor *c, uint8_t *dst, size_t len);

/* For lx_put() and lx_get(), which leave nothing of use in it. */
struct lx_work {
    uint8_t values[2][LX_VALUES_MAX + FX_SLACK] __attribute__((aligned(64)));
};

/* Writes and reads the code itself. False: no room; no code. */
CAIRN_MUST_CHECK bool lx_put_code(struct writer *w, const struct lx_code *code);
CAIRN_MUST_CHECK bool lx_get_code(struct cursor *c, struct lx_code *ret);

/* Writes `count` values, up to LX_VALUES_MAX; these are changed, and so are those behind them up to
 * the next multiple of FX_GROUP. False: no room. */
CAIRN_MUST_CHECK bool lx_put(struct writer *w, const struct fx_kernels *kernels,
                             const struct lx_code *code, uint8_t *values, size_t count,
                             struct lx_work *work);

/* Reads `count` values, and something behind them up to the next multiple of FX_GROUP. False: these
 * are no values of that code. */
CAIRN_MUST_CHECK bool lx_get(struct cursor *c, const struct fx_kernels *kernels,
                             const struct lx_code *code, uint8_t *values, size_t count,
                             struct lx_work *work);

/* --- the same in pieces ----------------------------------------------------------------------- */

/* Values that come piece after piece, each but the last a multiple of FX_GROUP: so what is done
 * with a piece before and after finds it in the nearest cache. All refer to `work`, `code` and
 * `kernels`, which stay. */
struct lx_put {
    struct writer *to;
    const struct fx_kernels *kernels;
    const struct lx_code *code;
    struct lx_work *work;
    uint8_t *counts, *masks; /* of the first level, the next piece's */
    size_t escaped;          /* of the pieces so far */
};

/* For `count` values in all. False: no room. */
CAIRN_MUST_CHECK bool lx_put_begin(struct lx_put *put, size_t count);
/* As lx_put() has it. */
void lx_put_piece(struct lx_put *put, uint8_t *values, size_t count);
CAIRN_MUST_CHECK bool lx_put_end(struct lx_put *put);

struct lx_get {
    const struct fx_kernels *kernels;
    const struct lx_code *code;
    struct lx_work *work;
    const uint8_t *masks, *escaped; /* of the next piece */
    size_t values_left, escaped_left;
};

/* For `count` values in all. False: these are no values of that code. */
CAIRN_MUST_CHECK bool lx_get_begin(struct lx_get *get, struct cursor *c, size_t count);
/* As lx_get() has it. */
CAIRN_MUST_CHECK bool lx_get_piece(struct lx_get *get, uint8_t *values, size_t count);
