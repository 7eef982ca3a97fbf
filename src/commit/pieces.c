// SPDX-License-Identifier: Apache-2.0
/* Pieces of drafts: when the stage fills up with drafts, the largest is written in pieces before it
 * is sealed, and ranges that crowd the stage's table are gathered. */
#include "commit/history_internal.h"
#include "commit/horizon_internal.h"
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "commit/read_internal.h"
#include "commit/room_internal.h"
#include "commit/writeback_internal.h"
#include "view/view.h"

#define PIECE_MIN (16 * MIB)
#define PIECE_MAX (128 * MIB)
#define PIECE_CROWDED_MIN (64 * KIB) /* smaller pieces would free too little for the I/O */
#define PIECE_PARTS_MAX 65536u
#define GATHER_MAX 32u /* stretches at a time */

/* --- writing ---------------------------------------------------------------------------------- */

struct unlogged {
    struct record recs[PACK_BUFFERS * 64];
    size_t count;
};

static void take_unlogged(struct new_pack *pack, void *arg)
{
    struct unlogged *packs = arg;
    if (pack->logged || packs->count == ARRAY_LEN(packs->recs))
        return;
    packs->recs[packs->count++] = (struct record){
        .type = REC_PACK, .pack = pack->id, .length = pack->length, .count = pack->count};
    pack->logged = true;
}

/* Makes chunks durable, and names their packs in the stage's log, so that a recovery does not treat
 * them as leftovers. */
static int finish_packs(struct commit *commit)
{
    struct unlogged packs = {0};
    TRY(packs_finish(commit->packs));
    packs_each_durable(commit->packs, take_unlogged, &packs);
    return history_log(commit->history, packs.recs, packs.count);
}

static void exchange_pieces(struct commit *commit, uint64_t ino, const struct stage_part *parts,
                            size_t count, const struct content *content)
{
    for (size_t i = 0; i < content->extents.count; i++) {
        const struct extent *extent = &content->extents.at[i];
        struct chunk_entry entry;
        uint64_t refs;
        struct stage_chunk_range chunk = {
            .offset = extent->offset, .length = extent->length, .name = extent->chunk};
        if (packs_find_fresh(commit->packs, &extent->chunk, &entry) != 0 ||
            (view_chunk(commit->local->view, &extent->chunk, &entry, &refs) == 0 &&
             entry.pack != 0)) {
            chunk.pack = entry.pack;
            stage_piece_done(commit->local->stage, ino, parts, count, &chunk);
        }
    }
}

/* False: the parts stay unchanged. */
static bool write_stretch(struct pieces *pieces, uint64_t ino, const struct stage_part *parts,
                          size_t count, bool more)
{
    struct commit *commit = pieces->commit;
    struct content content = {0};
    if (pieces->ino != ino || pieces->next != parts[0].offset) {
        chunker_done(&pieces->state);
        pieces->state = (struct chunker){.anchor = parts[0].offset};
    }
    content_write_stretch(commit, parts, count, &pieces->state, more, &content);
    int r = finish_packs(commit);
    if (r == 0)
        exchange_pieces(commit, ino, parts, count, &content);
    else
        packs_abandon(commit->packs);
    bool wrote = r == 0 && content.extents.count > 0;
    if (wrote) {
        /* the chunker is after the last stored chunk: the next piece continues there */
        const struct extent *last = &content.extents.at[content.extents.count - 1];
        pieces->ino = ino;
        pieces->next = last->offset + last->length;
    } else {
        /* it has advanced over content that is not stored, and that is read again */
        chunker_done(&pieces->state);
        pieces->ino = pieces->next = 0;
    }
    content_done(commit->packs, &content);
    return wrote;
}

/* Writes one piece of the draft. False: no part of it was large enough. */
static bool write_piece(struct pieces *pieces, uint64_t ino, uint64_t min_bytes)
{
    struct stage *stage = pieces->commit->local->stage;
    _cleanup_free_ struct stage_part *parts = xcalloc(PIECE_PARTS_MAX, sizeof *parts);
    const struct stage_stretch stretch = {ino, min_bytes, PIECE_MAX};
    bool more;
    size_t count = stage_draft_stretch(stage, &stretch, parts, PIECE_PARTS_MAX, &more);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += parts[i].length;
    bool wrote = count && bytes >= min_bytes &&
                 write_stretch(pieces, ino, parts, count, more && bytes > CHUNK_SIZE_MAX * 4);
    stage_unpin_parts(stage, parts, count);
    return wrote;
}

/* --- gathering -------------------------------------------------------------------------------- */

enum gathered {
    GATHERED_NONE, /* nothing can be gathered */
    GATHERED_SOME,
    GATHER_CHANGES, /* the files are being changed */
    GATHER_NO_ROOM, /* it is not known yet whether NVMe has room */
    GATHER_NO_SLAB,
};

