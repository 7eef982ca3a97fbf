// SPDX-License-Identifier: Apache-2.0
/* The part of a scrub that the uploader performs: both objects of each run of the newest head. */
#include "remote/maintenance.h"
#include "store/job.h"

int scrub_remote_rows(struct store *store, struct job *job)
{
    struct remote *remote = store->remote;
    uint64_t found = 0, healed = 0, seen = event_count(horizon_progress(store->commit.horizon));
    if (!remote_can_repair(remote))
        return 0;
    remote_scrub_runs(remote);
    while (!remote_runs_are_scrubbed(remote, &found, &healed) && remote_can_repair(remote))
        if (!job_await_progress(store, &seen, INT64_MAX))
            return -ECANCELED;
    job_count(job,
              &(struct job_counts){.found = found, .healed = healed, .unhealed = found - healed});
    if (found)
        job_say(job,
                "%llu objects of runs were missing or damaged, %llu are stored again; the log "
                "names them",
                (unsigned long long)found, (unsigned long long)healed);
    return 0;
}
