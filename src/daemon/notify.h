/* What a service manager wants to know: systemd's notification protocol, datagrams of NAME=VALUE lines. Any thread. */
#pragma once

#include "base/base.h"

/* Takes $NOTIFY_SOCKET out of the environment, so that no child speaks for us, and connects to it. -1: nobody wants to know. */
int notify_open(void);

/* Sends lines; blocks for a few seconds at most. Nothing with `fd` -1. What cannot be sent is logged and lost. */
void notify_send(int fd, const char *fmt, ...) CAIRN_PRINTF(2, 3);
