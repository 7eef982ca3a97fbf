// SPDX-License-Identifier: Apache-2.0
/* Versions of files in the stage, from seal to durable, and their writeback. Threads and blocking
 * as in stage.h. */
#pragma once

#include "stage/content.h"

struct stage;

/* The draft of a file, which a seal takes. */
struct stage_draft {
    uint64_t keep, size;
    int64_t mtime;
    uint64_t bytes; /* in memory, of this change */
};

/* The draft becomes version `version`, sealed at `seq`. If a sealed version waits that is not
 * pinned, both become one (the state between can no longer be chosen as a cut: the floor rises to
 * `seq`). Without a draft nothing happens and false is returned, unless `even_empty`: a new file's
 * first version. The caller then logs the SEAL; should the daemon die before that, a recovery finds
 * the draft unsealed. */
bool stage_seal(struct stage *stage, uint64_t ino, uint64_t version, uint64_t seq, bool even_empty,
                struct stage_draft *ret);

/* The file is gone from the namespace at `seq`: what is not pinned is dropped; the floor rises.
 * With `orphan` the content stays readable, as one draft that will never be sealed, until
 * stage_forget(). -EAGAIN, only then: it is done, but there was no room in the log for what a
 * successor needs of it; a compaction enters it. */
CAIRN_MUST_CHECK int stage_unlink(struct stage *stage, uint64_t ino, uint64_t seq, bool orphan);
void stage_forget(struct stage *stage, uint64_t ino);
/* A file without a name, of which nothing was ever sealed, gets one: what is staged of it enters
 * the log, where `reserve` bytes stay free. -EAGAIN: there is no room, and all is as before. */
CAIRN_MUST_CHECK int stage_relink(struct stage *stage, uint64_t ino, size_t reserve);

/* No cut may be chosen below this: data of states before it was dropped. */
uint64_t stage_floor(struct stage *stage);
void stage_raise_floor(struct stage *stage, uint64_t seq);

/* A version that waits for writeback. */
struct layer;
struct stage_sealed {
    const struct layer *layer;
    uint64_t ino, version, seal_seq, keep, size;
    uint64_t bytes; /* in memory, to write */
    uint32_t ranges;
};

/* Sealed versions that wait and are not pinned, in order of sealing: at most `max`. Returns how
 * many. */
size_t stage_sealed_list(struct stage *stage, struct stage_sealed *list, size_t max);

/* Pins a sealed version as part of the current target. If an older one is still pinned, because the
 * view does not have it yet, both become one, which `sealed` describes then: it changes what either
 * changed. */
void stage_pin(struct stage *stage, struct stage_sealed *sealed);

/* Parts of a pinned layer from `offset` on: only what it changes (no PART_BELOW; gaps between
 * parts). A pinned layer does not change, so its memory parts are valid until it is done. Returns
 * the count, at most `max`. */
size_t stage_layer_parts(struct stage *stage, const struct layer *layer, uint64_t offset,
                         struct stage_part *parts, size_t max);

/* The pinned version of `ino` is durable and in the view: its memory becomes clean. */
void stage_layer_done(struct stage *stage, uint64_t ino);

/* --- writeback in pieces ---------------------------------------------------------------------- */

/* Is the table of ranges full, or half of it taken by drafts, or by files without a name? If it is
 * full, `ret_ino` is the draft that has most of them and may be sealed; else 0. */
bool stage_is_crowded(struct stage *stage, uint64_t *ret_ino);
/* Nothing relieves it: writes to files without a name fail with -ENOSPC for a second, as long as
 * they have half of the table. */
void stage_set_stuck(struct stage *stage, bool stuck);

/* SLAB_PAYLOAD of a file without a name that take many ranges. What is sealed leaves the table;
 * these are gathered in a slab, holes and all, by one thread. */
struct stage_scattered {
    uint64_t ino, offset;
    uint32_t length; /* up to the end of the file */
};

/* Some of them from *cursor on, which moves on; from zero, and zero again where there are no more.
 * At most `max`; returns the count. */
size_t stage_find_scattered(struct stage *stage, struct stage_scattered *cursor,
                            struct stage_scattered *list, size_t max);
/* Its content is going to be read. */
void stage_gather_begin(struct stage *stage, const struct stage_scattered *scattered);
/* Takes `slab`, which has the bytes read at SLAB_PAYLOAD_OFFSET. False: they changed since they
 * began to be read. */
CAIRN_MUST_CHECK bool stage_gather(struct stage *stage, const struct stage_scattered *scattered,
                                   uint32_t slab);

/* The file with most unsealed bytes (of at least `min_bytes`), to be written in pieces. False:
 * none. */
bool stage_largest_draft(struct stage *stage, uint64_t min_bytes, uint64_t *ret_ino);

/* The first stretch of consecutive memory parts of the file's draft that has `min_bytes` or more;
 * at most `max_bytes` and `max` parts of it; pinned. *ret_more: the draft goes on directly after
 * it. */
struct stage_stretch {
    uint64_t ino, min_bytes, max_bytes;
};
size_t stage_draft_stretch(struct stage *stage, const struct stage_stretch *stretch,
                           struct stage_part *parts, size_t max, bool *ret_more);

/* [offset, offset + length) as it was in `parts` now lies in a durable chunk: what is still the
 * same in memory is exchanged for a reference to it, and its room freed. */
void stage_piece_done(struct stage *stage, uint64_t ino, const struct stage_part *parts,
                      size_t count, const struct stage_chunk_range *chunk);

/* Do ranges refer to chunks of a pack, on NVMe or in the remote, that the view does not know or may
 * drop? Any thread, as the next. */
bool stage_uses_pack(struct stage *stage, uint64_t pack);
bool stage_refers_to_remote(struct stage *stage);

/* Drafts to seal in the background: idle for `idle_ns`, or older than `age_ns` and smaller than
 * `small_bytes`; in a crowded stage those with most pieces. */
struct stage_ripeness {
    int64_t now, idle_ns, age_ns;
    uint64_t small_bytes;
};
size_t stage_ripe_drafts(struct stage *stage, const struct stage_ripeness *ripe, uint64_t *inos,
                         size_t max);
/* Inodes with a draft: at most `max`; returns how many there are. */
size_t stage_drafts(struct stage *stage, uint64_t *inos, size_t max);
