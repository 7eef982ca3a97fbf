// SPDX-License-Identifier: Apache-2.0
/* State of the connections of http.c in the kernel. */
#pragma once

#include "base/base.h"

/* Bytes not yet acknowledged by the peer, on the one of these sockets that has this local port: the
 * kernel buffers them, several MiB on a slow line. 0: no such socket. */
uint64_t http_socket_unacknowledged(const int *sockets, size_t count, long port);
