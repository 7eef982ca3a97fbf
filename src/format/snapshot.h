// SPDX-License-Identifier: Apache-2.0
/* Named snapshots: objects "snapshots/NAME" of a remote's prefix. Created exclusively, never
 * overwritten; each contains a copy of the whole head that it names. Pure functions; any thread. */
#pragma once

#include "format/head.h"

#define SNAPSHOT_VERSION 1u
#define SNAPSHOT_DIRECTORY "snapshots"
#define SNAPSHOT_NAME_MAX 64u /* with its NUL */
#define SNAPSHOT_OBJECT_LEN (sizeof SNAPSHOT_DIRECTORY + SNAPSHOT_NAME_MAX)
#define SNAPSHOT_LEN_MAX (HEAD_LEN_MAX + 128u)

struct named_snapshot {
    char name[SNAPSHOT_NAME_MAX];
    int64_t created; /* ns since 1970, by the writer's clock */
    struct head head;
};

/* 1 to 63 English letters, digits, '.', '-' and '_', beginning with a letter or a digit: every tier
 * accepts such a name for an object. */
CAIRN_MUST_CHECK bool snapshot_name_is_sane(const char *name);
void snapshot_object_name(const char *name, char buf[SNAPSHOT_OBJECT_LEN]);

/* Returns the length, at most SNAPSHOT_LEN_MAX; `buf` has that much room. */
size_t snapshot_encode(const struct named_snapshot *snapshot, void *buf);
/* Errors as of head_decode(). */
CAIRN_MUST_CHECK int snapshot_decode(const void *buf, size_t len, struct named_snapshot *ret);
