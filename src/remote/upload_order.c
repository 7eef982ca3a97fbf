// SPDX-License-Identifier: Apache-2.0
/* In which order a round sends what the remote lacks of its cut: in one phase, or, with
 * reduce=dense, in phases, so that the bases of a chunk are there before the chunk is. */
#include "remote/layout.h"
#include "remote/lineage.h"
#include "remote/upload.h"

#define SORTED_MAX (16u * 1024 * 1024) /* chunks of which the phase is known: a byte each */

/* Where the listing of the cut's pending chunks is. */
struct pass {
    struct upload *up;
    unsigned phases;         /* bit p: those of phase p are listed */
    size_t seen;             /* chunks that were looked at */
    struct chunk_name after; /* the last of them */
};

static unsigned phase_at(const struct upload *up, size_t number)
{
    return number < up->phases.count ? up->phases.at[number] : 0;
}

static void add_upload_chunk(struct upload *up, const struct chunk_entry *entry)
{
    struct upload_chunk chunk = {.entry = *entry};
    uint32_t place = 0;
    if (up->layout)
        chunk.unit = layout_burst(up->layout, &entry->name, &place);
    chunk.place = place;
    check(up->count < PASS_CHUNKS && (chunk.unit > 0 || place == 0));
    up->list[up->count++] = chunk;
}

static int list_upload_chunk(const struct chunk_entry *entry, void *arg)
{
    struct pass *pass = arg;
    struct upload *up = pass->up;
    if (pass->phases >> phase_at(up, pass->seen++) & 1)
        add_upload_chunk(up, entry);
    pass->after = entry->name;
    return up->count == PASS_CHUNKS;
}

/* up->list gets the next of them; none: all were listed. */
static int list_pass(struct pass *pass)
{
    pass->up->count = 0;
    return view_cut_pending(pass->up->cut, pass->seen ? &pass->after : NULL, list_upload_chunk,
                            pass);
}

static int send_phase(struct upload *up, unsigned phase)
{
    struct pass pass = {.up = up, .phases = 1u << phase};
    int r;
    check(phase < UPLOAD_PHASES);
    up->phase = phase;
    do {
        r = list_pass(&pass);
        if (r == 0 && up->count)
            r = upload_send_list(up);
    } while (r == 0 && up->count == PASS_CHUNKS);
    return r;
}

/* A chunk that was lost, and that others rest on by what heads say, gets no base. */
static int choose_phase(struct upload *up, const struct chunk_entry *entry, unsigned width,
                        uint8_t *ret)
{
    struct chunk_name base;
    bool has_dependents = false;
    *ret = 0;
    if (width != 2 && width != 4)
        return 0;
    int r = view_cut_has_dependents(up->cut, &entry->name, &has_dependents);
    if (r < 0 || has_dependents)
        return r;
    unsigned level = lineage_base(up->lineage, &entry->name, &base);
    check(level <= CHAIN_DEPTH_MAX);
    *ret = (uint8_t)(width == 2 ? level : PHASE_FP32 + min_u64(level, FP32_LEVELS));
    return 0;
}

/* The chunks of a pass get their widths. The pack of each is looked into, which may take a read of
 * the disk: a few threads do it at once. */
struct widths_job {
    const struct upload *up;
    uint8_t *widths; /* of up->list, which is in order of name here */
    _Atomic size_t next;
};

#define WIDTHS_STEP 32u

static void find_widths(void *arg)
{
    struct widths_job *job = arg;
    const struct upload *up = job->up;
    for (;;) {
        size_t i = atomic_fetch_add(&job->next, WIDTHS_STEP), end = i + WIDTHS_STEP;
        if (i >= up->count || remote_is_stopping(up->remote))
            return;
        for (; i < end && i < up->count; i++)
            job->widths[i] = (uint8_t)upload_width(up->remote->store, &up->list[i].entry);
    }
}

static int sort_pass(struct upload *up)
{
    size_t before = up->phases.count;
    vector_reserve(&up->phases, up->count);
    uint8_t *phases = up->phases.at + before;
    struct widths_job job = {.up = up, .widths = phases};
    for (unsigned n = 0; n < up->remote->options.upload_threads; n++)
        pool_submit(up->remote->senders, find_widths, &job);
    pool_drain(up->remote->senders);
    int r = remote_is_stopping(up->remote) ? -ECANCELED : 0;
    for (size_t i = 0; i < up->count && r == 0; i++) {
        r = choose_phase(up, &up->list[i].entry, phases[i], &phases[i]);
        up->in_phase[phases[i]]++;
    }
    if (r == 0)
        up->phases.count += up->count;
    return r;
}

static int sort_pending(struct upload *up)
{
    struct pass pass = {.up = up, .phases = ~0u};
    int r;
    do {
        r = list_pass(&pass);
        if (r == 0 && up->count)
            r = sort_pass(up);
    } while (r == 0 && up->count == PASS_CHUNKS && up->phases.count < SORTED_MAX);
    return r;
}

int upload_send_pending(struct upload *up)
{
    up->list = xcalloc(PASS_CHUNKS, sizeof *up->list);
    if (up->pending_bytes > 2ull * SMALL_PACK_LEN)
        up->layout = layout_build(up->cut);
    int r = up->lineage ? sort_pending(up) : 0;
    if (r == 0)
        r = send_phase(up, 0);
    for (unsigned phase = 1; phase < UPLOAD_PHASES && r == 0; phase++) {
        /* Weights stay apart, a seventh of a state: packs of them are small, and merged. So those
         * of many checkpoints, which rest on each other, lie in one pack. */
        if (phase == PHASE_FP32)
            r = upload_send_open(up);
        if (r == 0 && up->in_phase[phase])
            r = send_phase(up, phase);
    }
    return r == 0 ? upload_send_open(up) : r;
}
