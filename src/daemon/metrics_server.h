// SPDX-License-Identifier: Apache-2.0
/* HTTP for monitoring: GET /metrics (text format of Prometheus) and GET /healthz (200, or 503 with
 * the reason). One thread; connections are few, short and of bounded memory, so a slow, silent or
 * hostile client delays only itself. */
#pragma once

#include <netinet/in.h>

#include "base/base.h"

struct metrics_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } socket;
};

/* Parses "127.0.0.1:9464" or "[::1]:9464": both parts are required, so that no port is open by
 * accident. -EINVAL. */
CAIRN_MUST_CHECK int metrics_address_parse(const char *text, struct metrics_address *ret);

struct metrics_source {
    char *(*metrics)(void *arg); /* returns a new text; NULL: there are no values yet */
    /* returns the reason why the service is unhealthy, a new line; NULL: it is healthy */
    char *(*trouble)(void *arg);
    void *arg;
};

struct metrics_server;

/* Listens at once; `source` is called from the server's thread. -errno: see *ret_text (caller
 * frees). */
CAIRN_MUST_CHECK int metrics_server_start(const char *address, const struct metrics_source *source,
                                          struct metrics_server **ret, char **ret_text);
/* To be called about once a second: ends connections that last too long. */
void metrics_server_tick(struct metrics_server *server);
/* No call of the source is running any more on return. NULL: no effect. */
void metrics_server_stop(struct metrics_server *server);
