// SPDX-License-Identifier: Apache-2.0
/* STORE/session and the stage that it names. One thread: that which opens the store, or closes it.
 * Blocks for local I/O, and up to a second for the end of a daemon that was killed. */
#pragma once

#include "base/base.h"

struct own_stage; /* commit.own_stage: the one that the store has open */

struct session {
    bool exists; /* else the last one ended cleanly */
    /* it could only read, and so could those whose stage it took over: that holds nothing */
    bool is_reader;
    bool is_of_other_boot; /* its stage is gone, whatever is there */
    bool names_boot;       /* it says of which boot it is */
    char *dir;             /* where the stage is; session_done() frees it */
    uint8_t name[16];      /* of the stage */
};

CAIRN_MUST_CHECK int session_read(const char *store, const uint8_t store_id[16],
                                  struct session *ret);
void session_done(struct session *session);
/* Writes the session of the stage that the store has open. */
CAIRN_MUST_CHECK int session_write(struct own_stage *own, bool is_reader);
/* There is no session any more, and no stage that belongs to it. */
CAIRN_MUST_CHECK int session_end(const char *store);
/* The same; a stage that holds nothing goes with it. */
CAIRN_MUST_CHECK int session_forget(const char *store, const uint8_t store_id[16]);
/* Is there a stage, with data that may lie nowhere else? */
bool session_left_stage(const char *store, const uint8_t store_id[16]);

/* The control file of the stage that the session left, if that may have what is nowhere else; NULL:
 * none has. *ret_bytes: of writes, at most. Caller frees. */
char *session_staged(const char *store, const uint8_t store_id[16], uint64_t *ret_bytes);

/* Opens the stage that the session left, if it continues this journal and is no other store's. 0
 * with local->stage NULL: there is none, which was told. -EBUSY: the store is a copy of one that
 * has it. Else it cannot be used. *ret_text says why. */
CAIRN_MUST_CHECK int session_open_stage(struct own_stage *own, const struct session *session,
                                        char **ret_text);
/* Ends a session whose stage is gone, or another store's. -EBUSY: it may have data of this store;
 * *ret_dir is where (caller frees). */
CAIRN_MUST_CHECK int session_leave_other(const char *store, const uint8_t store_id[16],
                                         char **ret_dir);
/* Makes an empty one for the store's epoch. */
CAIRN_MUST_CHECK int session_new_stage(struct own_stage *own);
/* Takes that back: no session names it yet. */
void session_drop_stage(struct own_stage *own);
/* Closes the store's stage, if it has one; `is_empty`: and removes it, with a directory of its
 * own. */
void session_close_stage(struct own_stage *own, bool is_empty);
/* Is another store mounted that has the same id, as far as their stages are in the same directory?
 * It is told; -EBUSY, with *ret_text, where both would write to one remote. */
CAIRN_MUST_CHECK int session_meet_twin(struct own_stage *own, char **ret_text);
