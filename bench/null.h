// SPDX-License-Identifier: Apache-2.0
/* The names and attributes of a FUSE daemon that does next to nothing. */
#define FUSE_USE_VERSION 314
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define FILE_INO 2

/* Of each daemon: how long its files are. */
static off_t size_of(fuse_ino_t ino);

static void attributes(fuse_ino_t ino, struct stat *st)
{
    memset(st, 0, sizeof *st);
    st->st_ino = ino;
    st->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
    st->st_nlink = 1;
    st->st_blksize = 1 << 20;
    st->st_size = size_of(ino);
}

static void reply_entry(fuse_req_t req, struct fuse_entry_param e)
{
    e.attr_timeout = 60;
    attributes(e.ino, &e.attr);
    fuse_reply_entry(req, &e);
}

static void null_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct stat st;
    (void)fi;
    attributes(ino, &st);
    fuse_reply_attr(req, &st, 60);
}

/* One request; false: the session is over. */
static int serve_one(struct fuse_session *session, struct fuse_buf *buf)
{
    int r = fuse_session_receive_buf(session, buf);
    if (r > 0)
        fuse_session_process_buf(session, buf);
    return (r > 0 || r == -EINTR) && !fuse_session_exited(session);
}
