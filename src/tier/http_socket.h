// SPDX-License-Identifier: Apache-2.0
/* The kernel's view of the connections of http.c. */
#pragma once

#include "base/base.h"

/* Bytes that the other side has not acknowledged, on the one of these sockets that has this local
 * port: they are in the kernel, several MiB of them on a slow line. 0: there is no such socket. */
uint64_t http_socket_unacknowledged(const int *sockets, size_t count, long port);
