// SPDX-License-Identifier: Apache-2.0
/* The file that a save writes, from its opening until it has its name. A draft has one owner; those
 * that have it as const may write to it, several at once, and ask where it lies. No call logs;
 * errors are negative errno with a cause. All may block as the filesystem does. */
#pragma once

#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/base.h"

enum draft_kind {
    DRAFT_NAMELESS, /* O_TMPFILE: gone with its last descriptor */
    DRAFT_HIDDEN,   /* has a name of its own until it is published: ".NAME.cairn-PID-N" */
    DRAFT_SPECIAL,  /* the path is no regular file, and is not open yet */
    DRAFT_DIRECT,   /* the path is a device that takes writes at offsets: they go there at once */
    DRAFT_STREAM,   /* the path is a fifo, a terminal, a socket: the bytes wait in memory, and are
                       written in order in the end */
};

struct draft {
    enum draft_kind kind;
    int fd;
    int stream_fd;    /* DRAFT_STREAM: of the path; else -1 */
    int directory_fd; /* of the name; -1: none (direct, stream) */
    dev_t directory_dev;
    ino_t directory_ino;
    char *name;           /* in the directory: symbolic links are followed */
    char *hidden;         /* NULL: there is no such name now */
    char *path;           /* absolute, for messages and to open the file later */
    _Atomic int on_cairn; /* unknown until draft_on_cairn() was asked */
};

#define DRAFT_NONE ((struct draft){.fd = -1, .stream_fd = -1, .directory_fd = -1})

/* Opens the draft of `path`, of `bytes`; flags: CAIRN_SAVE_EXCLUSIVE, CAIRN_SAVE_REGULAR,
 * CAIRN_SAVE_URGENT. Errors: those of open(2) for writing; nothing is left of it then. One that is
 * DRAFT_SPECIAL is opened by draft_open_special(), which waits as open(2) does, e.g. for the reader
 * of a fifo. */
CAIRN_MUST_CHECK int draft_open(struct draft *draft, const char *path, uint64_t bytes, mode_t mode,
                                uint32_t flags);
CAIRN_MUST_CHECK int draft_open_special(struct draft *draft, const char *path, uint64_t bytes);

/* Does its directory lie on CairnFS? Asked once, when it is first of interest. That is two requests
 * of FUSE: the call that opens asks only where its save is urgent, or very large. */
bool draft_on_cairn(const struct draft *draft);

/* All is written: the file gets its size, if the last write does not end it. Fills `ret`. */
CAIRN_MUST_CHECK int draft_size(const struct draft *draft, uint64_t bytes, struct stat *ret);

CAIRN_MUST_CHECK int draft_write(const struct draft *draft, const void *data, size_t length,
                                 uint64_t at);

/* Gives it its name, in one step. `exclusive`: -EEXIST if the name is there. The draft is closed,
 * whatever comes of it. */
CAIRN_MUST_CHECK int draft_publish(struct draft *draft, bool exclusive);

/* DRAFT_STREAM: writes `bytes` to where the path leads, and closes the draft. No signal
 * is raised. */
CAIRN_MUST_CHECK int draft_stream(struct draft *draft, uint64_t bytes);

/* Takes it away: no file and no descriptor stays. Path, name and kind do: others may read these at
 * any time. */
void draft_discard(struct draft *draft);

/* Frees the memory. Descriptors stay open: the parent's filesystem would see a close by a child. */
void draft_done(struct draft *draft);

/* Removes hidden files of this form in the directory that processes left which are gone. */
void draft_clean(const struct draft *draft);
