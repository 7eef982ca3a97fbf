// SPDX-License-Identifier: Apache-2.0
/* The earlier states of a remote, each of which is a head that its gc has not removed, or the
 * snapshots of a store: which there are, and what a path was in each. Without a mount; for a remote
 * in an empty private directory that the caller removes later. One thread. Errors are negative
 * errno. */
#pragma once

#include "base/vector.h"
#include "store/store.h"

struct past;

/* options->remote: that one; it has a head. Without: the snapshots of the store options->path,
 * which may be mounted. On failure *ret_text says in one line what is wrong
 * (caller frees). */
CAIRN_MUST_CHECK int past_open(const struct store_options *options, struct past **ret,
                               char **ret_text);
void past_close(struct past *past); /* NULL is fine */
/* Why the newest head may not be the newest that was; NULL: nothing is known. Lent. */
const char *past_warning(const struct past *past);

/* One head. */
struct past_head {
    uint64_t number;
    int error;         /* it cannot be read; 0: it can */
    int64_t published; /* by its writer's clock, ns */
    uint64_t cut, files, logical_bytes;
    uint64_t chunks;   /* that the files refer to; of a store's snapshot 0 */
    uint8_t state[32]; /* heads of the same state have the same */
};
DEFINE_VECTOR(past_heads, struct past_head);

/* A state for messages: "the snapshot a" if it has a name, else "head 7 of 2026-11-28T20:59:08Z".
 * `published` 0: that is not known. Caller frees. Any thread. */
char *past_describe(uint64_t head, int64_t published, const char *name);

/* Reads the newest `max` heads at most, the oldest first. *ret_more: there are older ones. */
CAIRN_MUST_CHECK int past_list(struct past *past, uint64_t max, struct past_heads *ret,
                               bool *ret_more);

/* A snapshot with a name. */
struct past_name {
    char name[SNAPSHOT_NAME_MAX];
    int error; /* it is damaged; 0: it is not */
    int64_t created;
    struct past_head head;
};
DEFINE_VECTOR(past_names, struct past_name);
/* Reads all names, ascending. */
CAIRN_MUST_CHECK int past_list_names(struct past *past, struct past_names *ret);

/* From now on paths are looked up in the state of this head, whose number is above that of the last
 * one. Takes from the remote what that did not have. -ENOENT, -EUCLEAN, -EBADMSG: the head or what
 * it names is lost; the last one is shown still. *ret_text: what, in one line (caller frees). */
CAIRN_MUST_CHECK int past_show(struct past *past, uint64_t number, char **ret_text);

/* What PATH is in a state, against the one that was looked at before. Links are not followed. */
struct past_path_sum {
    bool exists, is_directory;
    int64_t modified;             /* ns */
    uint64_t files, bytes;        /* regular ones, at and below it */
    uint64_t made, changed, gone; /* of these, by path: since the state before */
};
struct past_path;
struct past_path *past_path_new(struct past *past, const char *path);
void past_path_free(struct past_path *path);
/* Reads all that is below PATH, unless nothing of it changed since the last call. -EUCLEAN: the
 * state is damaged. */
CAIRN_MUST_CHECK int past_path_look(struct past_path *path, struct past_path_sum *ret);

/* --- past_only.c ------------------------------------------------------------------------------ */

/* Which bytes of packs one state alone needs, of those that are added. */
struct past_only;
struct past_only *past_only_new(struct past *past);
void past_only_free(struct past_only *only); /* NULL is fine */
/* Adds a state: of a remote the one that past_show() shows, of a store the snapshot `number`. On an
 * error it is not added. -EOPNOTSUPP: several nodes write the remote, and its heads do not say
 * which packs they need. */
CAIRN_MUST_CHECK int past_only_add(struct past_only *only, uint64_t number);
/* Adds what the files of now need, of a store that no daemon serves. Errors of view_open(). */
CAIRN_MUST_CHECK int past_only_add_now(struct past_only *only);
/* Fills in the bytes of each state that was added, in their order. */
void past_only_sums(const struct past_only *only, uint64_t *ret);
