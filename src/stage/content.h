// SPDX-License-Identifier: Apache-2.0
/* Content of files in the stage: slabs to receive into, writes, erasing, reads. Threads and
 * blocking as in stage.h. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"

#define SLAB_PAYLOAD (1024u * 1024) /* content bytes of a slab */
/* Offset of a payload that was received directly into a slab. */
#define SLAB_PAYLOAD_OFFSET 4096u
#define SLAB_STRIDE (SLAB_PAYLOAD + SLAB_PAYLOAD_OFFSET)
#define STAGE_STEAL_MIN (256u * 1024) /* smaller payloads are copied into shared slabs */

struct stage;

/* --- slabs for receiving ---------------------------------------------------------------------- */

#define SLAB_NONE UINT32_MAX

/* Takes a slab to receive requests into; the caller owns it. Blocks while no slab is available.
 * Returns SLAB_NONE when the stage is stopping or *ended is set (NULL: no such flag). */
uint32_t stage_slab_take(struct stage *stage, const _Atomic bool *ended);
/* Call after setting *ended. */
void stage_wake_takers(struct stage *stage);
/* The number of slabs that receivers may hold at most; waiting requests may hold as many again. The
 * remaining slabs suffice for content to be written back. */
uint32_t stage_slabs_for_waiting(struct stage *stage);
/* Takes a slab for a write of our own: does not block, and leaves the reserve to receivers.
 * SLAB_NONE: no room now. */
uint32_t stage_slab_try_take(struct stage *stage);
void stage_slab_give(struct stage *stage, uint32_t slab);
/* Returns the memory of a slab: SLAB_STRIDE bytes. */
void *stage_slab_memory(struct stage *stage, uint32_t slab);

/* --- content ---------------------------------------------------------------------------------- */

/* The bytes of a write: either `slab`, owned by the caller until success, with the payload at
 * SLAB_PAYLOAD_OFFSET, or a buffer that is copied. */
struct stage_write {
    uint64_t ino;
    uint64_t offset;
    uint32_t length; /* 1 to SLAB_PAYLOAD */
    uint32_t slab;   /* SLAB_NONE: copy from `data` */
    const void *data;
    int64_t time;
    /* for a write that may open a draft: see struct stage_change */
    uint64_t below_size, version;
};

/* Another change of a file's content. If the file has no draft, the change opens one; the caller
 * ensures that no seal runs meanwhile. */
struct stage_change {
    uint64_t ino;
    int64_t time;
    uint64_t below_size; /* size of the file below a new draft */
    uint64_t version;    /* last sealed version */
};

/* Opens the empty draft of a new file: it is sealed like any draft, also if the file is never
 * written. Not recorded in the log: a recovery seals new files from their NASCENT records. */
void stage_open_draft(struct stage *stage, uint64_t ino);

/* Stages a write in the file's draft. Opens one if there is none; the caller ensures that no seal
 * runs meanwhile. -EAGAIN: no room now, nothing has changed, wait for on_room. Consecutive requests
 * count as one application write, which ends with a request that is not full. */
CAIRN_MUST_CHECK int stage_write(struct stage *stage, const struct stage_write *w);
/* As stage_write(), but opens no draft. If *ret_has_draft is false, the file has none, and nothing
 * has changed. */
CAIRN_MUST_CHECK int stage_write_draft(struct stage *stage, const struct stage_write *w,
                                       bool *ret_has_draft);

/* Discards [offset, offset + length) of the content (length ~0: to the end) and sets the size. */
CAIRN_MUST_CHECK int stage_erase(struct stage *stage, const struct stage_change *change,
                                 uint64_t offset, uint64_t length, uint64_t new_size);

/* A range of a file that consists of part of a stored chunk. */
struct stage_chunk_range {
    uint64_t offset, length;
    struct chunk_name name;
    uint32_t chunk_offset;
    uint64_t pack;   /* pack on NVMe; 0: none, then `remote` is set */
    uint64_t remote; /* pack in the remote to be pinned for the range; 0: none */
};

/* Replaces a range of the draft by a reference to a stored chunk, whose packs the caller has
 * pinned. -EAGAIN: no room in the log. */
CAIRN_MUST_CHECK int stage_put_chunk(struct stage *stage, const struct stage_change *change,
                                     const struct stage_chunk_range *chunk);

/* Size and times of the newest staged state. False: only clean data of this file is staged, or
 * none. */
struct stage_file_state {
    bool has_draft;
    uint64_t draft_size;
    int64_t draft_mtime;
    bool has_sealed; /* a version that is not durable yet, pinned or not: the newest one */
    uint64_t sealed_version, sealed_size;
    int64_t sealed_mtime;
    uint64_t dirty_bytes; /* in memory and not durable */
    uint64_t chunk_bytes; /* in packs, and not yet durable as part of this file */
};
bool stage_file_state(struct stage *stage, uint64_t ino, struct stage_file_state *ret);
/* Sets the mtime with which the draft, if any, will be sealed. -EAGAIN: no room in the log. */
CAIRN_MUST_CHECK int stage_set_mtime(struct stage *stage, uint64_t ino, int64_t mtime);

enum stage_part_kind { PART_MEMORY, PART_HOLE, PART_CHUNK, PART_BELOW };

struct stage_part {
    enum stage_part_kind kind;
    uint64_t offset, length;
    const void *memory;     /* PART_MEMORY: valid until stage_unpin_parts() */
    uint32_t slab;          /* PART_MEMORY */
    bool is_clean;          /* PART_MEMORY: also in the view */
    struct chunk_name name; /* PART_CHUNK */
    uint32_t chunk_offset;
    bool starts_write;
};

/* Resolves [offset, offset + length) of the content, in order and without gaps, into at most `max`
 * parts, so the end may not be reached. PART_BELOW: the content is in the view. Memory parts are
 * pinned. Returns the count. */
size_t stage_read(struct stage *stage, uint64_t ino, uint64_t offset, uint64_t length,
                  struct stage_part *parts, size_t max);
/* As stage_read(), with the stage_file_state() of the same moment. */
struct stage_range {
    uint64_t ino, offset, length;
};
size_t stage_resolve(struct stage *stage, const struct stage_range *range, struct stage_part *parts,
                     size_t max, struct stage_file_state *ret_state);
void stage_unpin_parts(struct stage *stage, const struct stage_part *parts, size_t count);
/* Maps pinned memory parts into this process before the kernel copies an answer from them: a copy
 * that needs a page fault would fail with EIO if this process were killed meanwhile. Takes at most
 * 0.1 ms for each slab of an earlier daemon, once. */
void stage_map_parts(struct stage *stage, const struct stage_part *parts, size_t count);
