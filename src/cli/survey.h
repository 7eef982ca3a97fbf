// SPDX-License-Identifier: Apache-2.0
/* Adds up the chunks of files and trees: asks their daemon for one portion after the other, so that
 * the daemon neither waits nor keeps state. Changes made meanwhile may or may not be counted. One
 * thread. */
#pragma once

#include <cjson/cJSON.h>

#include "cli/target.h"
#include "format/chunk.h"

struct survey_sum {
    uint64_t files, directories, others;
    uint64_t logical_bytes;            /* sizes; a file with several names counts once */
    uint64_t staged_bytes;             /* not on NVMe yet: nothing of what follows counts it */
    uint64_t chunks, uses;             /* different ones; parts of files that consist of them */
    uint64_t used_bytes, unique_bytes; /* raw: of these parts, and of each chunk once; this and what
                                          follows includes inline content */
    uint64_t stored_bytes;             /* of the unique ones, as stored */
    struct {
        uint64_t raw, stored; /* of the unique chunks of one encoding */
    } encoded[CHUNK_ENCODINGS +
              1]; /* by enum chunk_encoding; the last: of others, which a newer version knows */
    uint64_t nvme_bytes, remote_bytes; /* of these, there */
    uint64_t freed_nvme_bytes,
        freed_remote_bytes; /* that nothing else needs: deleting all of it frees them */
};

/* `root`: the answer to "look" for the file or directory. Progress goes to standard error if that
 * is a terminal. CLI_OK, or the exit code, and it was said why. */
CAIRN_MUST_CHECK int survey_run(const struct command *command, const char *store, const cJSON *root,
                                struct survey_sum *ret);

/* Of enum chunk_encoding, or "unknown". */
const char *survey_encoding_name(unsigned encoding);

/* An object with the raw and stored bytes by encoding. */
void survey_add_encodings(cJSON *object, const struct survey_sum *sum);

/* Asks the daemon about the path, for survey_run(); caller frees *ret_root and *ret_target. */
CAIRN_MUST_CHECK int survey_look(const struct command *command, const char *path,
                                 struct target *ret_target, cJSON **ret_root);
