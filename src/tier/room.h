// SPDX-License-Identifier: Apache-2.0
/* Reserved space on the medium, so that later puts cannot meet ENOSPC: spare files, allocated
 * ahead, in the directory room/ of a tier. Every object is first written to a file there and moved
 * to its name when its content is durable. Any thread; no lock is held over I/O. */
#pragma once

#include "base/base.h"
#include "tier/tier.h"

#define ROOM_DIRECTORY "room"
#define ROOM_SPARE_LEN TIER_RESERVE_UNIT

struct room;

/* A file in room/, owned by the caller. */
struct room_file {
    int fd; /* for writing; -1 after room_file_done() */
    bool direct;
    uint64_t len;  /* allocated bytes */
    char path[32]; /* relative to the tier's directory */
};

/* Removes the files of an earlier daemon. `root_fd` is borrowed. */
CAIRN_MUST_CHECK int room_open(int root_fd, struct room **ret_room);

/* The spare files stay, until the next room_open() removes them. NULL is fine. */
void room_close(struct room *room);

/* See tier_ops.reserve. */
CAIRN_MUST_CHECK int room_reserve(struct room *room, uint64_t bytes, unsigned files,
                                  uint64_t *ret_held);

uint64_t room_held(struct room *room);

/* Returns a file with at least `len` bytes allocated: new, or a spare one. With `direct` it is
 * opened with O_DIRECT if the filesystem supports that. */
CAIRN_MUST_CHECK int room_take(struct room *room, uint64_t len, bool direct,
                               struct room_file *ret_file);

/* Moves the file to its name; -EEXIST if that is taken. After an error the caller still owns the
 * file. */
CAIRN_MUST_CHECK int room_file_move(struct room *room, struct room_file *file, const char *object);

/* Closes the file, and removes it from room/ if it was not moved. */
void room_file_done(struct room *room, struct room_file *file);
