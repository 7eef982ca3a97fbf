// SPDX-License-Identifier: Apache-2.0
/* The control socket of a mounted store: STORE/control, 0600. A request is one JSON object in a
 * line, and so is its reply; a connection may carry several. Only root and the user that mounted
 * are answered. */
#pragma once

#include "daemon/control_json.h"

#define CONTROL_REQUEST_MAX (64 * KIB)
#define CONTROL_REPLY_MAX (16 * MIB)

struct control;

/* Serves requests with `handle`, which returns a new object (never NULL) and is called from several
 * threads at once. A request has "peer", the number of the process that sent it. The caller holds
 * STORE/lock: an existing socket was left by a dead daemon and is replaced. */
CAIRN_MUST_CHECK int control_start(const char *store,
                                   cJSON *(*handle)(const cJSON *request, void *arg), void *arg,
                                   struct control **ret);

/* Ends serving; no call of the handler is running any more on return. NULL: no effect. */
void control_stop(struct control *control);

/* Sends one request and waits for its reply, at most `timeout_ms` (-1: no limit). -ENOENT or
 * -ECONNREFUSED: no daemon listens; -EACCES; -ETIMEDOUT; -ECONNRESET: the daemon exited; -EBADMSG:
 * the reply is not a JSON object. Caller frees with cJSON_Delete(). */
CAIRN_MUST_CHECK int control_request(const char *store, const cJSON *request, int timeout_ms,
                                     cJSON **ret_reply);

/* Returns true if a daemon listens on the socket: it is alive, though it may not answer. Does not
 * block. */
bool control_listens(const char *store);
