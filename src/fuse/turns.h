// SPDX-License-Identifier: Apache-2.0
/* Turns: one thread at a time receives from the kernel, several while large writes wait (turns.c).
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"

#define TURN_KINDS 64u
struct turns {
    struct cairn_mutex lock;
    pthread_cond_t changed;
    /* threads that wait for the kernel, or are about to; TURN_ALL: one that keeps all from it */
    _Atomic unsigned receiving;
    _Atomic int together;     /* while above 0, any number may: of that many receipts more */
    _Atomic unsigned resting; /* threads that wait for their turn */
    unsigned wanted;          /* of them shall come */
    bool is_watched, ended;
    _Atomic bool is_long[TURN_KINDS]; /* by opcode: the last one took long */
};
void turns_init(struct turns *turns);
void turns_done(struct turns *turns);
void turns_end(struct turns *turns); /* resting threads return without a turn */
/* Waits for the turn to receive. False: it is over. */
bool turn_take(struct turns *turns);
void turn_leave(struct turns *turns); /* something was received, or nothing */
/* Notes that the thread, which has the turn still, received a request of `size` bytes from `fd`. */
void turn_received(struct turns *turns, int fd, size_t size);
/* Keeps all threads from receiving, without waiting. False: one receives. */
bool turns_try_all(struct turns *turns);
void turns_leave_all(struct turns *turns);
/* Around the handling of a request. */
int64_t turn_begin(struct turns *turns, uint32_t opcode);
/* Just before its answer, where it has one. `fd` is the kernel's. */
void turn_answering(struct turns *turns, int fd);
void turn_end(struct turns *turns, uint32_t opcode, int64_t begun);
