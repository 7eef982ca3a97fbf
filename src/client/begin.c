// SPDX-License-Identifier: Apache-2.0
/* The begin of a save, and the sources that calls add to it. */
#include "base/clock.h"
#include "client/crc.h"
#include "client/fault.h"
#include "client/lane.h"
#include "client/sample.h"

/* --- a new save ------------------------------------------------------------------------------- */

static bool drafts_share_name(const struct draft *a, const struct draft *b)
{
    if (!a->name || !b->name)
        return !a->name && !b->name && strcmp(a->path, b->path) == 0;
    return a->directory_dev == b->directory_dev && a->directory_ino == b->directory_ino &&
           strcmp(a->name, b->name) == 0;
}

static void enter_locked(struct cairn_save *save, const struct cairn_save_options *options)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    struct publishing *publishing = &save->publishing;
    struct cairn_save *other;
    TAILQ_FOREACH(other, &lane->saves, link)
    {
        if (other->state == SAVE_OPEN &&
            drafts_share_name(&other->publishing.draft, &publishing->draft))
            publishing->before = other;
    }
    if (publishing->before)
        publishing->before->refs++;
    for (size_t i = 0; i < options->after_count; i++) {
        publishing->after[i] = options->after[i];
        publishing->after[i]->refs++;
    }
    publishing->after_count = options->after_count;
    check(!lane->is_stopping);
    lane->refs++;
    save->number = ++lane->begun;
    lane->stats.saves_begun++;
    TAILQ_INSERT_TAIL(&lane->saves, save, link);
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

/* Allocates a save without a file. */
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
    save->publishing.after = after;
    save->levels.reached = -1;
    return save;
}

static void take_opened(struct cairn_save *save, const struct opened *opened)
{
    save->publishing.draft = opened->draft;
    save->publishing.older = opened->older;
    save->path = opened->draft.path;
}

int save_new(struct cairn_lane *lane, const char *path, uint64_t bytes,
             const struct cairn_save_options *given, const struct zip *zip, struct cairn_save **ret)
{
    struct cairn_save_options options;
    struct opened opened;
    TRY(take_struct(&options, sizeof options, given));
    TRY(check_begin_options(lane, &options));
    TRY(lane_start(lane));
    struct cairn_save *save = allocate_save(lane, &options);
    if (!save)
        return -ENOMEM;
    int r = opener_open(&lane->opener,
                        &(struct open_request){.path = path,
                                               .bytes = bytes,
                                               .mode = options.mode ? options.mode : 0666,
                                               .flags = save->flags,
                                               .max_block_ms = save->max_block_ms},
                        &opened);
    if (r < 0) {
        free(save->publishing.after);
        free(save);
        return r;
    }
    take_opened(save, &opened);
    save->bytes = bytes;
    if (zip)
        save->publishing.zip = *zip;
    LOCK_SCOPE(&lane->lock);
    enter_locked(save, &options);
    *ret = save;
    return 0;
}

/* --- its sources ------------------------------------------------------------------------------ */

static int check_source(const struct cairn_save *save, const struct source_of *of)
{
    const struct cairn_source *source = of->source;
    if (of->at > save->bytes || source->length > save->bytes - of->at) {
        cause_note("%s: a source of %llu bytes at %llu is outside the file, which has %llu",
                   save->path, (unsigned long long)source->length, (unsigned long long)of->at,
                   (unsigned long long)save->bytes);
        return -EINVAL;
    }
    if (source->flags & ~(uint32_t)CAIRN_SOURCE_NOW) {
        cause_note("%s: a source has flags that are not known", save->path);
        return -EINVAL;
    }
    if (source->length == 0 || !source->host != !source->device_address)
        return 0;
    cause_note("%s: a source has %s of host memory and device memory", save->path,
               source->host ? "both" : "none");
    return -EINVAL;
}

static bool is_snapshot(const struct cairn_save *save, const struct cairn_source *source)
{
    return source->host && source->flags & CAIRN_SOURCE_NOW && source->length <= SNAPSHOT_BYTES &&
           save->copying.snapshot_bytes + source->length <= SNAPSHOT_SAVE_BYTES;
}

static bool has_crc(const struct cairn_save *save)
{
    return save->publishing.zip.count > 0 && !(save->flags & CAIRN_SAVE_NO_CRC);
}

static int source_is_gone(const struct cairn_save *save, uint64_t length)
{
    cause_note("%s: the memory of a source of %llu bytes was not there when the call read it",
               save->path, (unsigned long long)length);
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
        save->publishing.zip.entries[of->entry].crc = crc_of(0, data, source->length);
    batch->segments[batch->segment_count++] =
        (struct segment){.at = of->at, .length = source->length, .data = data};
    save->copying.snapshot_bytes += source->length;
    return 0;
}

/* Returns the slot of its device. Once per call and stream, orders copies after the work that
 * produces the bytes. */
static int device_of(struct cairn_lane *lane, struct batch *batch,
                     const struct cairn_source *source)
{
    if (batch->has_producer && batch->producer == source->producer &&
        batch->ordinal == source->device)
        return batch->slot;
    int slot = devices_slot(lane, source->device, source->producer);
    batch->has_producer = slot >= 0;
    batch->producer = source->producer;
    batch->ordinal = source->device;
    batch->slot = slot;
    return slot;
}

/* If the caller waits for the copy, it may change the source meanwhile at its own risk. */
static bool source_may_change(const struct job *job)
{
    return job->host && !job->is_now && !(job->save->flags & CAIRN_SAVE_URGENT);
}

static void read_samples(void *arg)
{
    const struct job *job = arg;
    uint64_t at = 0, length;
    for (size_t i = 0; at < job->length; at += length, i++) {
        length = job_piece_length(job, at);
        job->samples[i] = sample_of(job->host + at, length, i);
    }
}

