// SPDX-License-Identifier: Apache-2.0
#include "daemon/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/log.h"

#define SEND_TIMEOUT_S 5

/* A path, or a name in the abstract namespace: '@' stands for its leading zero. */
static int connect_to(const char *address)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct timeval timeout = {.tv_sec = SEND_TIMEOUT_S};
    size_t len = strlen(address);
    if ((address[0] != '/' && address[0] != '@') || len < 2 || len >= sizeof to.sun_path)
        return -EINVAL;
    memcpy(to.sun_path, address, len);
    if (address[0] == '@')
        to.sun_path[0] = '\0';
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) < 0 ||
        connect(fd, (struct sockaddr *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
        return -errno;
    return take_fd(&fd);
}

int notify_connect(void)
{
    const char *address = getenv("NOTIFY_SOCKET");
    int fd = address ? connect_to(address) : -1;
    if (address && fd < 0)
        log_warn("cannot notify the service manager at %s: %s", address, strerror(-fd));
    return fd < 0 ? -1 : fd;
}

int notify_open(void)
{
    int fd = notify_connect();
    (void)unsetenv("NOTIFY_SOCKET");
    return fd;
}

void notify_send(int fd, const char *fmt, ...)
{
    if (fd < 0)
        return;
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int len = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (len < 0)
        return;
    if (send(fd, text, (size_t)len, MSG_NOSIGNAL) < 0)
        log_warn("cannot notify the service manager: %s", strerror(errno));
    free(text);
}
