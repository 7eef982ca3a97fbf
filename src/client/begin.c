// SPDX-License-Identifier: Apache-2.0
/* The begin of a save, and what calls give it to copy. */
#include "client/client.h"

#include <stdio.h>

#include "base/clock.h"
#include "client/crc.h"
#include "client/fault.h"
#include "client/sample.h"

/* --- a new save ------------------------------------------------------------------------------- */

static bool drafts_share_name(const struct draft *a, const struct draft *b)
{
    if (!a->name || !b->name)
        return !a->name && !b->name && strcmp(a->path, b->path) == 0;
    return a->directory_dev == b->directory_dev && a->directory_ino == b->directory_ino &&
           strcmp(a->name, b->name) == 0;
}

static void take_after_locked(struct cairn_save *save, const struct cairn_save_options *options)
{
    check_held(&save->lane->lock);
    for (size_t i = 0; i < options->after_count; i++) {
        save->after[i] = options->after[i];
        save->after[i]->refs++;
    }
    save->after_count = options->after_count;
}

static void enter_locked(struct cairn_save *save, const struct cairn_save_options *options)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    for (struct cairn_save *other = lane->saves; other; other = other->next)
        if (other->state == SAVE_OPEN && drafts_share_name(&other->draft, &save->draft))
            save->before = other;
    if (save->before)
        save->before->refs++;
    take_after_locked(save, options);
    lane->refs++;
    save->number = ++lane->begun;
    lane->stats.saves_begun++;
    *lane->saves_last = save;
    lane->saves_last = &save->next;
    saves_settle_locked(lane);
}

static int check_begin_options(struct cairn_lane *lane, const struct cairn_save_options *options)
{
    const uint32_t known = CAIRN_SAVE_EXCLUSIVE | CAIRN_SAVE_REFER | CAIRN_SAVE_NO_CRC |
                           CAIRN_SAVE_CLEAN | CAIRN_SAVE_HOLD | CAIRN_SAVE_URGENT |
                           CAIRN_SAVE_REGULAR;
    if (options->flags & ~known || options->mode & ~(mode_t)07777) {
        cause_note("the options have flags or a mode that are not known");
        return -EINVAL;
    }
    for (size_t i = 0; i < options->after_count; i++) {
        if (options->after && options->after[i] && options->after[i]->lane == lane)
            continue;
        cause_note("a save can only come after saves of its own lane");
        return -EINVAL;
    }
    return 0;
}

static struct cairn_save *allocate_save(struct cairn_lane *lane,
                                        const struct cairn_save_options *options)
{
    struct cairn_save *save = calloc(1, sizeof *save);
    struct cairn_save **after = calloc(options->after_count + 1, sizeof(struct cairn_save *));
    if (!save || !after) {
        free(save);
        free(after);
        return NULL;
    }
    save->lane = lane;
    save->refs = 2; /* the caller's and the list's */
    save->flags = options->flags;
    save->max_block_ms = options->max_block_ms ? options->max_block_ms : lane->options.max_block_ms;
    save->draft = DRAFT_NONE;
    save->level = -1;
    save->older_fd = -1;
    save->after = after;
    return save;
}

int save_new(struct cairn_lane *lane, const char *path, uint64_t bytes,
             const struct cairn_save_options *given, const struct zip *zip, struct cairn_save **ret)
{
    struct cairn_save_options options;
    int r = take_struct(&options, sizeof options, given);
    if (r == 0)
        r = check_begin_options(lane, &options);
    if (r == 0)
        r = lane_start(lane);
    if (r < 0)
        return r;
    struct cairn_save *save = allocate_save(lane, &options);
    if (!save)
        return -ENOMEM;
    save->bytes = bytes;
    r = save_open(save, path, options.mode ? options.mode : 0666);
    if (r < 0)
        return r;
    if (zip)
        save->zip = *zip;
    LOCK_SCOPE(&lane->lock);
    enter_locked(save, &options);
    *ret = save;
    return 0;
}

/* --- what it copies --------------------------------------------------------------------------- */

static int check_source(const struct cairn_save *save, const struct source_of *of)
{
    const struct cairn_source *source = of->source;
    if (of->at > save->bytes || source->length > save->bytes - of->at) {
        cause_note("%s: a source of %llu bytes at %llu is outside the file, which has %llu",
                   save->draft.path, (unsigned long long)source->length, (unsigned long long)of->at,
                   (unsigned long long)save->bytes);
        return -EINVAL;
    }
    if (source->flags & ~(uint32_t)CAIRN_SOURCE_NOW) {
        cause_note("%s: a source has flags that are not known", save->draft.path);
        return -EINVAL;
    }
    if (source->length == 0 || !source->host != !source->device_address)
        return 0;
    cause_note("%s: a source has %s of host memory and device memory", save->draft.path,
               source->host ? "both" : "none");
    return -EINVAL;
}

