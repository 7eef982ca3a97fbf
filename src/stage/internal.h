// SPDX-License-Identifier: Apache-2.0
/* Inside the stage: structures that its files share. No other component includes this. */
#pragma once

#include <bsd/sys/cdefs.h>
#include <bsd/sys/tree.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/lock.h"
#include "base/tables.h"
#include "stage/layout.h"
#include "stage/requests.h"
#include "stage/stage.h"

/* --- heap ------------------------------------------------------------------------------------- */

enum range_kind { RANGE_MEMORY, RANGE_HOLE, RANGE_CHUNK };

struct range {
    RB_ENTRY(range) node;
    TAILQ_ENTRY(range) in_slab; /* RANGE_MEMORY */
    struct layer *layer;
    uint64_t offset, length;
    uint8_t kind;
    bool starts_write;
    uint32_t slab, slab_offset; /* RANGE_MEMORY */
    struct chunk_name name;     /* RANGE_CHUNK */
    uint32_t chunk_offset;
    uint64_t pack, remote; /* as of struct stage_chunk_range */
};

RB_HEAD(range_tree, range);
TAILQ_HEAD(range_list, range);

#define RANGES_PER_CHANGE 4u /* one more, and the one that it splits */

enum layer_state { LAYER_DRAFT, LAYER_SEALED, LAYER_PINNED, LAYER_CLEAN, LAYER_STATES };

struct layer {
    struct stage_file *file;
    enum layer_state state;
    uint64_t version, seal_seq, keep, size;
    int64_t mtime;
    int64_t opened, changed; /* monotonic ns */
    struct range_tree ranges;
    uint32_t range_count;
    uint64_t memory_bytes, chunk_bytes; /* of its ranges: in slabs; in packs */
    TAILQ_ENTRY(layer) link;            /* drafts, or sealed */
};

TAILQ_HEAD(layer_list, layer);

#define WRITES_AT_ONCE 8u /* of one file, whose requests may alternate: see begins_write() */

struct stage_file {
    uint64_t ino;
    struct layer *layers[LAYER_STATES]; /* newest first */
    /* where full requests ended that nothing followed yet; 0: none */
    uint64_t write_ends[WRITES_AT_ONCE];
    unsigned replaced; /* of write_ends, in turns, for there was no other place */
    bool orphan;       /* no name, lives on: never sealed */
    bool dead;         /* gone from the namespace; a pinned layer may be left */
    UT_hash_handle hh;
};

enum slab_state { SLAB_UNREADY, SLAB_FREE, SLAB_HELD, SLAB_USED };

struct slab {
    TAILQ_ENTRY(slab) link; /* in free or clean */
    struct range_list ranges;
    uint32_t dirty_ranges, clean_ranges;
    uint32_t pins;
    uint32_t fill; /* shared slabs: where the next record goes */
    enum slab_state state;
    bool in_clean;
    /* of a daemon before: its memory is not in the page tables of this process yet */
    bool is_unmapped;
};

TAILQ_HEAD(slab_list, slab);

/* References of ranges to chunks, by pack. */
struct pack_use {
    uint64_t pack;
    uint64_t ranges;
    UT_hash_handle hh;
};

/* The part of a stage that its lock guards. */
struct stage_locked {
    struct cairn_mutex lock;
    uint64_t seq;
    struct slab *slabs;
    struct slab_list free, clean;
    uint32_t unready_count, free_count, clean_count, used_count; /* used: with the clean ones */
    uint32_t unready_next; /* where the search for an unready one begins */
    /* neither unready nor free at the moment: memory is being put behind them */
    uint32_t readying_count;
    uint32_t shared; /* slab that small writes go to, SLAB_NONE */
    int64_t last_write;
    bool grow_failed;      /* there was no memory for another slab */
    int64_t grow_again_at; /* monotonic ns at which that is tried again */
    bool stopping, room_wanted;
    bool refused;             /* a writer was, since room last came free */
    struct stage_file *files; /* by ino */
    struct pack_use *packs;
    uint64_t remote_ranges; /* that refer to a pack in the remote */
    struct layer_list drafts, sealed;
    uint64_t draft_count; /* of files with a name: they will be sealed */
    uint32_t range_count;
    /* of files without a name, clean ones not counted: no seal frees them */
    uint32_t orphan_ranges;
    /* monotonic ns; writing them in pieces and gathering them did not help either */
    int64_t orphans_stuck_until;
    /* the range that is being read to be gathered; length 0: none, or it changed since */
    struct stage_scattered gathering;
    uint64_t draft_bytes, dropped_bytes;
    uint32_t handle_free, handle_count;
};

struct stage {
    char *ctl_path, *slabs_path;
    int ctl_fd, slabs_fd; /* the first one holds the lock */
    uint8_t name[16];
    size_t ctl_len, slabs_len;
    uint32_t slab_count;
    uint32_t slab_reserve; /* slabs that only receivers may take */
    uint32_t ranges_max;
    bool read_only;              /* no file is written */
    struct stage_header *header; /* control file, mapped */
    struct slab_entry *slab_table;
    struct handle_entry *handles;
    struct request_slot *requests;
    _Atomic uint64_t *due;                      /* STAGE_DUE_MAX inodes, 0: none */
    _Atomic bool request_is_left[REQUESTS_MAX]; /* by a daemon that died, and not come again yet */
    uint8_t *log[2];
    _Atomic uint64_t log_compacted; /* bytes that the last compaction kept */
    _Atomic uint64_t dirty_bytes;   /* changed with the lock */
    uint8_t *slab_memory;
    void (*on_room)(void *arg);
    void *on_room_arg;
    pthread_t filler; /* faults slabs in ahead of need */
    bool filler_started;
    pthread_cond_t slabs_changed;
    struct stage_locked locked;
};

