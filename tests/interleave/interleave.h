// SPDX-License-Identifier: Apache-2.0
/* Calls to a few files from several threads, on the mount and on another filesystem beside it. See
 * interleave.c. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

struct options {
    uint64_t seed;
    unsigned first, runs; /* numbers of the runs of this call */
    unsigned delay_us;    /* header: before the open that truncates */
    bool is_urged;        /* a thread calls fsync all the time, so that writeback never rests */
    const char *mount, *other; /* directories; other NULL: there is none to compare with */
};

/* Random numbers that a seed repeats. */
uint64_t next_random(uint64_t *state);
uint64_t random_below(uint64_t *state, uint64_t end);
void fill(uint8_t *bytes, size_t len, uint64_t seed); /* no byte of it is zero */
int64_t now_ns(void);
void spin_us(uint64_t us);

/* Ends the program with what is wrong. */
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Says where the program stands, and waits until the caller has done what belongs to it (killed the
 * daemon, mounted again). */
void stop_at(const char *what);

/* Calls fsync on a file of its own in `directory` until urge_end(). */
void urge_begin(const char *directory);
void urge_end(void);

void script_run(const struct options *options);
void race_run(const struct options *options);
void header_run(const struct options *options);
