// SPDX-License-Identifier: Apache-2.0
/* Requests of the kernel that are not answered yet.
 *
 * A table in the stage, which outlives the daemon: a successor that adopts the mount gets these
 * requests again, and must not do twice what was done. A request has its place from when it is
 * received until it is answered. What decides it (the record in the log, or the written bytes) is
 * noted before it counts: number first, then the record. A recovery looks for that number, and
 * finds it if and only if the change happened: the lock under which a record is appended also keeps
 * the log from being compacted in between.
 *
 * Any thread. Nothing blocks. Where the table is full a request has no place, and is not
 * remembered. */
#pragma once

#include "base/base.h"

struct stage;

enum request_kind {
    REQUEST_CHANGES_NOTHING, /* or may be repeated */
    REQUEST_MAY_BE_APPLIED,  /* it is done when stage_request_applied() says so */
    REQUEST_WRITES,          /* decided by the bytes that it stages */
    REQUEST_OPENS,           /* by the handle that it takes */
    REQUEST_CLOSES,          /* by the handle that it gives back */
    REQUEST_RECORDS,         /* by a record of `records` */
};

/* The calling thread works for this request until stage_request_leave(). `records`: of
 * REQUEST_RECORDS, the types as bits. */
void stage_request_enter(struct stage *stage, uint64_t unique, uint32_t opcode,
                         enum request_kind kind, uint64_t records);
/* Notes the handle of a REQUEST_CLOSES, which nothing uses any more. What takes the mount over
 * closes it even where the kernel cannot send the request again. */
void stage_request_closes(struct stage *stage, uint64_t handle);
/* From here on another record decides. */
void stage_request_decide(uint64_t records);
/* All of it happened. `result`: for the answer. */
void stage_request_applied(int64_t result);
void stage_request_leave(void);

/* Around the answer, in any thread: after the second the request is forgotten. */
void stage_request_answering(struct stage *stage, uint64_t unique);
void stage_request_answered(struct stage *stage, uint64_t unique);
bool stage_request_has_place(struct stage *stage, uint64_t unique);
/* The number of requests that have a place now. In one order with stage_request_answered() and what
 * is sequentially consistent: a thread that announces that it counts, and then counts, is not
 * missed by one that answers, and then looks for announcements. */
unsigned stage_requests_open(struct stage *stage);

/* --- requests that a dead daemon left --------------------------------------------------------- */

struct stage_request {
    uint64_t unique;
    uint32_t opcode;
    bool is_applied;
    bool was_answering; /* perhaps it was answered */
    uint64_t ino;       /* of the record that decided it */
    int64_t result;
    bool has_handle;
    uint64_t handle;
};

/* The request comes again. False: nothing is known of it. Otherwise what is known, and the request
 * is the caller's: it has its place still. */
bool stage_request_return(struct stage *stage, uint64_t unique, struct stage_request *ret);
/* One of those that have not come again; it loses its place. False: there is none. */
bool stage_request_take_left(struct stage *stage, struct stage_request *ret);
/* Has one of them made this inode? */
bool stage_request_left_made(struct stage *stage, uint64_t ino);
