// SPDX-License-Identifier: Apache-2.0
/* Filesystem calls of a directory tier, made in its helper process. Each may hang for as long as
 * the filesystem hangs; only the calling thread waits. */
#pragma once

#include "tier/dir_pump.h"
#include "tier/dir_wire.h"

/* State of the helper process. */
struct dir_root {
    /* of the directory; -1: not opened yet. When the directory is reopened, the number stays the
     * same */
    _Atomic int fd;
    _Atomic bool read_only;
    const char *_Atomic path; /* path by which the directory was opened; NULL: not yet */
};

/* State of one channel. */
struct dir_talk {
    struct dir_root *root;
    int at; /* the directory of the object of the current call */
    int socket;
    int in, out; /* pipes for content; -1: not needed so far */
    struct dir_pump pump;
};

/* Carries out one call. `name` is followed by `content_len` bytes of content, if that is small. On
 * return, all messages before the answer have been sent, and *answer is filled in, with `count`
 * bytes of content, at most DIR_INLINE_MAX, in `content_out`. */
void dir_calls_do(struct dir_talk *talk, const struct dir_request *request, const char *name,
                  size_t content_len, struct dir_answer *answer, char *content_out);