/* layers.c: all with the lock held */
struct layer *layer_new_locked(struct stage *stage, struct stage_file *file,
                               enum layer_state state);
void layer_free_locked(struct stage *stage, struct layer *layer, bool dropped);
void layer_abandon(struct layer *layer);
void layer_erase_locked(struct stage *stage, struct layer *layer, uint64_t offset, uint64_t length,
                        bool dropped);
struct range *layer_first_locked(const struct layer *layer, uint64_t offset);
struct range *layer_next_locked(struct range *range);
void layer_put_locked(struct stage *stage, struct layer *layer, const struct range *what);
void layer_set_state_locked(struct stage *stage, struct layer *layer, enum layer_state state);
void layer_merge_locked(struct stage *stage, struct layer *below, struct layer *above);
struct stage_file *file_get_locked(struct stage *stage, uint64_t ino, bool create);
void file_settle_locked(struct stage *stage, struct stage_file *file);

/* files.c */
/* NULL: nothing of it is staged. */
struct stage_file_state file_state_locked(const struct stage_file *file);
/* Takes [offset, offset + length) of the content away. `dropped`: it is counted as dropped. */
void draft_erase_locked(struct stage *stage, struct layer *draft, uint64_t offset, uint64_t length,
                        bool dropped);
void draft_put_locked(struct stage *stage, struct layer *draft, const struct stage_write *w,
                      bool starts_write);

/* slabs.c */
void slab_settle_locked(struct stage *stage, uint32_t slab);
bool slabs_bear_write_locked(const struct stage *stage, bool brings);
uint32_t slab_take_locked(struct stage *stage);
bool slab_evict_locked(struct stage *stage);
/* `state`: SLAB_SHARED_USED, with nothing in it yet, or SLAB_SHARED_RECEIVED, with its record
 * written. */
void slab_publish_locked(struct stage *stage, uint32_t slab, enum slab_shared_state state);
void slabs_init(struct stage *stage);
CAIRN_MUST_CHECK int slabs_start(struct stage *stage);
void slab_fill_locked(struct stage *stage, uint32_t slab, uint32_t fill);
void slab_claim_recovered_locked(struct stage *stage, uint32_t slab);
void room_changed(struct stage *stage);

/* shm.c */
void handles_reset(struct stage *stage);
/* As of a header of STAGE_VERSION. */
uint32_t header_crc(const struct stage_header *h);
/* Makes a secret for the tags of records, and the checksum for a header of STAGE_VERSION. */
CAIRN_MUST_CHECK int header_key(struct stage_header *h, const uint8_t name[16]);

/* place.c */
/* Never 0. A daemon that knows only of the path writes that alone, and the rest does not
 * count any more. */
uint32_t stage_owner_crc(const struct stage_header *h);
char *stage_path(const char *dir, const uint8_t name[16], const char *suffix);

/* slab_record.c */
typedef void slab_record_fn(const struct slab_record *rec, uint32_t slab, void *arg);
uint64_t slab_record_tag(const struct stage *stage, const struct slab_record *rec, uint32_t slab,
                         uint32_t at);
/* The payload is there; all of *rec but the tag is filled. */
void slab_record_write(struct stage *stage, uint32_t slab, uint32_t at, struct slab_record *rec);
/* Calls `fn` for each write record of a slab. -EBADMSG, -EUCLEAN: what the stage says is there is
 * damaged. */
CAIRN_MUST_CHECK int slab_records_read(const struct stage *stage, uint32_t slab, slab_record_fn *fn,
                                       void *arg);
/* Is it a number of an epoch that there was, or that a recovery has begun? */
bool stage_may_have_seq(const struct stage *stage, uint64_t seq);
/* Takes the handles over: those that are in use stay so. */
void handles_adopt(struct stage *stage);

/* requests.c: what decides the thread's request. Before and after it counts; with the lock that
 * keeps the log as it is. */
bool request_begin_record(const struct record *rec);
bool request_begin_write(uint64_t seq, uint64_t ino, uint32_t length);
void request_end(bool begun, int r);
void request_note_opening(uint32_t handle);
void request_note_closing(uint32_t handle);
void request_note_closed(void);
void requests_reset(struct stage *stage);
/* Numbers of which it has to be seen whether they were recorded: at most `max`; returns
 * the count. */
size_t requests_begun(const struct stage *stage, uint64_t *seqs, size_t max);
void requests_found(struct stage *stage, uint64_t seq);
/* After all were looked for, and before handles_adopt(). */
void requests_adopt(struct stage *stage);

/* log.c */
CAIRN_MUST_CHECK int log_append_own_locked(struct stage *stage, const struct record *rec);
/* Enters all of a layer, in place of what the log has of it, and leaves `reserve` bytes; or enters
 * nothing: -EAGAIN. A daemon that dies within may leave a part of it: for files that the log does
 * not name. */
CAIRN_MUST_CHECK int log_enter_layer_locked(struct stage *stage, struct layer *layer,
                                            size_t reserve);

static inline uint8_t *slab_at(const struct stage *stage, uint32_t slab)
{
    return stage->slab_memory + (size_t)slab * SLAB_STRIDE;
}
