// SPDX-License-Identifier: Apache-2.0
/* STORE/session and the stage that it refers to. Only for the thread that opens or closes the
 * store. Blocks for local I/O, and up to a second for the end of a killed daemon. */
#pragma once

#include "base/base.h"

struct own_stage; /* commit.own_stage: the stage that the store has open */

struct session {
    bool exists; /* else the last session ended cleanly */
    /* its daemon was read-only, as were those whose stage it adopted: the stage is empty */
    bool is_reader;
    bool is_of_other_boot; /* its stage is gone, even if a file exists */
    bool names_boot;       /* it records the boot */
    char *dir;             /* the directory of the stage; session_done() frees it */
    uint8_t name[16];      /* of the stage */
};

CAIRN_MUST_CHECK int session_read(const char *store, const uint8_t store_id[16],
                                  struct session *ret);
void session_done(struct session *session);
/* Writes STORE/session for the stage that the store has open. */
CAIRN_MUST_CHECK int session_write(struct own_stage *own, bool is_reader);
/* Ends the session: no stage belongs to the store any more. */
CAIRN_MUST_CHECK int session_end(const char *store);
/* As session_end(); also removes the stage if it is empty. */
CAIRN_MUST_CHECK int session_forget(const char *store, const uint8_t store_id[16]);
/* Is there a stage, with data that may exist nowhere else? */
bool session_left_stage(const char *store, const uint8_t store_id[16]);

/* The control file of the stage that the session left, if it may contain the only copy of data;
 * else NULL. *ret_bytes: upper bound of the bytes of writes. Caller frees. */
char *session_staged(const char *store, const uint8_t store_id[16], uint64_t *ret_bytes);

/* Opens the stage that the session left, if it continues this journal and does not belong to
 * another store. 0 with local->stage NULL: there is none; logged. -EBUSY: the store is a copy of
 * the stage's owner. Other errors: the stage cannot be used. *ret_text explains. */
CAIRN_MUST_CHECK int session_open_stage(struct own_stage *own, const struct session *session,
                                        char **ret_text);
/* Ends a session whose stage is gone, or belongs to another store. -EBUSY: the stage may have data
 * of this store; *ret_dir is its directory (caller frees). */
CAIRN_MUST_CHECK int session_leave_other(const char *store, const uint8_t store_id[16],
                                         char **ret_dir);
/* Creates an empty stage for the store's epoch. */
CAIRN_MUST_CHECK int session_new_stage(struct own_stage *own);
/* Removes the stage of session_new_stage(), which no session refers to yet. */
void session_drop_stage(struct own_stage *own);
/* Closes the store's stage, if any; `is_empty`: also removes it, and its directory if it has one of
 * its own. */
void session_close_stage(struct own_stage *own, bool is_empty);
/* Is another store with the same id mounted, as far as their stages are in the same directory? Logs
 * it; -EBUSY, with *ret_text, if both would write to one remote. */
CAIRN_MUST_CHECK int session_meet_twin(struct own_stage *own, char **ret_text);
