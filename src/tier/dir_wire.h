// SPDX-License-Identifier: Apache-2.0
/* The protocol between a directory tier and its helper process. Both are the same program, so
 * plain structs will do.
 *
 * A channel is a pair of sockets (SOCK_SEQPACKET) with one call at a time on it, and one thread of
 * the helper at its end. A call is one struct dir_request, with the name and, where it is small,
 * the content behind it; the answer is one struct dir_answer, before which a listing has its
 * entries. Larger content goes through a pipe, whose other end came with the request that first
 * needed it: pages are moved there, not copied. A caller that gives up shuts the channel down for
 * sending. The helper looks for that before what it has written gets its name: from then on the
 * sender may use the memory for something else. */
#pragma once

#include <limits.h>
#include <stdint.h>

#include "tier/tier.h"

#define DIR_HELPER_NAME "cairn-dir-helper" /* argv[0]; argv[1] is the path, to be seen in lists */
#define DIR_HELPER_SOCKET 3                /* brings channels, one descriptor with each message */
#define DIR_INLINE_MAX 16384u              /* content in messages; more goes through a pipe */
#define DIR_NAME_MAX PATH_MAX
#define DIR_PIPE_BYTES (1 << 20)

enum dir_verb {
    /* name: a path. The answer is that path without symbolic links; its last part need not exist */
    DIR_RESOLVE,
    /* name: the path. Opens the directory for all later calls. -ESTALE: `known` is set, and it is
     * another directory, or its marker is gone. Later calls fail with -ESTALE, too, after the
     * directory was removed; calls that make names durable, also after its path leads elsewhere */
    DIR_OPEN,
    DIR_PUT,
    DIR_PUT_NEW,
    DIR_GET,
    DIR_STAT,
    DIR_LIST, /* name: the directory, NUL, after */
    DIR_REMOVE,
    DIR_MAKE_DIRECTORY,
    DIR_SYNC_DIRECTORY,
    DIR_STORE_AGAIN, /* copied into a new file, which takes the name */
    DIR_NOW,
    DIR_SPACE,
};

#define DIR_MARKER "cairn" /* the object that says what a prefix is */

/* Names a directory on a filesystem. An inode number comes again when a directory was removed: so
 * when it was made, too. */
struct dir_place {
    uint64_t ino;
    int64_t fs_type;
    int64_t made_ns; /* 0: the filesystem does not tell */
    bool has_marker;
};

struct dir_request {
    enum dir_verb verb;
    uint32_t name_len; /* of what follows, with its NUL; the rest is content */
    uint64_t offset, len;
    struct dir_place known;
    bool is_known, read_only, may_make; /* DIR_OPEN */
};

enum dir_answer_kind { DIR_ANSWER, DIR_ENTRIES };

struct dir_answer {
    enum dir_answer_kind kind;
    int32_t result; /* 0 or -errno */
    bool is_lost;   /* DIR_SYNC_DIRECTORY failed so that names may be lost */
    /* DIR_ENTRIES: as many struct dir_entry follow; else bytes of content or text do */
    uint32_t count;
    uint64_t len;           /* DIR_STAT */
    int64_t modified_ns;    /* DIR_STAT, DIR_NOW */
    bool is_shared;         /* DIR_NOW: who else touches a file there gets the same clock's time */
    uint64_t total, free;   /* DIR_SPACE: bytes */
    struct dir_place place; /* DIR_OPEN; a struct tier_place follows */
};

/* Packed one after the other, the name with its NUL behind each. */
struct dir_entry {
    uint64_t len;
    int64_t modified_ns;
    uint32_t name_len;
};

#define DIR_MESSAGE_MAX (sizeof(struct dir_request) + 2 * DIR_NAME_MAX + DIR_INLINE_MAX)
