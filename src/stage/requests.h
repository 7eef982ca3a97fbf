// SPDX-License-Identifier: Apache-2.0
/* Requests of the kernel that are not answered yet.
 *
 * A table in the stage, which outlives the daemon: a successor that adopts the mount receives these
 * requests again, and must not apply a change twice. A request has a slot from its receipt until
 * its answer. The number of the record or write that decides the request is noted first, then the
 * record takes effect. A recovery looks for that number, and finds it if and only if the change
 * happened: the lock under which a record is appended also prevents a compaction of the log in
 * between.
 *
 * Any thread. Nothing blocks. If the table is full, a request has no slot and is not remembered. */
#pragma once

#include "base/base.h"

struct stage;

enum request_kind {
    REQUEST_CHANGES_NOTHING, /* or may be repeated */
    REQUEST_MAY_BE_APPLIED,  /* done if stage_request_applied() was called */
    REQUEST_WRITES,          /* decided by the bytes that it stages */
    REQUEST_OPENS,           /* decided by the handle that it allocates */
    REQUEST_CLOSES,          /* decided by the handle that it frees */
    REQUEST_RECORDS,         /* decided by a record whose type is in `records` */
};

/* From now until stage_request_leave(), the calling thread works on this request. `records`: for
 * REQUEST_RECORDS, a bit set of record types. */
void stage_request_enter(struct stage *stage, uint64_t unique, uint32_t opcode,
                         enum request_kind kind, uint64_t records);
/* Notes the handle of a REQUEST_CLOSES, which is not used any more. A successor closes it even if
 * the kernel cannot send the request again. */
void stage_request_closes(struct stage *stage, uint64_t handle);
/* From now on a record of another type decides the request. */
void stage_request_decide(uint64_t records);
/* The request took full effect. `result`: for the answer. */
void stage_request_applied(int64_t result);
void stage_request_leave(void);

/* Call before and after the answer is sent, from any thread: after the second call the request is
 * forgotten. */
void stage_request_answering(struct stage *stage, uint64_t unique);
void stage_request_answered(struct stage *stage, uint64_t unique);
bool stage_request_has_place(struct stage *stage, uint64_t unique);
/* The number of requests with a slot. Sequentially consistent with stage_request_answered(): if a
 * thread announces that it counts, then counts, and another one answers, then looks for
 * announcements, at least one of them sees the other. */
unsigned stage_requests_open(struct stage *stage);

/* --- requests that a dead daemon left --------------------------------------------------------- */

struct stage_request {
    uint64_t unique;
    uint32_t opcode;
    bool is_applied;
    bool was_answering; /* the answer may have been sent */
    uint64_t ino;       /* of the record that decided it */
    int64_t result;
    bool has_handle;
    uint64_t handle;
};

/* The kernel has sent the request again. False: nothing is known of it. Otherwise *ret is its
 * state, and the caller answers it: its slot stays. */
bool stage_request_return(struct stage *stage, uint64_t unique, struct stage_request *ret);
/* Removes one of the requests that the kernel has not sent again. False: none left. */
bool stage_request_take_left(struct stage *stage, struct stage_request *ret);
/* Did one of them create this inode? */
bool stage_request_left_made(struct stage *stage, uint64_t ino);
