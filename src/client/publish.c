// SPDX-License-Identifier: Apache-2.0
#include "client/crc.h"
#include "client/lane.h"
#include "client/report.h"

#define GATHER_BYTES MIB /* adjacent segments are written in steps of this size */

/* --- segments --------------------------------------------------------------------------------- */

struct segments {
    struct segment *of;
    size_t count;
    uint8_t *glue; /* headers, descriptors and directory of a zip; the segments point into it */
};

static uint32_t joined_crc(const struct job *job)
{
    uint32_t crc = job->crcs[0];
    uint64_t at = job_piece_length(job, 0);
    for (size_t i = 1; i < job_pieces(job); i++) {
        uint64_t length = job_piece_length(job, at);
        crc = crc_joined(crc, job->crcs[i], length);
        at += length;
    }
    check(at == job->length);
    return crc;
}

static size_t glue_length(const struct zip *zip)
{
    size_t length = (size_t)(zip->file_size - zip->directory);
    for (size_t i = 0; i < zip->count; i++)
        length += (size_t)(zip->entries[i].data - zip->entries[i].start) + ZIP_DESCRIPTOR_MAX;
    return length;
}

static uint8_t *add_glue(struct segments *segments, uint64_t at, uint8_t *glue, size_t length)
{
    if (length > 0)
        segments->of[segments->count++] =
            (struct segment){.at = at, .length = length, .data = glue};
    return glue + length;
}

static void add_zip(struct segments *segments, const struct zip *zip)
{
    uint8_t *glue = segments->glue;
    for (size_t i = 0; i < zip->count; i++) {
        const struct zip_entry *entry = &zip->entries[i];
        zip_header(zip, entry, glue);
        glue = add_glue(segments, entry->start, glue, (size_t)(entry->data - entry->start));
        glue = add_glue(segments, entry->data + entry->size, glue, zip_descriptor(entry, glue));
    }
    zip_end(zip, glue);
    (void)add_glue(segments, zip->directory, glue, (size_t)(zip->file_size - zip->directory));
}

static int segments_by_place(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int collect_segments(struct cairn_save *save, struct segments *segments)
{
    const struct zip *zip = &save->publishing.zip;
    size_t count = 2 * zip->count + 1;
    EACH_BATCH(batch, save)
    {
        count += batch->segment_count;
    }
    segments->of = calloc(count, sizeof *segments->of);
    segments->glue = zip->count ? malloc(glue_length(zip)) : NULL;
    if (!segments->of || (zip->count && !segments->glue))
        return -ENOMEM;
    EACH_BATCH(batch, save)
    {
        for (size_t i = 0; i < batch->segment_count; i++)
            segments->of[segments->count++] = batch->segments[i];
    }
    EACH_JOB(job, save)
    {
        if (job->crcs)
            zip->entries[job->entry].crc = joined_crc(job);
    }
    if (zip->count)
        add_zip(segments, zip);
    check(segments->count <= count);
    qsort(segments->of, segments->count, sizeof *segments->of, segments_by_place);
    return 0;
}

/* Adjacent segments are joined into one write. */
static int write_stretches(const struct draft *draft, const struct segments *segments)
{
    size_t held = 0;
    uint64_t at = 0;
    _cleanup_free_ uint8_t *gathered = segments->count ? malloc(GATHER_BYTES) : NULL;
    if (segments->count && !gathered)
        return -ENOMEM;
    for (size_t i = 0; i < segments->count; i++) {
        const struct segment *segment = &segments->of[i];
        bool follows =
            held > 0 && segment->at == at + held && segment->length <= GATHER_BYTES - held;
        bool is_large = segment->length > GATHER_BYTES;
        if (held > 0 && !follows)
            TRY(draft_write(draft, gathered, held, at));
        if (is_large)
            TRY(draft_write(draft, segment->data, segment->length, segment->at));
        if (!follows) {
            held = 0;
            at = segment->at;
        }
        if (is_large)
            continue;
        memcpy(gathered + held, segment->data, segment->length);
        held += segment->length;
    }
    return held ? draft_write(draft, gathered, held, at) : 0;
}

static int write_segments(struct cairn_save *save)
{
    struct segments segments = {0};
    int r = collect_segments(save, &segments);
    if (r == 0)
        r = write_stretches(&save->publishing.draft, &segments);
    free(segments.of);
    free(segments.glue);
    return r;
}

/* --- names ------------------------------------------------------------------------------------ */

/* The last bytes may have been blocked by the filesystem for long: meanwhile the save may have been
 * aborted. */
static int begin_naming(struct cairn_save *save)
{
    LOCK_SCOPE(&save->lane->lock);
    check(save->publishing.step == STEP_WRITING);
    if (save->error)
        cause_note("%s", save->cause);
    else
        save->publishing.step = STEP_NAMING;
    return save->error;
}

static int publish_under_name(struct cairn_save *save)
{
    struct draft *draft = &save->publishing.draft;
    cause_clear();
    if (save->flags & CAIRN_SAVE_CLEAN)
        draft_clean(draft);
    TRY(refer_apply(save));
    TRY(write_segments(save));
    TRY(draft_size(draft, save->bytes, &save->publishing.file));
    TRY(begin_naming(save));
    if (draft->kind == DRAFT_STREAM)
        return draft_stream(draft, save->bytes);
    return draft_publish(draft, save->flags & CAIRN_SAVE_EXCLUSIVE);
}

static void leave_list_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    check(save->state != SAVE_OPEN && save->copying.in_flight == 0 &&
          save->publishing.draft.fd < 0 && save->publishing.older.fd < 0);
    TAILQ_REMOVE(&save->lane->saves, save, link);
    save_unref_locked(save);
}

