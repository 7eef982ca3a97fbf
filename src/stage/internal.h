// SPDX-License-Identifier: Apache-2.0
/* Inside the stage: structures shared by its files. No other component includes this header. */
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
    uint64_t pack, remote; /* as in struct stage_chunk_range */
};

RB_HEAD(range_tree, range);
TAILQ_HEAD(range_list, range);

#define RANGES_PER_CHANGE 4u /* a change adds one range, and may split another */

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
    TAILQ_ENTRY(layer) link;            /* in the list of drafts, or of sealed layers */
};

TAILQ_HEAD(layer_list, layer);

#define WRITES_AT_ONCE 8u /* of one file, whose requests may interleave: see begins_write() */

struct stage_file {
    uint64_t ino;
    struct layer *layers[LAYER_STATES]; /* newest first */
    /* ends of full requests that have no successor yet; 0: none */
    uint64_t write_ends[WRITES_AT_ONCE];
    unsigned replaced; /* index into write_ends to overwrite next if all are in use */
    bool orphan;       /* has no name but is still open: never sealed */
    bool dead;         /* removed from the namespace; a pinned layer may remain */
    UT_hash_handle hh;
};

enum slab_state { SLAB_UNREADY, SLAB_FREE, SLAB_HELD, SLAB_USED };

struct slab {
    TAILQ_ENTRY(slab) link; /* in free or clean */
    struct range_list ranges;
    uint32_t dirty_ranges, clean_ranges;
    uint32_t pins;
    uint32_t fill; /* shared slabs: offset of the next record */
    enum slab_state state;
    bool in_clean;
    /* of an earlier daemon: its memory is not yet in the page tables of this process */
    bool is_unmapped;
};

TAILQ_HEAD(slab_list, slab);

/* Number of ranges that refer to chunks of a pack. */
struct pack_use {
    uint64_t pack;
    uint64_t ranges;
    UT_hash_handle hh;
};

/* The fields of a stage that its lock guards. */
struct stage_locked {
    struct cairn_mutex lock;
    uint64_t seq;
    struct slab *slabs;
    struct slab_list free, clean;
    /* used_count includes the clean ones */
    uint32_t unready_count, free_count, clean_count, used_count;
    uint32_t unready_next; /* where the search for an unready slab begins */
    /* neither unready nor free at the moment: memory is being allocated for them */
    uint32_t readying_count;
    uint32_t shared; /* slab for small writes; SLAB_NONE: none */
    int64_t last_write;
    bool grow_failed;      /* memory for another slab could not be allocated */
    int64_t grow_again_at; /* monotonic ns at which to try again */
    bool stopping, room_wanted;
    bool refused;             /* a writer was refused since room last became available */
    struct stage_file *files; /* by ino */
    struct pack_use *packs;
    uint64_t remote_ranges; /* ranges that refer to a pack in the remote */
    struct layer_list drafts, sealed;
    uint64_t draft_count; /* of files with a name, which will be sealed */
    uint32_t range_count;
    /* of files without a name, clean ones not counted: no seal frees these ranges */
    uint32_t orphan_ranges;
    /* monotonic ns; until then writes to files without a name fail: writeback in pieces and
     * gathering freed nothing */
    int64_t orphans_stuck_until;
    /* the range that is being read in order to be gathered; length 0: none, or it has changed
     * since */
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
    _Atomic uint64_t *due; /* STAGE_DUE_MAX inodes; 0: unused entry */
    /* by a dead daemon, and the kernel has not sent it again yet */
    _Atomic bool request_is_left[REQUESTS_MAX];
    uint8_t *log[2];
    _Atomic uint64_t log_compacted; /* bytes left by the last compaction */
    _Atomic uint64_t dirty_bytes;   /* written under the lock */
    uint8_t *slab_memory;
    void (*on_room)(void *arg);
    void *on_room_arg;
    pthread_t filler; /* allocates memory for slabs ahead of need */
    bool filler_started;
    pthread_cond_t slabs_changed;
    struct stage_locked locked;
};

