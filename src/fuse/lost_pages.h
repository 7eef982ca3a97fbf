// SPDX-License-Identifier: Apache-2.0
/* Inodes with lost writes through mappings (lost_pages.c). */
#pragma once

#include <pthread.h>

#include "base/lock.h"

struct front;

#define LOST_PAGES_MAX 256u

struct lost_pages {
    struct cairn_mutex lock; /* a leaf */
    pthread_cond_t changed;
    uint64_t inos[LOST_PAGES_MAX];
    unsigned count;
    bool is_ending;
    pthread_t thread;
    bool is_started;
};

void lost_pages_init(struct front *front);
void lost_pages_done(struct front *front);
CAIRN_MUST_CHECK int lost_pages_start(struct front *front);
/* Call while requests are still received: waits for the notification in progress. */
void lost_pages_stop(struct front *front);
/* Call after the error answer to a page write: soon the kernel drops its pages of the inode. Does
 * not block. */
void lost_pages_note(struct front *front, uint64_t ino);
/* The mount is ending: page writes that find no space fail instead of waiting, since the
 * notification waits for them. */
bool lost_pages_are_final(struct front *front);
