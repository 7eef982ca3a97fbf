// SPDX-License-Identifier: Apache-2.0
/* Content of files in the stage: slabs to receive into, writes, erasing, reads. Threads and
 * blocking as in stage.h. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"

#define SLAB_PAYLOAD (1024u * 1024) /* content bytes of a slab */
/* Where a payload that was received straight into a slab begins. */
#define SLAB_PAYLOAD_OFFSET 4096u
#define SLAB_STRIDE (SLAB_PAYLOAD + SLAB_PAYLOAD_OFFSET)
#define STAGE_STEAL_MIN (256u * 1024) /* smaller payloads are copied into shared slabs */

struct stage;

/* --- slabs for receiving ---------------------------------------------------------------------- */

#define SLAB_NONE UINT32_MAX

/* A slab to receive requests into, owned by the caller. Waits while there is none at all. SLAB_NONE
 * when the stage is stopping, or when *ended; NULL: there is no such flag. */
uint32_t stage_slab_take(struct stage *stage, const _Atomic bool *ended);
/* After *ended was set. */
void stage_wake_takers(struct stage *stage);
/* The number of slabs that receivers may hold at most, and requests that wait for room as many:
 * what is left is enough for content to pass. */
uint32_t stage_slabs_for_waiting(struct stage *stage);
/* One for a write of our own: does not wait, and leaves the reserve to receivers. SLAB_NONE: no
 * room now. */
uint32_t stage_slab_try_take(struct stage *stage);
void stage_slab_give(struct stage *stage, uint32_t slab);
/* Its memory: SLAB_STRIDE bytes. */
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
    /* of a write that may open a draft: see struct stage_change */
    uint64_t below_size, version;
};

/* Another change of a file's content. If the file has no draft, it opens one; no call seals
 * meanwhile. */
struct stage_change {
    uint64_t ino;
    int64_t time;
    uint64_t below_size; /* size of the file below a new draft */
    uint64_t version;    /* last sealed version */
};

/* The draft of a new file, empty: it is sealed as others are, also if it is never written. Not in
 * the log: a recovery seals what is nascent. */
void stage_open_draft(struct stage *stage, uint64_t ino);

/* Stages a write in the file's draft; opens one if there is none, so no call seals meanwhile.
 * -EAGAIN: no room now, nothing happened, wait for on_room. Requests that continue each other are
 * taken for one application write: a request that is not full ends it. */
CAIRN_MUST_CHECK int stage_write(struct stage *stage, const struct stage_write *w);
/* The same, but opens no draft. *ret_has_draft false: there is none, and nothing happened. */
CAIRN_MUST_CHECK int stage_write_draft(struct stage *stage, const struct stage_write *w,
                                       bool *ret_has_draft);

/* Discards [offset, offset + length) of the content (length ~0: to the end) and sets the size. */
CAIRN_MUST_CHECK int stage_erase(struct stage *stage, const struct stage_change *change,
                                 uint64_t offset, uint64_t length, uint64_t new_size);

/* Part of a stored chunk that a range of the file consists of. */
struct stage_chunk_range {
    uint64_t offset, length;
    struct chunk_name name;
    uint32_t chunk_offset;
    uint64_t pack;   /* on NVMe; 0: none, then there is the other one */
    uint64_t remote; /* the pack in the remote; 0: none is to be held for the range */
};

/* A range of the draft becomes a reference to a stored chunk, whose packs the caller has pinned.
 * -EAGAIN: no room in the log. */
CAIRN_MUST_CHECK int stage_put_chunk(struct stage *stage, const struct stage_change *change,
                                     const struct stage_chunk_range *chunk);

/* Size and times of the newest staged state. False: nothing of this file is staged but
 * clean data. */
struct stage_file_state {
    bool has_draft;
    uint64_t draft_size;
    int64_t draft_mtime;
    bool has_sealed; /* a version that is not durable yet, pinned or not: the newest */
    uint64_t sealed_version, sealed_size;
    int64_t sealed_mtime;
    uint64_t dirty_bytes; /* in memory and not durable */
    uint64_t chunk_bytes; /* in packs, and not yet durable as a part of this file */
};
bool stage_file_state(struct stage *stage, uint64_t ino, struct stage_file_state *ret);
/* Sets the time that the draft, if any, will be sealed with. -EAGAIN: no room in the log. */
CAIRN_MUST_CHECK int stage_set_mtime(struct stage *stage, uint64_t ino, int64_t mtime);

enum stage_part_kind { PART_MEMORY, PART_HOLE, PART_CHUNK, PART_BELOW };

struct stage_part {
    enum stage_part_kind kind;
    uint64_t offset, length;
    const void *memory;     /* PART_MEMORY: valid until stage_unpin_parts() */
    uint32_t slab;          /* PART_MEMORY */
    bool is_clean;          /* PART_MEMORY: the view has it, too */
    struct chunk_name name; /* PART_CHUNK */
    uint32_t chunk_offset;
    bool starts_write;
};

/* The content of [offset, offset + length) as the stage knows it, in order and without gaps: at
 * most `max` parts, so the end may not be reached; PART_BELOW is what only the view knows. Memory
 * parts are pinned. Returns the count. */
size_t stage_read(struct stage *stage, uint64_t ino, uint64_t offset, uint64_t length,
                  struct stage_part *parts, size_t max);
/* The same, and stage_file_state() of the same moment. */
struct stage_range {
    uint64_t ino, offset, length;
};
size_t stage_resolve(struct stage *stage, const struct stage_range *range, struct stage_part *parts,
                     size_t max, struct stage_file_state *ret_state);
void stage_unpin_parts(struct stage *stage, const struct stage_part *parts, size_t count);
/* Before the kernel copies an answer from memory parts, which are pinned: a copy that needs a page
 * fault would fail with EIO if this process were killed meanwhile. At most 0.1 ms for each slab of
 * a daemon before, once. */
void stage_map_parts(struct stage *stage, const struct stage_part *parts, size_t count);
