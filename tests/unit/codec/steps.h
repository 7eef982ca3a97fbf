// SPDX-License-Identifier: Apache-2.0
/* What training does to numbers, and what it does not. */
#pragma once

#include "codec/fx.h"
#include "numbers.h"

enum step {
    STEP_NONE,
    STEP_ONE,   /* one element is another */
    STEP_FEW,   /* 2 % of all elements are a little more or less */
    STEP_SMALL, /* all are, some by more */
    STEP_PATCH, /* a stretch is noise, the rest is as it was */
    STEP_NOISE, /* nothing is as it was */
    STEPS,
};

/* The guess tells what elements are. */
void step_take(enum step step, struct seeded *s, uint8_t *raw, size_t len,
               const struct fx_guess *guess);
