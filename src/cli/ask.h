// SPDX-License-Identifier: Apache-2.0
/* Requests to the daemon of a store. One thread. */
#pragma once

#include <cjson/cJSON.h>

#include "base/base.h"

/* Sends {"verb":name}. As control_request(), but waits for a daemon that is still starting and
 * holds the store already. */
CAIRN_MUST_CHECK int ask_patiently(const char *store, const char *name, int timeout_ms,
                                   cJSON **ret_reply);

/* Sends {"verb":name, ...} to the daemon of `store`; `request` (may be NULL) has the other fields
 * and is freed. On failure returns -errno, and prints the message as one of the command `command`.
 * An "error" in the reply is a failure. */
CAIRN_MUST_CHECK int ask_daemon(const char *command, const char *store, const char *name,
                                cJSON *request, cJSON **ret_reply);

/* As ask_daemon(), if the daemon may exit meanwhile: this is -ESHUTDOWN, without a message. */
CAIRN_MUST_CHECK int ask_daemon_or_end(const char *command, const char *store, const char *name,
                                       cJSON *request, cJSON **ret_reply);

/* Prints the message for an invalid answer. Returns CLI_FAILED. */
int complain_answer(const char *command, const char *store);

/* Returns the error of control_request() as a message to a user. */
const char *daemon_trouble(int r);