/* layers.c: all require the lock */
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
/* Returns zeros if nothing of the file is staged. */
struct stage_file_state file_state_locked(const struct stage_file *file);
/* Removes [offset, offset + length) from the content. `dropped`: counts the bytes as dropped. */
void draft_erase_locked(struct stage *stage, struct layer *draft, uint64_t offset, uint64_t length,
                        bool dropped);
void draft_put_locked(struct stage *stage, struct layer *draft, const struct stage_write *w,
                      bool starts_write);

/* slabs.c */
void slab_settle_locked(struct stage *stage, uint32_t slab);
bool slabs_bear_write_locked(const struct stage *stage, bool brings);
uint32_t slab_take_locked(struct stage *stage);
bool slab_evict_locked(struct stage *stage);
/* `state`: SLAB_SHARED_USED while the slab is empty, or SLAB_SHARED_RECEIVED once its record is
 * written. */
void slab_publish_locked(struct stage *stage, uint32_t slab, enum slab_shared_state state);
void slabs_init(struct stage *stage);
CAIRN_MUST_CHECK int slabs_start(struct stage *stage);
void slab_fill_locked(struct stage *stage, uint32_t slab, uint32_t fill);
void slab_claim_recovered_locked(struct stage *stage, uint32_t slab);
void room_changed(struct stage *stage);

/* shm.c */
void handles_reset(struct stage *stage);
/* For a header of STAGE_VERSION. */
uint32_t header_crc(const struct stage_header *h);
/* Generates the secret for the tags of records, and computes the checksum of a header of
 * STAGE_VERSION. */
CAIRN_MUST_CHECK int header_key(struct stage_header *h, const uint8_t name[16]);

/* place.c */
/* Never 0. An older daemon writes only the path, which invalidates this checksum and so the other
 * fields. */
uint32_t stage_owner_crc(const struct stage_header *h);
char *stage_path(const char *dir, const uint8_t name[16], const char *suffix);

/* slab_record.c */
typedef void slab_record_fn(const struct slab_record *rec, uint32_t slab, void *arg);
uint64_t slab_record_tag(const struct stage *stage, const struct slab_record *rec, uint32_t slab,
                         uint32_t at);
/* The payload must be in place; all of *rec but the tag is filled in. */
void slab_record_write(struct stage *stage, uint32_t slab, uint32_t at, struct slab_record *rec);
/* Calls `fn` for each write record of a slab. -EBADMSG, -EUCLEAN: a record that the slab table
 * announces is damaged. */
CAIRN_MUST_CHECK int slab_records_read(const struct stage *stage, uint32_t slab, slab_record_fn *fn,
                                       void *arg);
/* Is the number from an epoch of this stage, or from one that a recovery has begun? */
bool stage_may_have_seq(const struct stage *stage, uint64_t seq);
/* Rebuilds the free list of handles from the table: open handles stay open. */
void handles_adopt(struct stage *stage);

/* requests.c: notes the record that decides the thread's request, before and after it takes effect.
 * Call with the lock that protects the log from compaction. */
bool request_begin_record(const struct record *rec);
bool request_begin_write(uint64_t seq, uint64_t ino, uint32_t length);
void request_end(bool begun, int r);
void request_note_opening(uint32_t handle);
void request_note_closing(uint32_t handle);
void request_note_closed(void);
void requests_reset(struct stage *stage);
/* Numbers of records and writes to look for, to find out whether they took effect: at most `max`;
 * returns the count. */
size_t requests_begun(const struct stage *stage, uint64_t *seqs, size_t max);
void requests_found(struct stage *stage, uint64_t seq);
/* Call after all these were looked for, and before handles_adopt(). */
void requests_adopt(struct stage *stage);

/* log.c */
CAIRN_MUST_CHECK int log_append_own_locked(struct stage *stage, const struct record *rec);
/* Enters a layer as a whole, replacing its entries in the log, and leaves `reserve` bytes free; or
 * enters nothing: -EAGAIN. If the daemon dies during this, part of the layer may be in the log: so
 * only for files that the log does not mention otherwise. */
CAIRN_MUST_CHECK int log_enter_layer_locked(struct stage *stage, struct layer *layer,
                                            size_t reserve);

static inline uint8_t *slab_at(const struct stage *stage, uint32_t slab)
{
    return stage->slab_memory + (size_t)slab * SLAB_STRIDE;
}
