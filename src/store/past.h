// SPDX-License-Identifier: Apache-2.0
/* The earlier states of a remote, each of which is a head that its gc has not removed, or the
 * snapshots of a store: the list of them, and the content of a path in each. Without a mount; for a
 * remote in an empty private directory that the caller removes later. One thread. Errors are
 * negative errno. */
#pragma once

#include "base/vector.h"
#include "store/store.h"

struct past;

/* With options->remote: opens that remote, which must have a head. Without: the snapshots of the
 * store options->path, which may be mounted. On failure *ret_text is the error in one line (caller
 * frees). */
CAIRN_MUST_CHECK int past_open(const struct store_options *options, struct past **ret,
                               char **ret_text);
void past_close(struct past *past); /* NULL: no effect */
/* Returns why the newest head may not be the newest that existed; NULL: no sign of that. Valid as
 * long as `past`. */
const char *past_warning(const struct past *past);

/* One head. */
struct past_head {
    uint64_t number;
    int error;         /* why it cannot be read; 0: it can */
    int64_t published; /* by its writer's clock, ns */
    uint64_t cut, files, logical_bytes;
    uint64_t chunks;   /* that the files refer to; of a store's snapshot 0 */
    uint8_t state[32]; /* equal for heads of the same state */
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
 * one. Fetches the objects from the remote that the last state did not need. -ENOENT, -EUCLEAN,
 * -EBADMSG: the head or an object that it names is lost; the last state is still shown. *ret_text:
 * the object, in one line (caller frees). */
CAIRN_MUST_CHECK int past_show(struct past *past, uint64_t number, char **ret_text);

/* The content of PATH in a state, compared with the state before. Links are not followed. */
struct past_path_sum {
    bool exists, is_directory;
    int64_t modified;             /* ns */
    uint64_t files, bytes;        /* regular ones, at and below it */
    uint64_t made, changed, gone; /* of these files, by path: since the state before */
};
struct past_path;
struct past_path *past_path_new(struct past *past, const char *path);
void past_path_free(struct past_path *path);
/* Reads everything below PATH, unless nothing of it changed since the last call. -EUCLEAN: the
 * state is damaged. */
CAIRN_MUST_CHECK int past_path_look(struct past_path *path, struct past_path_sum *ret);

/* --- past_only.c ------------------------------------------------------------------------------ */

/* Counts the bytes of packs that only one of the added states needs. */
struct past_only;
struct past_only *past_only_new(struct past *past);
void past_only_free(struct past_only *only); /* NULL: no effect */
/* Adds a state: of a remote the one that past_show() shows, of a store the snapshot `number`. On an
 * error it is not added. -EOPNOTSUPP: several nodes write the remote, and its heads do not say
 * which packs they need. */
CAIRN_MUST_CHECK int past_only_add(struct past_only *only, uint64_t number);
/* Adds the newest state of a store that no daemon serves. Errors of view_open(). */
CAIRN_MUST_CHECK int past_only_add_now(struct past_only *only);
/* Fills in the bytes of each state that was added, in their order. */
void past_only_sums(const struct past_only *only, uint64_t *ret);
