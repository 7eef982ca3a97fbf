// SPDX-License-Identifier: Apache-2.0
/* Operations of the front: the handlers of requests, and their replies. */
#pragma once

#include <fuse_lowlevel.h>

#include "fuse/internal.h"

/* ops.c */
struct fs_caller caller_of(fuse_req_t req); /* valid while the request is */
extern const struct fuse_lowlevel_ops front_ops;
/* Answers with an error, or with success without content; or parks the request. */
void reply_result(fuse_req_t req, int r);
/* As reply_result(), for a request that is never parked. */
void reply_error(fuse_req_t req, int r);

/* Replies when all earlier operations are durable. `written`: bytes of a durable write; 0: an
 * fsync. */
void front_sync(fuse_req_t req, fuse_ino_t ino, size_t written);

/* listing.c: an answer to a listing. */
struct dir_reply {
    fuse_req_t req;
    struct front *front;
    char *buf;
    size_t size, len;
    bool plus; /* with attributes: */
    int (*read)(struct front *front, uint64_t ino, struct fuse_entry_param *ret);
};
/* Adds an entry; 1: no room. `arg`: the reply. */
CAIRN_MUST_CHECK int dir_reply_add(const struct fs_entry *entry, void *arg);

/* The attributes in the answer to a lookup. */
struct fuse_entry_param front_entry(struct front *front, const struct stat *st);

/* ops_open.c */
/* Finds a handle that a dead daemon opened without answering. False: the file must be opened. */
bool front_open_again(struct front *front, struct fs_opened *ret);
/* Prepares a change or truncation of another node's file: returns an error for the caller, or
 * -EAGAIN. */
int front_bring(fuse_req_t req, uint64_t ino, bool is_emptied);
void front_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void front_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                     struct fuse_file_info *fi);
void front_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void front_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void front_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

/* ops_content.c */
void front_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
                    struct fuse_file_info *fi);
void front_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                   struct fuse_file_info *fi);
void front_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                        struct fuse_file_info *fi);
void front_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
                    struct fuse_file_info *fi);
void front_op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_offset,
                              struct fuse_file_info *from_fi, fuse_ino_t to, off_t to_offset,
                              struct fuse_file_info *to_fi, size_t length, int flags);
