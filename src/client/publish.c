// SPDX-License-Identifier: Apache-2.0
/* The thread that writes the last bytes of saves, gives them their names in order, and takes away
 * the drafts of those that failed. */
#include "client/client.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "client/crc.h"
#include "client/report.h"

#define GATHER_BYTES MIB /* segments that follow each other go to the file in writes of so much */

/* --- segments --------------------------------------------------------------------------------- */

struct segments {
    struct segment *of;
    size_t count;
    uint8_t *glue; /* headers, descriptors and directory of a zip; the segments point into it */
};

static void join_crcs(struct cairn_save *save)
{
    for (const struct batch *batch = save->batches; batch; batch = batch->next) {
        for (size_t i = 0; i < batch->job_count; i++) {
            const struct job *job = &batch->jobs[i];
            uint32_t crc = job->crcs ? job->crcs[0] : 0;
            uint64_t at = piece_length(job, 0);
            for (size_t k = 1; job->crcs && k < pieces_of(job); k++) {
                uint64_t length = piece_length(job, at);
                crc = crc_joined(crc, job->crcs[k], length);
                at += length;
            }
            if (job->crcs)
                save->zip.entries[job->entry].crc = crc;
        }
    }
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
    size_t count = 2 * save->zip.count + 1;
    for (const struct batch *batch = save->batches; batch; batch = batch->next)
        count += batch->segment_count;
    segments->of = calloc(count, sizeof *segments->of);
    segments->glue = save->zip.count ? malloc(glue_length(&save->zip)) : NULL;
    if (!segments->of || (save->zip.count && !segments->glue))
        return -ENOMEM;
    for (const struct batch *batch = save->batches; batch; batch = batch->next)
        for (size_t i = 0; i < batch->segment_count; i++)
            segments->of[segments->count++] = batch->segments[i];
    if (save->zip.count) {
        join_crcs(save);
        add_zip(segments, &save->zip);
    }
    qsort(segments->of, segments->count, sizeof *segments->of, segments_by_place);
    return 0;
}

/* Segments that follow each other are one write. */
static int write_stretches(const struct cairn_save *save, const struct segments *segments)
{
    int r = 0;
    size_t held = 0;
    uint64_t at = 0;
    _cleanup_free_ uint8_t *gathered = malloc(GATHER_BYTES);
    if (!gathered)
        return -ENOMEM;
    for (size_t i = 0; i < segments->count && r == 0; i++) {
        const struct segment *segment = &segments->of[i];
        if (held > 0 && (segment->at != at + held || segment->length > GATHER_BYTES - held)) {
            r = draft_write(&save->draft, gathered, held, at);
            held = 0;
        }
        if (r == 0 && segment->length > GATHER_BYTES) {
            r = draft_write(&save->draft, segment->data, segment->length, segment->at);
            continue;
        }
        at = held ? at : segment->at;
        memcpy(gathered + held, segment->data, segment->length);
        held += segment->length;
    }
    return r == 0 && held ? draft_write(&save->draft, gathered, held, at) : r;
}

static int write_segments(struct cairn_save *save)
{
    struct segments segments = {0};
    int r = collect_segments(save, &segments);
    if (r == 0 && segments.count > 0)
        r = write_stretches(save, &segments);
    free(segments.of);
    free(segments.glue);
    return r;
}

/* --- names ------------------------------------------------------------------------------------ */

static bool is_ready_locked(const struct cairn_save *save)
{
    check_held(&save->lane->lock);
    bool ready = save->state == SAVE_OPEN && save->is_committed && save->unread == 0 &&
                 save->in_flight == 0 && !save->before;
    for (size_t i = 0; i < save->after_count && ready; i++)
        ready = !save->after[i];
    return ready;
}

/* The last bytes may have waited long for a filesystem that holds them up: meanwhile the save may
 * have been given up. */
static int begin_naming_save(struct cairn_save *save)
{
    LOCK_SCOPE(&save->lane->lock);
    save->is_naming = save->error == 0;
    if (save->error)
        cause_note("%s", save->cause);
    return save->error;
}

