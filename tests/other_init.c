// SPDX-License-Identifier: Apache-2.0
/* Preloaded into a daemon: it promises the kernel something else in its answer to INIT. */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 312
#include <dlfcn.h>
#include <fuse_lowlevel.h>
#include <string.h>

static struct fuse_lowlevel_ops given;

static void init(void *userdata, struct fuse_conn_info *conn)
{
    given.init(userdata, conn);
    conn->max_write /= 2;
}

struct fuse_session *fuse_session_new(struct fuse_args *args, const struct fuse_lowlevel_ops *ops,
                                      size_t size, void *userdata)
{
    struct fuse_session *(*next)(struct fuse_args *, const struct fuse_lowlevel_ops *, size_t,
                                 void *) =
        (struct fuse_session * (*)(struct fuse_args *, const struct fuse_lowlevel_ops *, size_t,
                                   void *)) dlsym(RTLD_NEXT, "fuse_session_new");
    struct fuse_lowlevel_ops changed;
    memcpy(&given, ops, size);
    changed = given;
    changed.init = init;
    return next(args, &changed, size, userdata);
}
