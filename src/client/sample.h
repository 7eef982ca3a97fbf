// SPDX-License-Identifier: Apache-2.0
/* A sample tells whether much of a piece of a source was changed, as by an update of parameters or
 * an average that is swapped in. It reads a cache line in every 64 KiB, so that a call
 * can take samples of all that it names. Changes between the lines are not seen. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* `piece`: its number in the source. The lines of each piece lie elsewhere, so that those of 64 MiB
 * cross every column of a matrix. */
uint64_t sample_of(const void *bytes, size_t length, size_t piece);
