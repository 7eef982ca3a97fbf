// SPDX-License-Identifier: Apache-2.0
/* A prefix of a remote: its marker, what is left of one that lost objects, and its heads as they
 * are read. The opening thread, then the uploader, or a follower's. */
#pragma once

#include "remote/internal.h"

/* --- head_read.c ------------------------------------------------------------------------------ */

void head_object_name(uint64_t number, char buf[OBJECT_NAME_LEN]);
/* Its number; 0: there is none after number `after`. */
CAIRN_MUST_CHECK int remote_newest_number(struct remote *remote, uint64_t after,
                                          uint64_t *ret_newest);
/* The newest head after number `after`; -ENOENT: there is none. -EAGAIN: it is listed, and not
 * found. */
CAIRN_MUST_CHECK int remote_newest_head(struct remote *remote, uint64_t after,
                                        struct head *ret_head);
/* -ENOENT; -EUCLEAN: it is none of this history. *ret_head is cleared then. */
CAIRN_MUST_CHECK int remote_read_head(struct remote *remote, uint64_t number,
                                      struct head *ret_head);
/* A small object of at most `max` bytes, decoded; what looks damaged is read again a few times. */
CAIRN_MUST_CHECK int remote_read_object(struct remote *remote, const char *object, size_t max,
                                        int (*decode)(const void *buf, size_t len, void *arg),
                                        void *arg);

/* --- prefix.c --------------------------------------------------------------------------------- */

/* Reads the marker. -ENOENT: it is not there. */
CAIRN_MUST_CHECK int remote_meet(struct remote *remote);
/* Reads the marker, and looks whether the prefix is whole: 0, with has_prefix; or empty: 0 without.
 * -EBUSY with *ret_text: its marker or its heads are missing, but not what they name. `has_store`:
 * the superblock was read. */
CAIRN_MUST_CHECK int prefix_look(struct remote *remote, bool has_store, char **ret_text);
/* -EINVAL with *ret_text: the prefix is of another history than the store. */
CAIRN_MUST_CHECK int prefix_check_history(struct remote *remote, char **ret_text);
/* For a writer: are all heads there that writers created before they stored runs? -EBUSY with
 * *ret_text: no. With --rollback they are given up: their epochs are not used again. */
CAIRN_MUST_CHECK int prefix_check_newest(struct remote *remote, char **ret_text);
/* Returns the features that a reader of a head must know if it is published now. */
uint32_t prefix_features(const struct remote *remote);
/* The newest head that the store knows, if this is the remote where it was published. */
bool prefix_known_head(struct remote *remote, struct head *ret_head);
CAIRN_MUST_CHECK int prefix_probe_exclusive(struct remote *remote, char **ret_text);
/* Makes the prefix if it is empty, and sees that it creates exclusively. May be repeated. -EAGAIN:
 * it is not empty after all; it is to be looked at again. */
CAIRN_MUST_CHECK int remote_prepare(struct remote *remote, char **ret_text);

/* --- tried.c ---------------------------------------------------------------------------------- */

void tried_load(struct remote *remote);
/* Before the head is created. */
void tried_add(struct remote *remote, const struct head *head);
/* Did this store create it, whatever it was answered? In this session, or one that was killed. */
bool remote_is_own_try(const struct remote *remote, const struct head *head);
