// SPDX-License-Identifier: Apache-2.0
/* The order in which a round sends the missing chunks of its cut: in one phase or, with
 * reduce=dense, in phases, so that the bases of a chunk are in the remote before the chunk. */
#include "dense/layout.h"
#include "remote/upload.h"

/* The position in the listing of the cut's pending chunks. */
struct pass {
    struct upload *up;
    unsigned phase;          /* of the listed chunks */
    size_t seen;             /* chunks examined so far */
    struct chunk_name after; /* the last of them */
};

static void add_chunk(struct upload *up, const struct chunk_entry *entry)
{
    struct upload_chunk chunk = {.entry = *entry};
    uint32_t place = 0;
    if (up->layout)
        chunk.unit = layout_burst(up->layout, &entry->name, &place);
    chunk.place = place;
    check(up->count < PASS_CHUNKS && (chunk.unit > 0 || place == 0));
    up->list[up->count++] = chunk;
}

static int list_chunk(const struct chunk_entry *entry, void *arg)
{
    struct pass *pass = arg;
    struct upload *up = pass->up;
    if (dense_round_phase(up->dense, pass->seen++) == pass->phase)
        add_chunk(up, entry);
    pass->after = entry->name;
    return up->count == PASS_CHUNKS;
}

/* Fills up->list with the next chunks; none: all were listed. */
static int list_pass(struct pass *pass)
{
    pass->up->count = 0;
    return view_cut_pending(pass->up->cut, pass->seen ? &pass->after : NULL, list_chunk, pass);
}

static int send_phase(struct upload *up, unsigned phase)
{
    struct pass pass = {.up = up, .phase = phase};
    int r;
    up->phase = &dense_phases[phase];
    do {
        r = list_pass(&pass);
        if (r == 0 && up->count)
            r = upload_send_list(up);
    } while (r == 0 && up->count == PASS_CHUNKS);
    return r;
}

int upload_send_pending(struct upload *up)
{
    up->list = xcalloc(PASS_CHUNKS, sizeof *up->list);
    if (up->pending_bytes > 2ull * SMALL_PACK_LEN)
        up->layout = layout_build(up->cut);
    int r = 0;
    for (unsigned phase = 0; phase < DENSE_PHASES && r == 0; phase++) {
        if (dense_phases[phase].begins_anew)
            r = upload_send_open(up);
        if (r == 0 && dense_round_has(up->dense, phase))
            r = send_phase(up, phase);
    }
    return r == 0 ? upload_send_open(up) : r;
}
