// SPDX-License-Identifier: Apache-2.0
/* Turns: normally one thread at a time receives from the kernel, but several while large writes are
 * waiting (turns.c). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"

#define TURN_KINDS 64u
struct turns {
    struct cairn_mutex lock;
    pthread_cond_t changed;
    /* threads that wait for the kernel, or are about to; TURN_ALL: none may */
    _Atomic unsigned receiving;
    _Atomic int together;     /* if above 0, any number may receive: for so many more receipts */
    _Atomic unsigned resting; /* threads waiting for their turn */
    unsigned wanted;          /* of these, to be woken */
    bool is_watched, ended;
    _Atomic bool is_long[TURN_KINDS]; /* by opcode: the last request took long */
};
void turns_init(struct turns *turns);
void turns_done(struct turns *turns);
void turns_end(struct turns *turns); /* resting threads return without a turn */
/* Waits for the turn to receive. False: receiving has ended. */
bool turn_take(struct turns *turns);
void turn_leave(struct turns *turns); /* call after receiving a request, or none */
/* Notes that the thread, which still has the turn, received a request of `size` bytes from `fd`. */
void turn_received(struct turns *turns, int fd, size_t size);
/* Keeps all threads from receiving, without blocking. False: one is receiving. */
bool turns_try_all(struct turns *turns);
void turns_leave_all(struct turns *turns);
/* turn_begin() and turn_end() enclose the handling of a request. */
int64_t turn_begin(struct turns *turns, uint32_t opcode);
/* Call just before the answer, if the request has one. `fd`: to the kernel. */
void turn_answering(struct turns *turns, int fd);
void turn_end(struct turns *turns, uint32_t opcode, int64_t begun);