static bool is_snapshot(const struct cairn_save *save, const struct cairn_source *source)
{
    return source->host && source->flags & CAIRN_SOURCE_NOW && source->length <= SNAPSHOT_BYTES &&
           save->snapshot_bytes + source->length <= SNAPSHOT_SAVE_BYTES;
}

static bool has_crc(const struct cairn_save *save)
{
    return save->zip.count > 0 && !(save->flags & CAIRN_SAVE_NO_CRC);
}

static int source_is_gone(const struct cairn_save *save, uint64_t length)
{
    cause_note("%s: the memory of a source of %llu bytes was not there when the call read it",
               save->draft.path, (unsigned long long)length);
    return -EFAULT;
}

struct snapshot {
    void *data;
    const struct cairn_source *source;
};

static void read_snapshot(void *arg)
{
    const struct snapshot *snapshot = arg;
    memcpy(snapshot->data, snapshot->source->host, snapshot->source->length);
}

/* The CRC of a record that is one segment is known at once. */
static int add_segment(struct cairn_save *save, struct batch *batch, const struct source_of *of)
{
    const struct cairn_source *source = of->source;
    void *data = malloc(source->length);
    if (!data)
        return -ENOMEM;
    if (fault_try(read_snapshot, &(struct snapshot){data, source}) < 0) {
        free(data);
        return source_is_gone(save, source->length);
    }
    if (has_crc(save))
        save->zip.entries[of->entry].crc = crc_of(0, data, source->length);
    batch->segments[batch->segment_count++] =
        (struct segment){.at = of->at, .length = source->length, .data = data};
    save->snapshot_bytes += source->length;
    return 0;
}

/* Its device; once a call and stream the copies are ordered behind what makes the bytes. */
static int device_of(struct cairn_lane *lane, struct batch *batch,
                     const struct cairn_source *source, int *ret_slot)
{
    if (batch->has_producer && batch->producer == source->producer &&
        batch->ordinal == source->device) {
        *ret_slot = batch->slot;
        return 0;
    }
    int r = lane_device(lane, source->device, source->producer, ret_slot);
    batch->has_producer = r == 0;
    batch->producer = source->producer;
    batch->ordinal = source->device;
    batch->slot = *ret_slot;
    return r;
}

/* A caller that waits for the copy may change the source meanwhile as far as it pleases. */
static bool source_may_change(const struct job *job)
{
    return job->host && !job->is_now && !(job->save->flags & CAIRN_SAVE_URGENT);
}

static void read_samples(void *arg)
{
    const struct job *job = arg;
    uint64_t at = 0, length;
    for (size_t i = 0; at < job->length; at += length, i++) {
        length = piece_length(job, at);
        job->samples[i] = sample_of(job->host + at, length, i);
    }
}

static int take_samples(struct job *job)
{
    job->samples = calloc(pieces_of(job), sizeof *job->samples);
    if (!job->samples)
        return -ENOMEM;
    return fault_try(read_samples, job) < 0 ? source_is_gone(job->save, job->length) : 0;
}

static int add_job(struct cairn_save *save, struct batch *batch, const struct source_of *of)
{
    const struct cairn_source *source = of->source;
    struct job *job = &batch->jobs[batch->job_count++];
    int r = 0;
    *job = (struct job){.save = save,
                        .at = of->at,
                        .length = source->length,
                        .host = source->host,
                        .slot = ON_HOST,
                        .entry = of->entry,
                        .address = source->device_address,
                        .is_now = source->flags & CAIRN_SOURCE_NOW};
    if (!source->host)
        r = device_of(save->lane, batch, source, &job->slot);
    if (r == 0 && has_crc(save)) {
        job->crcs = calloc(pieces_of(job), sizeof *job->crcs);
        r = job->crcs ? 0 : -ENOMEM;
    }
    if (r == 0 && source_may_change(job))
        r = take_samples(job);
    if (r == 0 && save->pattern && source->key)
        job->prints = refer_pieces(job, source->key);
    return r;
}

static int fill_batch(struct cairn_save *save, struct batch *batch, const struct source_of *sources,
                      size_t count)
{
    int r = 0;
    batch->jobs = calloc(count + 1, sizeof *batch->jobs);
    batch->segments = calloc(count + 1, sizeof *batch->segments);
    if (!batch->jobs || !batch->segments)
        return -ENOMEM;
    for (size_t i = 0; i < count && r == 0; i++) {
        r = check_source(save, &sources[i]);
        if (r < 0 || sources[i].source->length == 0)
            continue;
        if (is_snapshot(save, sources[i].source))
            r = add_segment(save, batch, &sources[i]);
        else
            r = add_job(save, batch, &sources[i]);
    }
    return r;
}

