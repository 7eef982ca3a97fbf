// SPDX-License-Identifier: Apache-2.0
/* Amounts for people. */
#pragma once

#include "base/base.h"

struct human {
    char text[32];
};

/* "512 B", "1.5 GiB" */
struct human human_bytes(uint64_t bytes);
/* "0.4 s", "3 min 20 s", "2 h 5 min" */
struct human human_seconds(double seconds);
/* If a line is `drawn` on standard error, prints `end` and clears the flag. */
void human_end_drawing(bool *drawn, const char *end);
