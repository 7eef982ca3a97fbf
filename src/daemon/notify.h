// SPDX-License-Identifier: Apache-2.0
/* What a service manager wants to know: systemd's notification protocol, datagrams of NAME=VALUE lines. Any thread. */
#pragma once

#include "base/base.h"

/* Connects to $NOTIFY_SOCKET, and leaves it to the processes that are started later. -1: nobody wants to know. One thread. */
int notify_connect(void);

/* The same, and takes it out of the environment, so that no child speaks for us. */
int notify_open(void);

/* Sends lines; blocks for a few seconds at most. Nothing with `fd` -1. What cannot be sent is logged and lost. */
void notify_send(int fd, const char *fmt, ...) CAIRN_PRINTF(2, 3);
