// SPDX-License-Identifier: Apache-2.0
/* Notifications for a service manager: systemd's protocol, datagrams of NAME=VALUE lines. Any
 * thread. */
#pragma once

#include "base/base.h"

/* Connects to $NOTIFY_SOCKET; processes that are started later inherit it. -1: no manager listens.
 * One thread. */
int notify_connect(void);

/* As notify_connect(), and removes the variable from the environment, so that no child sends
 * notifications in our name. */
int notify_open(void);

/* Sends lines; blocks for a few seconds at most. Does nothing if `fd` is -1. A notification that
 * cannot be sent is logged and lost. */
void notify_send(int fd, const char *fmt, ...) CAIRN_PRINTF(2, 3);
