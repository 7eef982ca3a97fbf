// SPDX-License-Identifier: Apache-2.0
#include "tier/http_socket.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static long port_of_socket(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a;
    socklen_t len = sizeof a;
    if (getsockname(fd, &a.any, &len) < 0)
        return 0;
    return a.any.sa_family == AF_INET    ? ntohs(a.v4.sin_port)
           : a.any.sa_family == AF_INET6 ? ntohs(a.v6.sin6_port)
                                         : 0;
}

uint64_t http_socket_unacknowledged(const int *sockets, size_t count, long port)
{
    int bytes = 0;
    for (size_t i = 0; port > 0 && i < count; i++)
        if (port_of_socket(sockets[i]) == port && ioctl(sockets[i], SIOCOUTQ, &bytes) == 0)
            return bytes > 0 ? (uint64_t)bytes : 0;
    return 0;
}
