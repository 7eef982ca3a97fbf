// SPDX-License-Identifier: Apache-2.0
/* Turns: one thread at a time receives from the kernel (turns.c). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"

#define TURN_KINDS 64u
struct turns {
    struct cairn_mutex lock;
    pthread_cond_t changed;
    _Atomic bool is_receiving; /* a thread waits for the kernel, or is about to */
    _Atomic unsigned resting;  /* threads that wait for their turn */
    unsigned wanted;           /* of them shall come */
    bool is_watched, ended;
    _Atomic bool is_long[TURN_KINDS]; /* by opcode: the last one took long */
};
void turns_init(struct turns *turns);
void turns_done(struct turns *turns);
void turns_end(struct turns *turns); /* resting threads return without a turn */
/* Waits for the turn to receive. False: it is over. */
bool turn_take(struct turns *turns);
/* The same without waiting. False: another has it. */
bool turn_try(struct turns *turns);
void turn_leave(struct turns *turns); /* something was received, or nothing */
/* Around the handling of a request. */
int64_t turn_begin(struct turns *turns, uint32_t opcode);
/* Just before its answer, where it has one. `fd` is the kernel's. */
void turn_answering(struct turns *turns, int fd);
void turn_end(struct turns *turns, uint32_t opcode, int64_t begun);
