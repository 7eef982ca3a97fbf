// SPDX-License-Identifier: Apache-2.0
/* The least that a FUSE daemon can do with a write: receive it into memory that is there, and say
 * so; and with a first stat: answer what it knows by heart. What this reaches is the limit of every
 * daemon on the machine; bench_write.py and bench_names.py compare with it.
 *
 *   null_fuse MOUNTPOINT
 *
 * One file, "file", open for writing with direct_io, and as many "shard-N" as are looked for, each
 * time as if it were the first; runs until unmounted. */
#include "null.h"

#define SHARD_INO 3 /* and all after it */
#define SHARD_LEN 4096
#define BUFFERS 64 /* as many as keep the processor's cache from helping */
#define BUFFER_LEN ((1u << 20) + 4096u)
#define HEADERS_LEN 80u

static off_t size_of(fuse_ino_t ino)
{
    return ino >= SHARD_INO ? SHARD_LEN : 0;
}

static void null_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    unsigned number;
    (void)parent;
    if (sscanf(name, "shard-%u", &number) == 1)
        reply_entry(req, (struct fuse_entry_param){.ino = SHARD_INO + number});
    else if (strcmp(name, "file") == 0)
        reply_entry(req, (struct fuse_entry_param){.ino = FILE_INO, .entry_timeout = 60});
    else
        fuse_reply_err(req, ENOENT);
}

static void null_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
                         struct fuse_file_info *fi)
{
    (void)attr;
    (void)set;
    null_getattr(req, ino, fi);
}

static void null_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fi->direct_io = 1;
    fuse_reply_open(req, fi);
}

static void null_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    (void)ino;
    (void)buf;
    (void)off;
    (void)fi;
    fuse_reply_write(req, size);
}

static void null_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    fuse_reply_err(req, 0);
}

static void null_init(void *userdata, struct fuse_conn_info *conn)
{
    (void)userdata;
    conn->want &= ~(unsigned)FUSE_CAP_SPLICE_READ;
    conn->max_write = 1 << 20;
}

int main(int argc, char **argv)
{
    static const struct fuse_lowlevel_ops ops = {.init = null_init,
                                                 .lookup = null_lookup,
                                                 .getattr = null_getattr,
                                                 .setattr = null_setattr,
                                                 .open = null_open,
                                                 .write = null_write,
                                                 .flush = null_flush};
    char *arguments[] = {argv[0], NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, arguments);
    if (argc != 2) {
        fprintf(stderr, "usage: null_fuse MOUNTPOINT\n");
        return 2;
    }
    struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, NULL);
    char *pool = mmap(NULL, (size_t)BUFFERS * 2 * BUFFER_LEN, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (!session || pool == MAP_FAILED || fuse_session_mount(session, argv[1]) != 0)
        return 1;
    struct fuse_buf buf = {.size = BUFFER_LEN};
    unsigned i = 0;
    do {
        buf.mem = pool + (size_t)i * 2 * BUFFER_LEN + 4096 - HEADERS_LEN;
        buf.size = BUFFER_LEN;
        i = (i + 1) % BUFFERS;
    } while (serve_one(session, &buf));
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    return 0;
}
