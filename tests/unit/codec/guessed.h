// SPDX-License-Identifier: Apache-2.0
/* fx under test, with or without columns: both forms are decoded by one function. */
#pragma once

#include "codec/fx.h"
#include "coder.h"

/* A guess, and fx with it. */
struct guessed {
    struct coder coder;
    struct fx_guess guess;
};

static inline int guessed_decode(const struct coder *coder, enum cpu_level level,
                                 const uint8_t *src, size_t len, uint8_t *dst, size_t raw_len)
{
    (void)coder;
    return fx_decode(fx_kernels_of(level), src, len, dst, raw_len);
}
