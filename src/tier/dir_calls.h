// SPDX-License-Identifier: Apache-2.0
/* Calls of the helper process of a directory tier, in the directory. Each may hang for as long as
 * the filesystem does; only the thread that makes it waits. */
#pragma once

#include "tier/dir_pump.h"
#include "tier/dir_wire.h"

/* Of the process. */
struct dir_root {
    _Atomic int fd; /* of the directory; -1: not opened yet. The number stays when the directory is
                       opened anew */
    _Atomic bool read_only;
    const char *_Atomic path; /* that it was opened by; NULL: not yet */
};

/* Of one channel. */
struct dir_talk {
    struct dir_root *root;
    int at; /* the directory of the object of the call under way */
    int socket;
    int in, out; /* pipes for content; -1: none was needed yet */
    struct dir_pump pump;
};

/* Carries out one call. `name` is followed by `content_len` bytes of content, where that is small.
 * What is to be sent before the answer was sent on return, the answer itself is filled in: `count`
 * bytes of content, at most DIR_INLINE_MAX, are in `content_out`. */
void dir_calls_do(struct dir_talk *talk, const struct dir_request *request, const char *name,
                  size_t content_len, struct dir_answer *answer, char *content_out);
