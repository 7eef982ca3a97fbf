// SPDX-License-Identifier: Apache-2.0
#include "daemon/holder_link.h"

#include <stdio.h>
#include <sys/time.h>

#define ACK_TIMEOUT_S 10

static int send_acknowledged(int link_fd, const struct msghdr *message)
{
    struct timeval timeout = {.tv_sec = ACK_TIMEOUT_S};
    char ack;
    if (sendmsg(link_fd, message, MSG_NOSIGNAL) < 0 ||
        setsockopt(link_fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) < 0)
        return -errno;
    ssize_t n = recv(link_fd, &ack, sizeof ack, 0);
    return n < 0 ? -errno : n == 0 ? -EPIPE : 0;
}

static void holder_report_end(int link_fd, char mark, int how)
{
    const uint8_t end[2] = {(uint8_t)mark, (uint8_t)how};
    /* a parent sees the end anyway */
    (void)!send(link_fd, end, sizeof end, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void holder_end(int link_fd, int exit_code)
{
    holder_report_end(link_fd, END_MARK, exit_code);
}

void holder_die(int link_fd, int signo)
{
    holder_report_end(link_fd, DEATH_MARK, signo);
}

int holder_upgrade(int link_fd, const char *binary)
{
    union link_message sent = {0};
    struct iovec iov = {sent.binary, sizeof sent.binary};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    (void)snprintf(sent.binary, sizeof sent.binary, "%s", binary);
    return send_acknowledged(link_fd, &message);
}

int holder_notify(int link_fd, const struct front_passport *passport, int fuse_fd, int lock_fd)
{
    union fds_message fds = {0};
    struct iovec iov = {(void *)(uintptr_t)passport, sizeof *passport};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = fds.bytes,
                             .msg_controllen = sizeof fds.bytes};
    fds.header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&fds.header), (int[]){fuse_fd, lock_fd}, 2 * sizeof(int));
    return send_acknowledged(link_fd, &message);
}
