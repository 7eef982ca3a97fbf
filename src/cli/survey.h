// SPDX-License-Identifier: Apache-2.0
/* Adds up the chunks of files and trees: asks their daemon for one portion after the other, so that
 * the daemon neither waits nor keeps state. Changes made meanwhile may or may not be counted. One
 * thread. */
#pragma once

#include <cjson/cJSON.h>

#include "cli/source.h"
#include "cli/target.h"
#include "format/chunk.h"

/* The last: encodings that only a newer version knows. */
#define SURVEY_FORMS (CHUNK_ENCODINGS + 1)
#define SURVEY_SAMPLE_MAX 64u

/* Bytes of the chunks of one encoding, and bytes as stored. */
struct survey_form {
    uint64_t raw, stored;
};

/* A sample of many chunks, in which each is equally likely: those with the smallest names, in this
 * order. `name` is the first half of a name; `bytes` are those of the tree that depend on the
 * chunk. */
struct survey_sample {
    struct survey_chunk {
        char name[33];
        unsigned encoding; /* of the chunks that depend on it */
        uint64_t bytes;
    } at[SURVEY_SAMPLE_MAX];
    unsigned count;
};

struct survey_sum {
    uint64_t files, directories, others;
    uint64_t logical_bytes; /* sizes; a file with several names counts once */
    uint64_t staged_bytes;  /* not on NVMe yet: the fields below do not count it */
    /* number of different chunks, and of parts of files that consist of them */
    uint64_t chunks, uses;
    /* raw: of these parts, and of each chunk once; these and the fields below include inline
     * content */
    uint64_t used_bytes, unique_bytes;
    uint64_t stored_bytes; /* of the unique ones, as stored */
    /* of the unique chunks, by enum chunk_encoding: as on NVMe, or else as in the remote */
    struct survey_form forms[SURVEY_FORMS];
    struct survey_form nvme_forms[SURVEY_FORMS];   /* of the chunks that are on NVMe */
    struct survey_form remote_forms[SURVEY_FORMS]; /* as above */
    uint64_t nvme_bytes, remote_bytes;             /* of all chunks in the tier, as stored */
    uint64_t shared_bytes;       /* raw: parts whose chunks are also used outside of this tree */
    struct survey_sample bases;  /* chunks that those in the remote are stored by */
    struct survey_sample shared; /* of shared_bytes */
    /* that nothing else needs: deleting the whole tree frees them */
    uint64_t freed_nvme_bytes, freed_remote_bytes;
};

/* `root`: the answer to "look" for the file or directory. Progress is shown on standard error if
 * that is a terminal. CLI_OK, or the exit code after a message. */
CAIRN_MUST_CHECK int survey_walk(const struct command *command, const char *store,
                                 const cJSON *root, struct survey_sum *ret);

/* As survey_walk(), for a file or directory in an open source. None of its content is staged, and
 * in a remote all of it is published. */
CAIRN_MUST_CHECK int survey_source(const struct command *command, struct source *source,
                                   const struct source_node *node, struct survey_sum *ret);

/* The name of an enum chunk_encoding, or "unknown". */
const char *survey_encoding_name(unsigned encoding);

/* Adds an object of that name with the raw and stored bytes by encoding. */
void survey_add_forms(cJSON *object, const char *name, const struct survey_form *forms);
/* Returns the ratio; 1 if there are no bytes. */
double survey_ratio(const struct survey_form *form);

/* Asks the daemon about the path, for survey_walk(); caller frees *ret_root and *ret_target. */
CAIRN_MUST_CHECK int survey_look(const struct command *command, const char *path,
                                 struct target *ret_target, cJSON **ret_root);
