// SPDX-License-Identifier: Apache-2.0
/* Jobs that the daemon does for a command: started, watched, cancelled by an interrupt. One
 * thread. */
#pragma once

#include <cjson/cJSON.h>

#include "cli/command.h"

struct job_report {
    uint64_t bytes, bytes_total, packs, chunks;
    uint64_t found, healed, unhealed; /* chunks */
    uint64_t files;                   /* that lack chunks which no tier can read */
    uint64_t objects, removed_bytes;
    bool cancelled, failed; /* failed: a message was printed */
};

/* Starts the job of `request` (freed) in the daemon of the call's mount, prints its lines (or adds
 * them to the array `lines`, if that is not NULL), and shows its progress if standard error is a
 * terminal. CLI_OK: it has ended, see *ret; else the exit code. */
CAIRN_MUST_CHECK int job_execute(const struct call *call, cJSON *request, cJSON *lines,
                                 struct job_report *ret);
