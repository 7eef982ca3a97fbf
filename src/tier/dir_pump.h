// SPDX-License-Identifier: Apache-2.0
/* Copies content between a file and a pipe to another process. Moves pages where the kernel
 * supports it.
 *
 * Between the file and that pipe lies a pipe of our own: a thread that moves pages between file and
 * pipe holds the pipe's lock while the filesystem may hang, and the process at the other end of a
 * pipe needs its lock even to close it. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

struct dir_pump {
    int pipe[2]; /* -1: not created yet */
};

void dir_pump_init(struct dir_pump *pump);
void dir_pump_done(struct dir_pump *pump);

/* Copies `len` bytes from the pipe `from` to the beginning of the file `to`. -ECANCELED: the pipe
 * ended early. */
CAIRN_MUST_CHECK int dir_pump_in(struct dir_pump *pump, int from, int to, uint64_t len);
/* Copies `len` bytes at `offset` of the file `from` to the pipe `to`. -EUCLEAN: the file ends
 * early; -EPIPE: no reader. */
CAIRN_MUST_CHECK int dir_pump_out(struct dir_pump *pump, int from, uint64_t offset, int to,
                                  uint64_t len);