static int take_samples(struct job *job)
{
    job->samples = calloc(job_pieces(job), sizeof *job->samples);
    if (!job->samples)
        return -ENOMEM;
    return fault_try(read_samples, job) < 0 ? source_is_gone(job->save, job->length) : 0;
}

static int add_job(struct cairn_save *save, struct batch *batch, const struct source_of *of)
{
    const struct cairn_source *source = of->source;
    int slot = source->host ? ON_HOST : device_of(save->lane, batch, source);
    if (!source->host && slot < 0)
        return slot;
    struct job *job = &batch->jobs[batch->job_count++];
    *job = (struct job){.save = save,
                        .at = of->at,
                        .length = source->length,
                        .host = source->host,
                        .slot = slot,
                        .piece_bytes = source->host ? PIECE_BYTES : save->lane->devices.ring.piece,
                        .entry = of->entry,
                        .address = source->device_address,
                        .is_now = source->flags & CAIRN_SOURCE_NOW};
    if (has_crc(save)) {
        job->crcs = calloc(job_pieces(job), sizeof *job->crcs);
        if (!job->crcs)
            return -ENOMEM;
    }
    if (source_may_change(job))
        TRY(take_samples(job));
    if (save->publishing.older.pattern && source->key)
        job->prints = refer_pieces(job, source->key);
    return 0;
}

static int fill_batch(struct cairn_save *save, struct batch *batch, const struct source_of *sources,
                      size_t count)
{
    batch->jobs = calloc(count + 1, sizeof *batch->jobs);
    batch->segments = calloc(count + 1, sizeof *batch->segments);
    if (!batch->jobs || !batch->segments)
        return -ENOMEM;
    for (const struct source_of *of = sources; of < sources + count; of++) {
        TRY(check_source(save, of));
        if (of->source->length > 0)
            TRY(is_snapshot(save, of->source) ? add_segment(save, batch, of)
                                              : add_job(save, batch, of));
    }
    return 0;
}

/* --- passing jobs to threads ------------------------------------------------------------------ */

static struct job_queue *queue_of(const struct job *job)
{
    struct cairn_lane *lane = job->save->lane;
    bool is_first = job->is_now || job->save->flags & CAIRN_SAVE_URGENT;
    if (job->host)
        return is_first ? &lane->copiers.now : &lane->copiers.lazy;
    return is_first ? &lane->devices.now : &lane->devices.lazy;
}

/* Jobs of a failed save are not started. */
static int hand_over_locked(struct cairn_save *save, struct batch *batch)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    struct copying *copying = &save->copying;
    if (save->publishing.is_fixed) {
        cause_note("%s: a source comes after commit", save->path);
        return -EINVAL;
    }
    if (save->error)
        return save_report_locked(save);
    batch->next = copying->batches;
    copying->batches = batch;
    for (size_t i = 0; i < batch->segment_count; i++) {
        copying->source_bytes += batch->segments[i].length;
        copying->copied_bytes += batch->segments[i].length;
        lane->stats.bytes_copied += batch->segments[i].length;
    }
    for (struct job *job = batch->jobs; job < batch->jobs + batch->job_count; job++) {
        copying->source_bytes += job->length;
        job_enqueue_locked(queue_of(job), job);
    }
    (void)pthread_cond_broadcast(&lane->copiers.work);
    (void)pthread_cond_signal(&lane->devices.work);
    return 0;
}

/* Waits for the sources that must be copied now, at most as long as a fence may take. */
static void wait_for_now_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    int64_t deadline = deadline_of(save->max_block_ms);
    while (save->copying.now_unread > 0 && !save->error) {
        if (wait_changed_locked(save->lane, deadline))
            continue;
        save_fail_locked(save, -ETIMEDOUT, "%.250s: the call has waited for the copy for %d ms",
                         save->path, save->max_block_ms);
    }
    while (save->error && save->copying.reading > 0)
        (void)wait_changed_locked(save->lane, -1);
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
    struct publishing *publishing = &save->publishing;
    mutex_lock(&save->lane->lock);
    int r = save_report_locked(save);
    bool is_first = commits && publishing->step < STEP_COMMITTED;
    publishing->is_fixed = true;
    if (is_first)
        publishing->step = STEP_COMMITTED;
    save_offer_locked(save);
    mutex_unlock(&save->lane->lock);
    return r == 0 && is_first && publishing->draft.kind == DRAFT_STREAM ? publish_stream(save) : r;
}

/* --- calls ------------------------------------------------------------------------------------ */

int cairn_save_begin(cairn_lane *lane, const char *path, uint64_t bytes,
                     const struct cairn_save_options *options, cairn_save **ret)
{
    int64_t begun = clock_monotonic_ns();
    *ret = NULL;
    int r = lane_call(lane);
    return lane_return(lane, begun, r < 0 ? r : save_new(lane, path, bytes, options, NULL, ret));
}

static int put_sources(struct cairn_save *save, const struct cairn_source *sources, size_t count)
{
    _cleanup_free_ struct source_of *of = calloc(count + 1, sizeof *of);
    if (!of)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        of[i] = (struct source_of){.source = &sources[i], .at = sources[i].offset};
    return save_add(save, of, count);
}

int cairn_save_put(cairn_save *save, const struct cairn_source *sources, size_t count)
{
    int64_t begun = clock_monotonic_ns();
    int r = lane_call(save->lane);
    return lane_return(save->lane, begun, r < 0 ? r : put_sources(save, sources, count));
}

int cairn_save_commit(cairn_save *save)
{
    int64_t begun = clock_monotonic_ns();
    int r = lane_call(save->lane);
    return lane_return(save->lane, begun, r < 0 ? r : save_close(save, true));
}
