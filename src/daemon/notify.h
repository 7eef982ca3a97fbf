// SPDX-License-Identifier: Apache-2.0
/* Notifications for a service manager: systemd's protocol, datagrams of NAME=VALUE lines. Any
 * thread. */
#pragma once

#include "base/base.h"

/* Connects to $NOTIFY_SOCKET; processes that are started later inherit it. -1: no manager listens.
 * One thread. */
int notify_connect(void);

/* The same, and takes it out of the environment, so that no child speaks for us. */
int notify_open(void);

/* Sends lines; blocks for a few seconds at most. Nothing with `fd` -1. What cannot be sent is
 * logged and lost. */
void notify_send(int fd, const char *fmt, ...) CAIRN_PRINTF(2, 3);
