// SPDX-License-Identifier: Apache-2.0
/* `cairn fsck` of a remote. One thread. */
#pragma once

#include "cli/source.h"

/* fsck(8)'s */
enum fsck_exit {
    FSCK_CLEAN = 0,
    FSCK_REPAIRED = 1,
    FSCK_PROBLEMS = 4,
    FSCK_OPERATIONAL = 8,
    FSCK_USAGE = 16
};

struct fsck_request {
    bool repair, is_json;
    uint64_t sample; /* percent; 0: not given */
    struct mount_options options;
};

void fsck_more_help(void);
int fsck_remote(const struct command *command, const struct fsck_request *request,
                const char *source);