/* Gathers the bytes of one stretch (SLAB_PAYLOAD) of a file without a name into one range. Returns
 * GATHERED_NONE also if its content cannot be read, or NVMe is full. */
static enum gathered gather_range(struct commit *commit, const struct stage_scattered *scattered)
{
    struct stage *stage = commit->local->stage;
    /* holes become bytes, which need room on NVMe, too */
    int r = room_admit_own(commit->room, scattered->length);
    if (r < 0)
        return r == -EAGAIN ? GATHER_NO_ROOM : GATHERED_NONE;
    uint32_t slab = stage_slab_try_take(stage);
    if (slab == SLAB_NONE)
        return GATHER_NO_SLAB;
    stage_gather_begin(stage, scattered);
    uint8_t *content = (uint8_t *)stage_slab_memory(stage, slab) + SLAB_PAYLOAD_OFFSET;
    r = packs_read_file(commit->packs, scattered->ino, scattered->offset, content,
                        scattered->length);
    if (r < 0 || !stage_gather(stage, scattered, slab)) {
        stage_slab_give(stage, slab);
        return r < 0 ? GATHERED_NONE : GATHER_CHANGES;
    }
    /* holes count as allocated now */
    change_notify(commit->change, &(uint64_t){scattered->ino}, 1, false);
    return GATHERED_SOME;
}

/* A stretch whose content cannot be read does not stop the others. Without room or a slab, *at is
 * where to continue. */
static enum gathered gather_these(struct commit *commit, const struct stage_scattered *found,
                                  size_t count, struct stage_scattered *at)
{
    enum gathered all = GATHERED_NONE;
    for (size_t i = 0; i < count; i++) {
        enum gathered one = gather_range(commit, &found[i]);
        if (one == GATHER_NO_ROOM || one == GATHER_NO_SLAB) {
            *at = found[i];
            return all == GATHERED_SOME ? all : one;
        }
        if (one != GATHERED_NONE && all != GATHERED_SOME)
            all = one;
    }
    return all;
}

/* Continues where it ended, until some stretches are gathered, or none can be, in any file. */
static enum gathered gather_scattered(struct pieces *pieces)
{
    struct stage_scattered found[GATHER_MAX];
    unsigned ends = pieces->gather_at.ino == 0;
    enum gathered all = GATHERED_NONE;
    while (ends < 2 && !horizon_is_stopping(pieces->commit->horizon)) {
        size_t count = stage_find_scattered(pieces->commit->local->stage, &pieces->gather_at, found,
                                            ARRAY_LEN(found));
        ends += pieces->gather_at.ino == 0;
        enum gathered these = gather_these(pieces->commit, found, count, &pieces->gather_at);
        if (these != GATHERED_NONE && these != GATHER_CHANGES)
            return these;
        if (these == GATHER_CHANGES)
            all = these;
    }
    return all;
}

/* --- relief ----------------------------------------------------------------------------------- */

static bool write_largest(struct pieces *pieces, uint64_t least)
{
    uint64_t ino;
    return stage_largest_draft(pieces->commit->local->stage, least, &ino) &&
           write_piece(pieces, ino, least);
}

/* Writers wait, or soon will: the largest draft is written to NVMe in pieces. Many small scattered
 * writes fill the table of ranges, and pieces of their size would free too little for the I/O: the
 * draft with the most ranges is sealed or, if its file has no name, gathered. */
bool pieces_relieve(struct pieces *pieces, bool waiting, bool filling_up)
{
    struct commit *commit = pieces->commit;
    uint64_t crowding = 0, seq;
    int64_t happened;
    bool crowded = waiting && stage_is_crowded(commit->local->stage, &crowding),
         just_gathered = pieces->has_gathered;
    pieces->has_gathered = false;
    if (!waiting && !filling_up)
        return false;
    enum gathered gathered = crowded ? gather_scattered(pieces) : GATHERED_NONE;
    pieces->has_gathered = gathered == GATHERED_SOME;
    /* writers that waited for that are only waking up */
    if (pieces->has_gathered || (just_gathered && !crowded))
        return pieces->has_gathered;
    bool relieved = write_largest(pieces, waiting ? CHUNK_SIZE_MAX : PIECE_MIN) ||
                    (crowding && history_seal(commit->history, crowding) == 0);
    if (!relieved && waiting && (!crowded || gathered == GATHER_NO_SLAB))
        relieved = write_largest(pieces, crowded ? PIECE_CROWDED_MIN : 1);
    /* operations carried with versions free room, too */
    bool may_clear =
        gathered == GATHER_CHANGES || gathered == GATHER_NO_ROOM ||
        (gathered == GATHER_NO_SLAB && history_oldest(commit->history, &seq, &happened));
    stage_set_stuck(commit->local->stage, crowded && !relieved && !may_clear);
    return relieved;
}

void pieces_done(struct pieces *pieces)
{
    chunker_done(&pieces->state);
}
