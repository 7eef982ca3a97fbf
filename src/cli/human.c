// SPDX-License-Identifier: Apache-2.0
#include "cli/human.h"

#include <math.h>
#include <stdio.h>

#define SECONDS_MAX 1e9

struct human human_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct human h;
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < ARRAY_LEN(units)) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(h.text, sizeof h.text, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value,
                   units[unit]);
    return h;
}

struct human human_seconds(double seconds)
{
    struct human h;
    /* A reply may hold any number, NaN included. */
    long whole = seconds > 0 ? (long)fmin(seconds, SECONDS_MAX) : 0;
    if (whole < 60)
        (void)snprintf(h.text, sizeof h.text, "%.1f s", seconds > 0 ? seconds : 0);
    else if (whole < 3600)
        (void)snprintf(h.text, sizeof h.text, "%ld min %ld s", whole / 60, whole % 60);
    else
        (void)snprintf(h.text, sizeof h.text, "%ld h %ld min", whole / 3600, whole / 60 % 60);
    return h;
}

void human_end_drawing(bool *drawn, const char *end)
{
    if (*drawn)
        (void)fputs(end, stderr);
    *drawn = false;
}
