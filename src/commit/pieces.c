// SPDX-License-Identifier: Apache-2.0
/* Pieces of drafts: when the stage runs full of drafts, the largest is written in pieces before it
 * is sealed, and ranges that crowd the stage's table are gathered. */
#include "base/log.h"
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
#define PIECE_CROWDED_MIN (64 * KIB) /* less would free nothing worth the I/O */
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

/* Tells a recovery that these packs are no leftovers. */
static int log_new_packs(struct commit *commit)
{
    struct unlogged packs = {0};
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

/* The chunker is behind the last chunk that is stored: the next piece goes on there. */
static void pieces_note_chunker(struct pieces *pieces, uint64_t ino, const struct content *content)
{
    const struct extent *last = &content->extents.at[content->extents.count - 1];
    pieces->ino = ino;
    pieces->next = last->offset + last->length;
}

/* A try that failed moved the chunker over content that is not stored, and that comes again. */
static void pieces_forget_chunker(struct pieces *pieces)
{
    chunker_done(&pieces->state);
    pieces->ino = pieces->next = 0;
}

/* Writes one piece of the draft. False: there was nothing large enough. */
static bool write_piece(struct pieces *pieces, uint64_t ino, uint64_t min_bytes)
{
    struct commit *commit = pieces->commit;
    struct stage_part *parts = xcalloc(PIECE_PARTS_MAX, sizeof *parts);
    bool more;
    size_t count = stage_draft_stretch(commit->local->stage, ino, min_bytes, PIECE_MAX, parts,
                                       PIECE_PARTS_MAX, &more);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += parts[i].length;
    bool wrote = false;
    if (count && bytes >= min_bytes) {
        struct content content = {0};
        struct chunker fresh = {.anchor = parts[0].offset};
        if (pieces->ino != ino || pieces->next != parts[0].offset) {
            chunker_done(&pieces->state);
            pieces->state = fresh;
        }
        int r = content_write_stretch(commit, parts, count, &pieces->state,
                                      more && bytes > CHUNK_SIZE_MAX * 4, &content);
        if (r == 0)
            r = packs_finish(commit->packs);
        if (r == 0)
            r = log_new_packs(commit);
        if (r == 0)
            exchange_pieces(commit, ino, parts, count, &content);
        else
            packs_abandon(commit->packs);
        wrote = r == 0 && content.extents.count > 0;
        if (wrote)
            pieces_note_chunker(pieces, ino, &content);
        else
            pieces_forget_chunker(pieces);
        content_done(commit, &content);
    }
    stage_unpin_parts(commit->local->stage, parts, count);
    free(parts);
    return wrote;
}

/* --- gathering -------------------------------------------------------------------------------- */

/* Gathers in one range what lies in SLAB_PAYLOAD of a file without a name. -ECANCELED: it changed
 * meanwhile. -EAGAIN: it is not known yet whether NVMe has room for it. -ENOBUFS: no slab. */
static int gather_range(struct commit *commit, const struct stage_scattered *scattered)
{
    int r = room_admit_own(
        commit->room,
        scattered->length); /* holes become bytes, which must have a place on NVMe, too */
    uint32_t slab = r == 0 ? stage_slab_try_take(commit->local->stage) : SLAB_NONE;
    if (slab == SLAB_NONE)
        return r < 0 ? r : -ENOBUFS;
    stage_gather_begin(commit->local->stage, scattered);
    uint8_t *content =
        (uint8_t *)stage_slab_memory(commit->local->stage, slab) + SLAB_PAYLOAD_OFFSET;
    r = packs_read_file(commit->packs, scattered->ino, scattered->offset, content,
                        scattered->length);
    if (r == 0 && !stage_gather(commit->local->stage, scattered, slab))
        r = -ECANCELED;
    if (r < 0)
        stage_slab_give(commit->local->stage, slab);
    else
        change_notify(commit->change, &(uint64_t){scattered->ino}, 1, false); /* holes count now */
    return r;
}

/* The number of these that were gathered; one whose content cannot be read is no reason to give up
 * others. -EAGAIN, -ENOBUFS: there is no room now, and *at is where to go on. -ECANCELED: none, and
 * they change. */
static int gather_these(struct commit *commit, const struct stage_scattered *found, size_t count,
                        struct stage_scattered *at)
{
    int gathered = 0;
    bool changing = false;
    for (size_t i = 0; i < count; i++) {
        int r = gather_range(commit, &found[i]);
        if (r == -EAGAIN || r == -ENOBUFS) {
            *at = found[i];
            return gathered ? gathered : r;
        }
        gathered += r == 0;
        changing = changing || r == -ECANCELED;
    }
    return gathered || !changing ? gathered : -ECANCELED;
}

/* Goes on where it ended, until some are gathered: > 0. 0: nothing can be, in no file. Else as
 * gather_these(). */
static int gather_scattered(struct pieces *pieces)
{
    struct stage_scattered found[GATHER_MAX];
    unsigned ends = pieces->gather_at.ino == 0;
    int all = 0;
    while (ends < 2 && !horizon_is_stopping(pieces->commit->horizon)) {
        size_t count = stage_find_scattered(pieces->commit->local->stage, &pieces->gather_at, found,
                                            ARRAY_LEN(found));
        ends += pieces->gather_at.ino == 0;
        int r = gather_these(pieces->commit, found, count, &pieces->gather_at);
        if (r != 0 && r != -ECANCELED)
            return r;
        all = r < 0 ? r : all;
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

/* Writers wait, or soon will: the largest draft goes to NVMe in pieces. Many small scattered writes
 * fill the table of ranges, and pieces of their size would free nothing worth the I/O: what has
 * most of them is sealed, or gathered where it has no name. */
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
    int gathered = crowded ? gather_scattered(pieces) : 0;
    pieces->has_gathered = gathered > 0;
    if (gathered > 0 || (just_gathered && !crowded)) /* waiters for that are only waking up */
        return gathered > 0;
    bool relieved = write_largest(pieces, waiting ? CHUNK_SIZE_MAX : PIECE_MIN) ||
                    (crowding && history_seal(commit->history, crowding) == 0);
    if (!relieved && waiting && (!crowded || gathered == -ENOBUFS))
        relieved = write_largest(pieces, crowded ? PIECE_CROWDED_MIN : 1);
    /* Operations that are carried as versions give room, too. */
    bool may_clear = gathered == -ECANCELED || gathered == -EAGAIN ||
                     (gathered == -ENOBUFS && history_oldest(commit->history, &seq, &happened));
    stage_set_stuck(commit->local->stage, crowded && !relieved && !may_clear);
    return relieved;
}

void pieces_done(struct pieces *pieces)
{
    chunker_done(&pieces->state);
}
