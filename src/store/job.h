// SPDX-License-Identifier: Apache-2.0
/* Inside the store: work in the background that was asked for, and is looked at now and then. One
 * at a time.
 *
 *   job.c           the thread, its lines and counts
 *   job_kinds.c     which work there is; gc on request
 *   scrub.c         reading and verifying everything
 *   scrub_files.c   the files that lack chunks which no tier gives
 *   scrub_snapshots.c   what snapshots of the store alone need
 *   scrub_earlier.c     what earlier states in the remote alone need */
#pragma once

#include "store/internal.h"

struct job *job_new(void);
void job_free(struct job *job);
/* Starts the work in a thread; lines and counts of the last job go. -EBUSY: another one is running.
 */
typedef int job_work_fn(struct store *store, const struct job_options *options);
CAIRN_MUST_CHECK int job_start(struct store *store, const struct job_options *options,
                               job_work_fn *work, uint64_t *ret_number);
/* When the store stops, after store_job_cancel(): the work that it waits for may end in between. */
void job_join(struct store *store);

/* For the work itself, in the job's thread. */
bool job_is_cancelled(struct job *job);
/* Until the background got on (`seen`: event_count() of its progress, before what is waited for was
 * looked at), or until a time (monotonic ns; INT64_MAX: no limit). False: cancelled. */
bool job_await_progress(struct store *store, uint64_t *seen, int64_t until_ns);
/* Waits until then, to keep a rate. False: cancelled. */
bool job_sleep(struct job *job, int64_t until_ns);
void job_say(struct job *job, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void job_count(struct job *job, const struct job_counts *more);

/* 0, or -errno: it could not look at everything. */
CAIRN_MUST_CHECK int scrub_store(struct store *store, const struct job_options *options);
/* scrub_rows.c: has the uploader verify both objects of each run, and stores bad ones again; the
 * log says which. -ECANCELED. */
CAIRN_MUST_CHECK int scrub_remote_rows(struct store *store, struct job *job);
/* scrub_files.c: says which files refer to these chunks, which are in no tier and get sorted,
 * and notes that as damage. *ret_files: how many they are. */
CAIRN_MUST_CHECK int scrub_name_files(struct store *store, struct job *job,
                                      struct chunk_name *names, size_t count, uint64_t *ret_files);
