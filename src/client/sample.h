// SPDX-License-Identifier: Apache-2.0
/* A sample tells whether much of a piece of a source has changed, e.g. by an update of parameters
 * or by swapping in an average. It reads one cache line per 64 KiB, so that a call can sample all
 * its sources. Changes between these lines are not detected. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* `piece`: its number in the source. Pieces have their lines at different offsets, so that those of
 * 64 MiB cross every column of a matrix. */
uint64_t sample_of(const void *bytes, size_t length, size_t piece);
