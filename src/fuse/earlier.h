// SPDX-License-Identifier: Apache-2.0
/* Requests for MNT/.history (fs/past.h): handlers for inodes of which fs_is_past() is true. A
 * request that would wait for the remote, or for a state that is being opened, continues in a
 * separate thread, `cairn-history`: threads that answer for the newest state never wait for it. */
#pragma once

#include "fs/past.h"
#include "fuse/ops.h"

/* Does the thread's current request try to change an earlier state, or .history itself? True: it
 * has been answered with an error. */
bool earlier_refuses(struct front *front);

/* Starts or ends the threads; at the end all requests are answered. */
CAIRN_MUST_CHECK int earlier_start(struct front *front);
void earlier_stop(struct front *front);

void earlier_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
/* Requests for .history itself, in the root. */
void earlier_lookup_top(fuse_req_t req);
void earlier_getattr(fuse_req_t req, fuse_ino_t ino);
void earlier_readlink(fuse_req_t req, fuse_ino_t ino);
/* Requests for files and directories. */
void earlier_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi);
void earlier_release(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi);
void earlier_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, bool plus);
void earlier_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset);
void earlier_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence);
void earlier_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void earlier_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