static int publish_under_name(struct cairn_save *save)
{
    struct stat st;
    cause_clear();
    if (save->flags & CAIRN_SAVE_CLEAN)
        draft_clean(&save->draft);
    int r = refer_apply(save);
    if (r == 0)
        r = write_segments(save);
    if (r == 0)
        r = draft_size(&save->draft, save->bytes, &st);
    if (r == 0)
        r = begin_naming_save(save);
    if (r < 0)
        return r;
    save->dev = st.st_dev;
    save->ino = st.st_ino;
    save->mtime = st.st_mtim;
    if (save->draft.kind == DRAFT_STREAM)
        return draft_stream(&save->draft, save->bytes);
    return draft_publish(&save->draft, save->flags & CAIRN_SAVE_EXCLUSIVE);
}

static void leave_list_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    struct cairn_save **link = &lane->saves;
    while (*link != save)
        link = &(*link)->next;
    *link = save->next;
    if (lane->saves_last == &save->next)
        lane->saves_last = link;
    save->next = NULL;
    save_unref_locked(save);
}

static int failure_level(const struct cairn_lane *lane, bool is_reported)
{
    return is_reported || lane->options.flags & CAIRN_LANE_TELLS ? CAIRN_LOG_INFO
                                                                 : CAIRN_LOG_WARNING;
}

/* Reports once a process that a file is on no mount: nothing else would. */
static void report_file_off_cairn(struct cairn_save *save)
{
    static _Atomic bool is_reported;
    if (save->draft.name && !draft_on_cairn(&save->draft) && !atomic_exchange(&is_reported, true))
        lane_log(save->lane, CAIRN_LOG_WARNING, "%s is not on CairnFS: it is saved all the same",
                 save->draft.path);
}

/* Takes the lock off while it works. */
static void publish_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    save->is_publishing = true;
    mutex_unlock(&lane->lock);
    int directory = report_open_directory(&save->draft);
    int r = publish_under_name(save);
    report_end(&save->draft, directory, r, cause_text(), r < 0 && save_has_failed(save));
    if (directory >= 0)
        (void)close(directory);
    draft_discard(&save->draft);
    refer_close(save);
    if (r == 0) {
        refer_publish(save);
        report_file_off_cairn(save);
    }
    if (r < 0)
        lane_log(lane, failure_level(lane, false), "the save of %s failed: %s", save->draft.path,
                 cause_text()[0] ? cause_text() : strerror(-r));
    else
        lane_log(lane, CAIRN_LOG_DEBUG, "%s has its name", save->draft.path);
    mutex_lock(&lane->lock);
    save->is_publishing = save->is_naming = false;
    refer_end_locked(save);
    if (r < 0)
        save_fail_locked(save, r, cause_text());
    else
        save_published_locked(save);
    leave_list_locked(save);
}

static void discard_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    bool is_reported = save->is_reported; /* aborted by the caller, say */
    mutex_unlock(&lane->lock);
    report_end(&save->draft, draft_on_cairn(&save->draft) ? save->draft.directory_fd : -1,
               save->error, save->cause, true);
    draft_discard(&save->draft);
    refer_close(save);
    lane_log(lane, failure_level(lane, is_reported), "the save of %s failed: %s", save->draft.path,
             save->cause);
    mutex_lock(&lane->lock);
    leave_list_locked(save);
    (void)pthread_cond_broadcast(&lane->changed);
}

int save_publish_stream(struct cairn_save *save)
{
    struct cairn_lane *lane = save->lane;
    LOCK_SCOPE(&lane->lock);
    while (!is_ready_locked(save) && !save->error)
        (void)wait_changed_locked(lane, -1);
    if (save->error)
        return save_report_locked(save);
    publish_locked(save);
    return save_report_locked(save);
}

/* One that failed and that no thread works on, or one that is ready. */
static struct cairn_save *next_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    for (struct cairn_save *save = lane->saves; save; save = save->next) {
        if (save->state == SAVE_FAILED && save->in_flight == 0 && !save->is_publishing)
            return save;
        if (save->draft.kind != DRAFT_STREAM && !save->is_publishing && is_ready_locked(save))
            return save;
    }
    return NULL;
}

void *publisher_main(void *arg)
{
    struct cairn_lane *lane = arg;
    mutex_lock(&lane->lock);
    for (;;) {
        struct cairn_save *save = next_locked(lane);
        if (!save && lane->stopping)
            break;
        if (!save)
            (void)mutex_wait(&lane->lock, &lane->publish, -1);
        else if (save->state == SAVE_FAILED)
            discard_locked(save);
        else
            publish_locked(save);
    }
    mutex_unlock(&lane->lock);
    return NULL;
}
