// SPDX-License-Identifier: Apache-2.0
/* The form of dx with a code for each class of exponents of the base: for elements of 2 bytes, most
 * of which change little. A change of one size is more steps between floats the smaller a weight
 * is, and large weights hardly change at all. Takes fewer bytes than the form by lengths, by a
 * third where few elements change, and decodes at the speed of plain C. The layout is at the top of
 * dx_ans.c. Pure; any thread. Calls use up to 128 KiB of stack. */
#pragma once

#include "codec/ans.h"

#define DX_ANS 0x10u /* in the first byte: the chunk has this form */
#define DX_ANS_CODES_MAX 16u

struct dx_ans_plan {
    uint8_t phase;
    uint8_t codes;                  /* number of codes */
    uint8_t last[DX_ANS_CODES_MAX]; /* the last exponent of each code; of the last code 255 */
    struct ans_code code[DX_ANS_CODES_MAX];
};

/* Makes the best plan for elements of 2 bytes that begin at `phase`. Returns about how many bytes
 * the chunk takes with it. */
size_t dx_ans_plan_make(const void *src, const void *base, size_t raw_len, unsigned phase,
                        struct dx_ans_plan *ret);

/* Encodes into `dst`, of which `limit` bytes may be used. Returns the stored length; 0: it would be
 * more than `limit`. Never writes past `limit` bytes. */
size_t dx_ans_encode(const struct dx_ans_plan *plan, const void *src, const void *base,
                     size_t raw_len, void *dst, size_t limit);

/* As dx_decode(), for a base of `raw_len` bytes. */
CAIRN_MUST_CHECK int dx_ans_decode(const void *src, size_t stored_len, const void *base, void *dst,
                                   size_t raw_len);

/* --- elements --------------------------------------------------------------------------------- */

#define DX_ANS_SYMBOLS 28u
#define DX_ANS_DIRECT 16u /* zigzag differences less than this are symbols */

/* ANS_GROUP elements. */
struct dx_ans_group {
    uint16_t differences[ANS_GROUP]; /* zigzag */
    uint8_t exponents[ANS_GROUP];    /* of the base */
    uint8_t symbols[ANS_GROUP];
};

void dx_ans_group_take(const uint8_t *src, const uint8_t *base, struct dx_ans_group *ret);
