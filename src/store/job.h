// SPDX-License-Identifier: Apache-2.0
/* Inside the store: jobs in the background, which clients start and watch. One at a time.
 *
 *   job.c               the thread, its lines and counts
 *   job_kinds.c         the kinds of jobs; gc on request
 *   scrub.c             reading and verifying everything
 *   scrub_files.c       the files that need chunks which no tier can read
 *   scrub_rows.c        the objects of runs in the remote
 *   scrub_snapshots.c   chunks on NVMe that only snapshots of the store need
 *   scrub_earlier.c     chunks in the remote that only earlier states need */
#pragma once

#include "store/internal.h"

struct job *job_new(void);
void job_free(struct job *job);
/* Starts the job in a thread; lines and counts of the last job are dropped. -EBUSY: another job is
 * running. */
typedef int job_work_fn(struct store *store, const struct job_options *options);
CAIRN_MUST_CHECK int job_start(struct store *store, const struct job_options *options,
                               job_work_fn *work, uint64_t *ret_number);
/* Called when the store stops, after store_job_cancel(), so that work for which the job waits may
 * end in between. */
void job_join(struct store *store);

/* For the job itself, in its thread. */
bool job_is_cancelled(struct job *job);
/* Waits until the background has made progress (`seen`: event_count() of its progress, read before
 * the awaited condition), or until a time (monotonic ns; INT64_MAX: no limit). False: cancelled. */
bool job_await_progress(struct store *store, uint64_t *seen, int64_t until_ns);
/* Waits until that time, to keep a rate. False: cancelled. */
bool job_sleep(struct job *job, int64_t until_ns);
void job_say(struct job *job, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void job_count(struct job *job, const struct job_counts *more);

/* 0, or -errno: it could not read everything. */
CAIRN_MUST_CHECK int scrub_store(struct store *store, const struct job_options *options);
/* scrub_rows.c: makes the uploader verify both objects of each run, and store bad ones again; the
 * log lists them. -ECANCELED. */
CAIRN_MUST_CHECK int scrub_remote_rows(struct store *store, struct job *job);
/* scrub_files.c: reports which files refer to these chunks, which are in no tier and are sorted by
 * the call, and records this as damage. *ret_files: number of these files. */
CAIRN_MUST_CHECK int scrub_name_files(struct store *store, struct job *job,
                                      struct chunk_name *names, size_t count, uint64_t *ret_files);
