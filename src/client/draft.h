// SPDX-License-Identifier: Apache-2.0
/* The file that a save writes, from its opening until it has its name. A draft has one owner;
 * others get it as const: they may write to it, several at once, and query its location. No call
 * logs; errors are negative errno with a cause. All may block as long as the filesystem does. */
#pragma once

#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/base.h"

enum draft_kind {
    DRAFT_NAMELESS, /* O_TMPFILE: vanishes with its last descriptor */
    DRAFT_HIDDEN,   /* has a name of its own until published: ".NAME.cairn-PID-N" */
    DRAFT_SPECIAL,  /* the path is not a regular file, and is not opened yet */
    /* the path is a device that accepts writes at offsets: bytes are written to it directly */
    DRAFT_DIRECT,
    /* the path is a fifo, a terminal or a socket: bytes wait in memory, and are written in order at
     * the end */
    DRAFT_STREAM,
};

struct draft {
    enum draft_kind kind;
    int fd;
    int stream_fd;    /* DRAFT_STREAM: the opened path; else -1 */
    int directory_fd; /* directory of the name; -1: none (direct, stream) */
    dev_t directory_dev;
    ino_t directory_ino;
    char *name;           /* in the directory, with symbolic links followed */
    char *hidden;         /* NULL: no such name at present */
    char *path;           /* absolute, for messages and to open the file later */
    _Atomic int on_cairn; /* unknown until draft_on_cairn() is called */
};

#define DRAFT_NONE ((struct draft){.fd = -1, .stream_fd = -1, .directory_fd = -1})

/* Opens the draft of `path`, of `bytes`; flags: CAIRN_SAVE_EXCLUSIVE, CAIRN_SAVE_REGULAR,
 * CAIRN_SAVE_URGENT. Errors: those of open(2) for writing; then no file is left. A DRAFT_SPECIAL is
 * opened by draft_open_special(), which blocks like open(2), e.g. until a fifo has a reader. */
CAIRN_MUST_CHECK int draft_open(struct draft *draft, const char *path, uint64_t bytes, mode_t mode,
                                uint32_t flags);
CAIRN_MUST_CHECK int draft_open_special(struct draft *draft, const char *path, uint64_t bytes);

/* Is its directory on CairnFS? Determined once, on first use, by two requests of FUSE: the call
 * that opens a draft does so only if its save is urgent, or very large. */
bool draft_on_cairn(const struct draft *draft);

/* Call when everything is written: sets the size, unless the last write ends there. Fills `ret`. */
CAIRN_MUST_CHECK int draft_size(const struct draft *draft, uint64_t bytes, struct stat *ret);

CAIRN_MUST_CHECK int draft_write(const struct draft *draft, const void *data, size_t length,
                                 uint64_t at);

/* Gives the file its name, atomically. `exclusive`: -EEXIST if the name exists. Closes the draft,
 * even after an error. */
CAIRN_MUST_CHECK int draft_publish(struct draft *draft, bool exclusive);

/* DRAFT_STREAM: writes `bytes` to the opened path, and closes the draft. Raises no signal. */
CAIRN_MUST_CHECK int draft_stream(struct draft *draft, uint64_t bytes);

/* Removes the file and closes its descriptors. Path, name and kind stay, since other threads may
 * read them at any time. */
void draft_discard(struct draft *draft);

/* Frees the memory. Descriptors stay open: in a child, the parent's filesystem would notice a
 * close. */
void draft_done(struct draft *draft);

/* Removes hidden files with names of this form in the directory whose processes have ended. */
void draft_clean(const struct draft *draft);