static void log_failure(const struct cairn_save *save, bool is_reported, const char *cause)
{
    bool is_told = is_reported || save->lane->options.flags & CAIRN_LANE_TELLS;
    lane_log(save->lane, is_told ? CAIRN_LOG_INFO : CAIRN_LOG_WARNING, "the save of %s failed: %s",
             save->path, cause);
}

/* Logs once per process that a file is not on a mount: nothing else would show it. */
static void log_file_off_cairn(const struct cairn_save *save)
{
    static _Atomic bool is_reported;
    const struct draft *draft = &save->publishing.draft;
    if (draft->name && !draft_on_cairn(draft) && !atomic_exchange(&is_reported, true))
        lane_log(save->lane, CAIRN_LOG_WARNING, "%s is not on CairnFS: it is saved all the same",
                 save->path);
}

static void note_published(struct cairn_save *save)
{
    refer_publish(save);
    log_file_off_cairn(save);
    lane_log(save->lane, CAIRN_LOG_DEBUG, "%s has its name", save->path);
}

/* Releases the lock while it works. */
static void publish_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    check(save_is_ready_locked(save) && save->publishing.step == STEP_COMMITTED);
    struct draft *draft = &save->publishing.draft;
    save->publishing.step = STEP_WRITING;
    mutex_unlock(&save->lane->lock);
    int directory = report_open_directory(draft);
    int r = publish_under_name(save);
    report_end(draft, directory, r, cause_text(), r < 0 && save_has_failed(save));
    if (directory >= 0)
        (void)close(directory);
    draft_discard(draft);
    refer_close(&save->publishing.older);
    if (r < 0)
        log_failure(save, false, cause_text()[0] ? cause_text() : strerror(-r));
    else
        note_published(save);
    mutex_lock(&save->lane->lock);
    refer_end_locked(&save->publishing.older);
    if (r < 0)
        save_fail_locked(save, r, "%s", cause_text());
    else
        save_published_locked(save);
    leave_list_locked(save);
}

static void discard_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct draft *draft = &save->publishing.draft;
    bool is_reported = save->is_reported; /* e.g. aborted by the caller */
    mutex_unlock(&save->lane->lock);
    report_end(draft, draft_on_cairn(draft) ? draft->directory_fd : -1, save->error, save->cause,
               true);
    draft_discard(draft);
    refer_close(&save->publishing.older);
    log_failure(save, is_reported, save->cause);
    mutex_lock(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    leave_list_locked(save);
    (void)pthread_cond_broadcast(&lane->changed);
}

int publish_stream(struct cairn_save *save)
{
    struct cairn_lane *lane = save->lane;
    LOCK_SCOPE(&lane->lock);
    while (!save_is_ready_locked(save) && !save->error)
        (void)wait_changed_locked(lane, -1);
    if (!save->error)
        publish_locked(save);
    return save_report_locked(save);
}

/* --- the thread ------------------------------------------------------------------------------- */

static void *publisher_main(void *arg)
{
    struct cairn_lane *lane = arg;
    struct publisher *publisher = &lane->publisher;
    mutex_lock(&lane->lock);
    for (;;) {
        struct cairn_save *save = TAILQ_FIRST(&publisher->queue);
        if (!save && lane->is_stopping)
            break;
        if (!save) {
            (void)mutex_wait(&lane->lock, &publisher->work, -1);
            continue;
        }
        TAILQ_REMOVE(&publisher->queue, save, publishing.link);
        if (save->state == SAVE_FAILED)
            discard_locked(save);
        else
            publish_locked(save);
    }
    mutex_unlock(&lane->lock);
    return NULL;
}

int publisher_start_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    return lane_thread_start(&lane->publisher.thread, "cairn-publish", publisher_main, lane);
}
