// SPDX-License-Identifier: Apache-2.0
/* A web server on a free port of this machine, in a thread of the test: one request after the
 * other, each answered by a function of the test and followed by the end of the connection. */
#pragma once

#include "base/base.h"

struct web_request {
    unsigned number; /* 1 is the first */
    char method[8], path[512];
    char headers[12 * 1024]; /* as they came, with the line of the request */
    char body[16 * 1024];
};

struct web_answer {
    int status;
    char *body; /* to be freed; NULL: empty */
    unsigned delay_ms;
};

typedef void web_fn(const struct web_request *request, struct web_answer *answer);

/* Its address, "http://127.0.0.1:34567". */
const char *web_open(web_fn *fn);
void web_close(void);

/* How many were answered, or are being. */
unsigned web_count(void);

/* Value of a header, NULL where it lacks; valid until the next call. */
const char *web_header(const struct web_request *request, const char *name);
