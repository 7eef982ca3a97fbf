// SPDX-License-Identifier: Apache-2.0
/* Inside the store: work in the background that somebody asked for and looks at now and then. One
 * at a time.
 *
 *   job.c     the thread, its lines and counts; gc on request
 *   scrub.c   reading and verifying everything */
#pragma once

#include "store/internal.h"

struct job *job_new(void);
void job_free(struct job *job);
/* In this order when the store stops: what it waits for may end in between. */
void job_cancel(struct store *store);
void job_join(struct store *store);

/* For the work itself, in the job's thread. */
bool job_is_cancelled(struct job *job);
/* False: cancelled. */
bool job_sleep_ms(struct job *job, unsigned ms);
void job_say(struct job *job, const char *fmt, ...) CAIRN_PRINTF(2, 3);
struct job_counts *job_counts_lock(struct job *job);
void job_counts_unlock(struct job *job);

/* 0, or -errno: it could not look at everything. */
CAIRN_MUST_CHECK int scrub_run(struct store *store, const struct job_options *options);