/* --- handing over ----------------------------------------------------------------------------- */

static void enqueue_locked(struct cairn_lane *lane, struct job *job)
{
    check_held(&lane->lock);
    struct cairn_save *save = job->save;
    bool on_host = job->slot == ON_HOST, is_first = job->is_now || save->flags & CAIRN_SAVE_URGENT;
    struct queue *queue = on_host    ? (is_first ? &lane->now : &lane->lazy)
                          : is_first ? &lane->device.now
                                     : &lane->device.lazy;
    *queue->last = job;
    queue->last = &job->next;
    if (!on_host)
        save->on_device[job->slot].waiting += job->length;
    save->unread += job->length;
    save->now_unread += job->is_now ? job->length : 0;
    atomic_fetch_add(&lane->busy, job->length);
}

/* Jobs of a save that has failed already are not begun. */
static int hand_over_locked(struct cairn_save *save, struct batch *batch)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    if (save->is_fixed) {
        cause_note("%s: a source comes after commit", save->draft.path);
        return -EINVAL;
    }
    if (save->error)
        return save_report_locked(save);
    batch->next = save->batches;
    save->batches = batch;
    for (size_t i = 0; i < batch->segment_count; i++) {
        save->source_bytes += batch->segments[i].length;
        save->copied_bytes += batch->segments[i].length;
        lane->stats.bytes_copied += batch->segments[i].length;
    }
    for (size_t i = 0; i < batch->job_count; i++) {
        save->source_bytes += batch->jobs[i].length;
        enqueue_locked(lane, &batch->jobs[i]);
    }
    (void)pthread_cond_broadcast(&lane->work);
    (void)pthread_cond_signal(&lane->device.work);
    return 0;
}

/* Waits for the sources that are copied now, at most as long as a fence may take. */
static void wait_for_now_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    char cause[CAUSE_MAX];
    int64_t deadline = deadline_of(save->max_block_ms);
    while (save->now_unread > 0 && !save->error) {
        if (wait_changed_locked(lane, deadline))
            continue;
        (void)snprintf(cause, sizeof cause, "%.250s: the call has waited for the copy for %d ms",
                       save->draft.path, save->max_block_ms);
        save_fail_locked(save, -ETIMEDOUT, cause);
    }
    while (save->error && save->reading > 0)
        (void)wait_changed_locked(lane, -1);
}

int save_add(struct cairn_save *save, const struct source_of *sources, size_t count)
{
    struct batch *batch = calloc(1, sizeof *batch);
    int r = batch ? fill_batch(save, batch, sources, count) : -ENOMEM;
    if (r == 0) {
        LOCK_SCOPE(&save->lane->lock);
        r = hand_over_locked(save, batch);
        if (r == 0)
            wait_for_now_locked(save);
    }
    if (r < 0)
        batch_free(batch);
    return r;
}

int save_close(struct cairn_save *save, bool commits)
{
    mutex_lock(&save->lane->lock);
    int r = save_report_locked(save);
    bool streams = r == 0 && commits && !save->is_committed && save->draft.kind == DRAFT_STREAM;
    save->is_fixed = true;
    save->is_committed = save->is_committed || commits;
    (void)pthread_cond_signal(&save->lane->publish);
    mutex_unlock(&save->lane->lock);
    return streams ? save_publish_stream(save) : r;
}

/* --- calls ------------------------------------------------------------------------------------ */

int cairn_save_begin(cairn_lane *lane, const char *path, uint64_t bytes,
                     const struct cairn_save_options *options, cairn_save **ret)
{
    int64_t begun = clock_monotonic_ns();
    *ret = NULL;
    cause_clear();
    int r = lane_check(lane);
    if (r == 0)
        r = save_new(lane, path, bytes, options, NULL, ret);
    return lane_return(lane, begun, r);
}

int cairn_save_put(cairn_save *save, const struct cairn_source *sources, size_t count)
{
    int64_t begun = clock_monotonic_ns();
    cause_clear();
    int r = lane_check(save->lane);
    struct source_of *of = r == 0 ? calloc(count + 1, sizeof *of) : NULL;
    if (r == 0 && !of)
        r = -ENOMEM;
    for (size_t i = 0; i < count && r == 0; i++)
        of[i] = (struct source_of){.source = &sources[i], .at = sources[i].offset};
    if (r == 0)
        r = save_add(save, of, count);
    free(of);
    return lane_return(save->lane, begun, r);
}

int cairn_save_commit(cairn_save *save)
{
    int64_t begun = clock_monotonic_ns();
    cause_clear();
    int r = lane_check(save->lane);
    if (r == 0)
        r = save_close(save, true);
    return lane_return(save->lane, begun, r);
}
