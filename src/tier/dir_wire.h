// SPDX-License-Identifier: Apache-2.0
/* The protocol between a directory tier and its helper process. Both run the same program, so plain
 * structs suffice.
 *
 * A channel is a pair of sockets (SOCK_SEQPACKET) with one call at a time, served by one thread of
 * the helper. A call is one struct dir_request, followed by the name and, if it is small, the
 * content. The answer is one struct dir_answer; the entries of a listing precede it. Larger content
 * goes through a pipe, whose other end was sent with the first request that needed it: its pages
 * are moved, not copied. A caller that gives up shuts its end down for sending. The helper checks
 * for that before it names a written object: once it has given up, the caller may reuse the memory
 * of the content. */
#pragma once

#include <limits.h>
#include <stdint.h>

#include "tier/tier.h"

/* argv[0]; argv[1] is the path, for lists of processes */
#define DIR_HELPER_NAME "cairn-dir-helper"
#define DIR_HELPER_SOCKET 3   /* receives channels: one descriptor per message */
#define DIR_INLINE_MAX 16384u /* content in messages; more goes through a pipe */
#define DIR_NAME_MAX PATH_MAX
#define DIR_PIPE_BYTES (1 << 20)

enum dir_verb {
    /* name: a path. The answer is that path without symbolic links; its last part need not exist */
    DIR_RESOLVE,
    /* name: the path. Opens the directory for all later calls. -ESTALE: `known` is set, and this is
     * another directory, or its marker is missing. Once the directory is removed, all later calls
     * fail with -ESTALE; once its path leads elsewhere, so do calls that make names durable */
    DIR_OPEN,
    DIR_PUT,
    DIR_PUT_NEW,
    DIR_GET,
    DIR_STAT,
    DIR_LIST, /* name: the directory, NUL, after */
    DIR_REMOVE,
    DIR_MAKE_DIRECTORY,
    DIR_SYNC_DIRECTORY,
    DIR_STORE_AGAIN, /* copies the object into a new file, which replaces it */
    DIR_NOW,
    DIR_SPACE,
};

#define DIR_MARKER "cairn" /* the object that identifies a prefix */

/* Identifies a directory within its filesystem. The inode number of a removed directory may be
 * reused, so the time of creation is part of it. */
struct dir_place {
    uint64_t ino;
    int64_t fs_type;
    int64_t made_ns; /* 0: the filesystem does not record it */
    bool has_marker;
};

struct dir_request {
    enum dir_verb verb;
    uint32_t name_len; /* of the name after this struct, with its NUL; the rest is content */
    uint64_t offset, len;
    struct dir_place known;
    bool is_known, read_only, may_make; /* DIR_OPEN */
};

enum dir_answer_kind { DIR_ANSWER, DIR_ENTRIES };

struct dir_answer {
    enum dir_answer_kind kind;
    int32_t result; /* 0 or -errno */
    bool is_lost;   /* DIR_SYNC_DIRECTORY failed in a way that may lose names */
    /* DIR_ENTRIES: as many struct dir_entry follow; else bytes of content or text do */
    uint32_t count;
    uint64_t len;        /* DIR_STAT */
    int64_t modified_ns; /* DIR_STAT, DIR_NOW */
    /* DIR_NOW: all clients of the directory get the time from the same clock */
    bool is_shared;
    uint64_t total, free;   /* DIR_SPACE: bytes */
    struct dir_place place; /* DIR_OPEN; a struct tier_place follows */
};

/* Entries are packed; each is followed by its name with a NUL. */
struct dir_entry {
    uint64_t len;
    int64_t modified_ns;
    uint32_t name_len;
};

#define DIR_MESSAGE_MAX (sizeof(struct dir_request) + 2 * DIR_NAME_MAX + DIR_INLINE_MAX)
