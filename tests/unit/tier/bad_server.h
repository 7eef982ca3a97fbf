// SPDX-License-Identifier: Apache-2.0
/* A server that does what a test tells it, byte for byte: a process of its own on a free port of
 * this machine. One connection after the other, one request on each. */
#pragma once

#include "base/base.h"

/* A step without an end closes the connection: most do. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct bad_step {
    const char *raw; /* bytes to send after the request came; NULL: none */
    enum bad_end {
        BAD_CLOSE,
        BAD_RESET,
        BAD_HOLD,    /* the connection stays open, and nothing more comes */
        BAD_TRICKLE, /* `raw` goes out byte by byte, at most 250 a second */
    } then;
};

/* The first request gets the first step ...; after the last step, the last one again. Returns
 * "http://127.0.0.1:34567". */
const char *bad_open(const struct bad_step *steps, size_t count);
void bad_close(void);

#define BAD_OPEN(...)                                                                              \
    bad_open((const struct bad_step[]){__VA_ARGS__},                                               \
             ARRAY_LEN(((const struct bad_step[]){__VA_ARGS__})))

/* Requests so far. */
unsigned bad_count(void);
/* Connections that were closed so far. */
unsigned bad_closed(void);

/* The head of a request, 0 is the first. */
const char *bad_request(unsigned i);

/* Whether that head has this text. */
bool bad_request_has(unsigned i, const char *text);
