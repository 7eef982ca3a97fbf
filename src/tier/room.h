// SPDX-License-Identifier: Apache-2.0
/* Room on the medium that later puts cannot be denied: spare files, allocated ahead, in the
 * directory room/ of a tier. Every object begins as a file there and is moved to its name when its
 * content is durable. Any thread; no lock is held over I/O. */
#pragma once

#include "base/base.h"
#include "tier/tier.h"

#define ROOM_DIRECTORY "room"
#define ROOM_SPARE_LEN TIER_RESERVE_UNIT

struct room;

/* A file in room/ that belongs to the caller. */
struct room_file {
    int fd; /* for writing; -1 after room_file_done() */
    bool direct;
    uint64_t len;  /* allocated */
    char path[32]; /* relative to the tier's directory */
};

/* Removes what an earlier daemon left. `root_fd` is borrowed. */
CAIRN_MUST_CHECK int room_open(int root_fd, struct room **ret_room);

/* Leaves the spare files for the next room_open() to remove. NULL is fine. */
void room_close(struct room *room);

/* See tier_ops.reserve. */
CAIRN_MUST_CHECK int room_reserve(struct room *room, uint64_t bytes, unsigned files,
                                  uint64_t *ret_held);

uint64_t room_held(struct room *room);

/* A file with at least `len` bytes allocated: new, or a spare one. With `direct` it is opened for
 * O_DIRECT where the filesystem has that. */
CAIRN_MUST_CHECK int room_take(struct room *room, uint64_t len, bool direct,
                               struct room_file *ret_file);

/* Moves the file to its name; -EEXIST if that is taken. The file is the caller's still if this
 * fails. */
CAIRN_MUST_CHECK int room_file_move(struct room *room, struct room_file *file, const char *object);

/* Closes the file, and removes it from room/ if it was not moved. */
void room_file_done(struct room *room, struct room_file *file);
