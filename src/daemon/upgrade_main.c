// SPDX-License-Identifier: Apache-2.0
/* The other program of an upgrade (upgrade.h): reports whether it can take the mount over, serves,
 * or becomes the holder. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "daemon/holder.h"
#include "daemon/upgrade.h"
#include "format/superblock.h"

static int check_superblock(const char *store, char **ret_text)
{
    _cleanup_free_ char *path = xasprintf("%s/superblock", store);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t block[SUPERBLOCK_LEN];
    struct superblock sb;
    ssize_t n = fd < 0 ? -1 : pread(fd, block, sizeof block, 0);
    int r = n < 0 ? -errno : superblock_decode(block, (size_t)n, &sb);
    if (r == 0 && sb.ro_compat != 0)
        r = -EPROTONOSUPPORT;
    explicit_bzero(block, sizeof block);
    explicit_bzero(&sb, sizeof sb);
    if (r == -EPROTONOSUPPORT)
        *ret_text = xasprintf("the store %s has features that version %s does not support", store,
                              CAIRN_VERSION);
    else if (r < 0)
        *ret_text = xasprintf("%s: %s", path, strerror(-r));
    return r;
}

static int print_answer(struct handover *h, int r, char *text)
{
    if (r == 0)
        r = check_superblock(h->store, &text);
    if (r == 0)
        (void)printf(UPGRADE_CHECK_PREFIX "%s\n", CAIRN_VERSION);
    else
        (void)printf("%s\n", text);
    free(text);
    return fflush(stdout) == 0 && r == 0 ? 0 : 1;
}

static int serve_other(struct handover *h)
{
    char hello = 0;
    if (send(h->holder_link.link_fd, &hello, sizeof hello, MSG_NOSIGNAL) < 0)
        return MOUNT_SYSTEM;
    (void)prctl(PR_SET_NAME, "cairn");
    return lifecycle_main(h->store, h->mountpoint, &h->options, -1, &h->holder_link);
}

int upgrade_main(int argc, char **argv)
{
    struct handover h;
    char *text = NULL;
    int fd = argc > 2 && strlen(argv[2]) < 8 && strspn(argv[2], "0123456789") == strlen(argv[2])
                 ? (int)strtol(argv[2], NULL, 10)
                 : -1;
    int r = handover_read(fd, &h, &text);
    const char *how = argc > 1 ? argv[1] : "";
    int code = MOUNT_SYSTEM;
    if (strcmp(how, "check") == 0) {
        code = print_answer(&h, r, text);
        text = NULL;
    } else if (r == 0) {
        handover_inherit_fds(&h.holder_link, -1, false);
        (void)close(fd);
        code = strcmp(how, "daemon") == 0 ? serve_other(&h)
               : strcmp(how, "keep") == 0 ? holder_go_on(&h)
                                          : MOUNT_USAGE;
    } else {
        (void)fprintf(stderr, "cairn holder: %s\n", text);
    }
    free(text);
    if (r == 0)
        handover_done(&h);
    return code;
}
