// SPDX-License-Identifier: Apache-2.0
/* Versions of files in the stage, from seal to durable, and their writeback. Threads and blocking
 * as in stage.h. */
#pragma once

#include "stage/content.h"

struct stage;

/* The sealed draft of a file. */
struct stage_draft {
    uint64_t keep, size;
    int64_t mtime;
    uint64_t bytes; /* in memory, changed in this draft */
};

/* Turns the draft into version `version`, sealed at `seq`. If an older sealed version is not pinned
 * yet, both are merged (the state between them can no longer be chosen as a cut: the floor rises to
 * `seq`). Without a draft nothing happens and false is returned, unless `even_empty`: a new file's
 * first version. The caller then logs the SEAL; if the daemon dies before that, a recovery finds
 * the draft unsealed. */
bool stage_seal(struct stage *stage, uint64_t ino, uint64_t version, uint64_t seq, bool even_empty,
                struct stage_draft *ret);

/* The file was removed from the namespace at `seq`: drops content that is not pinned, and raises
 * the floor. With `orphan` the content stays readable, as one draft that will never be sealed,
 * until stage_forget(). -EAGAIN, only with `orphan`: it is done, but the log had no room for the
 * layer that a successor needs; a compaction enters it. */
CAIRN_MUST_CHECK int stage_unlink(struct stage *stage, uint64_t ino, uint64_t seq, bool orphan);
void stage_forget(struct stage *stage, uint64_t ino);
/* A file without a name, of which nothing was ever sealed, gets one: enters its staged content into
 * the log, and leaves `reserve` bytes free there. -EAGAIN: no room, nothing has changed. */
CAIRN_MUST_CHECK int stage_relink(struct stage *stage, uint64_t ino, size_t reserve);

/* No earlier cut may be chosen: data of earlier states was dropped. */
uint64_t stage_floor(struct stage *stage);
void stage_raise_floor(struct stage *stage, uint64_t seq);

/* A version waiting for writeback. */
struct layer;
struct stage_sealed {
    const struct layer *layer;
    uint64_t ino, version, seal_seq, keep, size;
    uint64_t bytes; /* in memory, to write */
    uint32_t ranges;
};

/* Lists sealed versions that are not pinned yet, in order of sealing: at most `max`. Returns their
 * number. */
size_t stage_sealed_list(struct stage *stage, struct stage_sealed *list, size_t max);

/* Pins a sealed version as part of the current target. If an older one is still pinned, because the
 * view does not have it yet, both are merged, and `sealed` then describes the result: it contains
 * the changes of both. */
void stage_pin(struct stage *stage, struct stage_sealed *sealed);

/* Parts of a pinned layer from `offset` on: only its changes (no PART_BELOW; gaps between parts). A
 * pinned layer is constant, so its memory parts are valid until stage_layer_done(). Returns the
 * count, at most `max`. */
size_t stage_layer_parts(struct stage *stage, const struct layer *layer, uint64_t offset,
                         struct stage_part *parts, size_t max);

/* The pinned version of `ino` is durable and in the view: its memory becomes clean. */
void stage_layer_done(struct stage *stage, uint64_t ino);

/* --- writeback in pieces ---------------------------------------------------------------------- */

/* Is the table of ranges full, or is half of it taken by drafts, or by files without a name? If it
 * is full, `ret_ino` is the draft with the most ranges that may be sealed; else 0. */
bool stage_is_crowded(struct stage *stage, uint64_t *ret_ino);
/* Neither writeback in pieces nor gathering frees ranges: writes to files without a name fail with
 * -ENOSPC for a second, as long as these have half of the table. */
void stage_set_stuck(struct stage *stage, bool stuck);

/* A stretch of SLAB_PAYLOAD bytes of a file without a name that takes many ranges. Sealing frees
 * the ranges of other files; these are gathered into one slab, holes included, by one thread. */
struct stage_scattered {
    uint64_t ino, offset;
    uint32_t length; /* up to the end of the file */
};

/* Finds scattered stretches from *cursor on, and moves it; *cursor begins at zero, and is zero
 * again after the last. At most `max`; returns the count. */
size_t stage_find_scattered(struct stage *stage, struct stage_scattered *cursor,
                            struct stage_scattered *list, size_t max);
/* Call before its content is read. */
void stage_gather_begin(struct stage *stage, const struct stage_scattered *scattered);
/* Replaces the stretch by `slab`, which has its bytes at SLAB_PAYLOAD_OFFSET, and takes ownership
 * of the slab. False: the content changed after stage_gather_begin(). */
CAIRN_MUST_CHECK bool stage_gather(struct stage *stage, const struct stage_scattered *scattered,
                                   uint32_t slab);

/* The file with the most unsealed bytes (at least `min_bytes`), to be written back in pieces.
 * False: none. */
bool stage_largest_draft(struct stage *stage, uint64_t min_bytes, uint64_t *ret_ino);

/* Finds the first stretch of consecutive memory parts in the file's draft with `min_bytes` or more,
 * and returns at most `max_bytes` and `max` parts of it, pinned. *ret_more: the draft continues
 * directly after them. */
struct stage_stretch {
    uint64_t ino, min_bytes, max_bytes;
};
size_t stage_draft_stretch(struct stage *stage, const struct stage_stretch *stretch,
                           struct stage_part *parts, size_t max, bool *ret_more);

/* [offset, offset + length) as in `parts` is now in a durable chunk: replaces those ranges in
 * memory that are unchanged by a reference to the chunk, and frees their room. */
void stage_piece_done(struct stage *stage, uint64_t ino, const struct stage_part *parts,
                      size_t count, const struct stage_chunk_range *chunk);

/* Do ranges refer to chunks of a pack, on NVMe or in the remote, that the view does not have or may
 * drop? This and the next call: any thread. */
bool stage_uses_pack(struct stage *stage, uint64_t pack);
bool stage_refers_to_remote(struct stage *stage);

/* Drafts to seal in the background: idle for `idle_ns`, or older than `age_ns` and smaller than
 * `small_bytes`; in a crowded stage those with the most ranges. */
struct stage_ripeness {
    int64_t now, idle_ns, age_ns;
    uint64_t small_bytes;
};
size_t stage_ripe_drafts(struct stage *stage, const struct stage_ripeness *ripe, uint64_t *inos,
                         size_t max);
/* Lists inodes with a draft: at most `max`; returns how many exist. */
size_t stage_drafts(struct stage *stage, uint64_t *inos, size_t max);
