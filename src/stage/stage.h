// SPDX-License-Identifier: Apache-2.0
/* The stage: host DRAM that holds what was written and is not yet, or still, on NVMe. It outlives
 * the daemon.
 *
 * Two files on a tmpfs, named by the session: `.ctl` (header, slab table, handle table, log) and
 * `.slabs` (content). A write is a checksummed record in front of its payload, in a slab;
 * everything else that happened is a record in the log. docs/on-disk-format.md, "The stage", has
 * the layout and the crash protocol. What holds at every moment:
 *
 *   1. A record is published after its payload; what a record names is never modified.
 *   2. A slab is reused only after every range in it was superseded, or is durable and in the view.
 *   3. The newest state of every file that is not durable can be rebuilt from log and slabs.
 *   4. Data that a pinned layer holds stays until stage_layer_done().
 *
 * Content is layered per file, newest first: draft (open for change) | sealed (a version that waits
 * for writeback) | pinned (the version that the current target writes) | clean (durable, still
 * here) | the view. A layer says which ranges it changes and how much (`keep`) of what lies below
 * remains.
 *
 * Nobody outside sees a slab but as iovecs that stay valid while pinned. Locks: one, LOCK_STAGE,
 * never held over I/O. All calls are short and do not block unless they say so. Offsets and lengths
 * are bytes. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "format/chunk.h"
#include "format/record.h"

#define SLAB_PAYLOAD (1024u * 1024) /* content bytes of a slab */
#define SLAB_PAYLOAD_OFFSET                                                                        \
    4096u /* where a payload that was received straight into a slab begins */
#define SLAB_STRIDE (SLAB_PAYLOAD + SLAB_PAYLOAD_OFFSET)
#define STAGE_STEAL_MIN (256u * 1024) /* smaller payloads are copied into shared slabs */
#define STAGE_SIZE_MIN (16u * 1024 * 1024)

struct stage;

struct stage_config {
    const char *dir;     /* on a tmpfs */
    uint8_t name[16];    /* of its files: random for a new one */
    uint8_t store[16];   /* store id */
    uint64_t size_bytes; /* slabs and their share of the control file */
    uint64_t epoch;      /* of this session */
    bool read_only;      /* nobody will write: no memory is made ready ahead of need */
};

/* The version of the format in which its files are written. Any thread. */
unsigned stage_format_version(void);

/* The largest size of a stage whose files take at most `bytes` of their directory; 0: none is so
 * small. */
uint64_t stage_size_within(uint64_t bytes);

/* Makes a new, empty stage, locked. -ENOSPC, -EACCES, -EEXIST... */
CAIRN_MUST_CHECK int stage_create(const struct stage_config *config, struct stage **ret_stage);

/* Opens and locks what a dead daemon left; may wait for a second. Its size is that of the files.
 * -ENOENT: none; -ESTALE: of another boot or store; -EBUSY: in use; -EACCES: it is not ours alone;
 * -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT. Nothing is changed before stage_own(). */
CAIRN_MUST_CHECK int stage_open(const struct stage_config *config, struct stage **ret_stage);

/* Notes in it whose it is: the path of the store and which directory that is, and this process. */
void stage_own(struct stage *stage, const char *owner);

/* Notes that a session names it, durably: it is not swept any more. */
void stage_note_named(struct stage *stage);

/* Unmaps and closes; the lock is free. `remove` deletes the files: only when everything in it is
 * durable. */
void stage_close(struct stage *stage, bool remove);

/* Have its files lost their names? Then it does not outlive this process. */
bool stage_is_unlinked(const struct stage *stage);

/* --- where stages are (place.c) --------------------------------------------------------------- */

/* The path of a stage's control file. Caller frees. */
char *stage_ctl_path(const char *dir, const uint8_t name[16]);
/* The directory (caller frees) and the name in such a path. -EINVAL: it is none. */
CAIRN_MUST_CHECK int stage_parse_path(const char *path, char **ret_dir, uint8_t ret_name[16]);

/* The directory for stages of this user (caller frees): `dir` where nobody else writes, else a
 * directory in it with mode 0700, which is made if there is none. Where somebody else has its name,
 * it says so in the log and takes another. */
CAIRN_MUST_CHECK int stage_make_directory(const char *dir, char **ret_directory);
/* The name that such a directory in `dir` has where nobody else took it. Caller frees. */
char *stage_own_directory(const char *dir);
/* Removes a directory that was made by it, if it is empty by now. */
void stage_leave_directory(const char *directory);

/* A look at a control file, without opening it for use. */
struct stage_look {
    uint32_t uid; /* whose the file is, with -EACCES too */
    uint8_t store[16];
    bool in_use; /* a process holds the lock: `pid`, 0: not known */
    pid_t pid;
    char *owner; /* path of its store; NULL or empty: not known. stage_look_done() frees it. */
    uint64_t owner_device, owner_ino; /* of the store's directory; 0: not known */
};
/* The directory's device and inode, as long as the machine runs: 0 for both where its filesystem
 * may give it others. */
void stage_directory_identity(const char *path, uint64_t *ret_device, uint64_t *ret_ino);
/* -ENOENT, -EACCES: it is another user's, or open to others; -EUCLEAN: it is no stage. */
CAIRN_MUST_CHECK int stage_look(const char *dir, const uint8_t name[16], struct stage_look *ret);
void stage_look_done(struct stage_look *look);
/* Calls `fn` with the name of each stage in `dir`. */
void stage_each(const char *dir, void (*fn)(const uint8_t name[16], void *arg), void *arg);

/* Removes stages in `dir` that no session ever named, which a daemon left that died, or failed,
 * while it began: of the store `owner` with that id, and those that were not even made. Others of
 * it, which are not in use, are told in the log: nothing names them any more. */
void stage_sweep(const char *dir, const uint8_t store[16], const char *owner);

/* Deletes the files of a stage, if any: foreign, stale, or drained. */
void stage_remove_files(const char *dir, const uint8_t name[16]);
/* Memory that they take, if there are any. */
uint64_t stage_files_bytes(const char *dir, const uint8_t name[16]);
/* Of a stage that nobody has open: how many bytes of writes it may hold that are nowhere else; what
 * is on NVMe and kept for reading is among them. 0: none, or it cannot be read. */
uint64_t stage_held_bytes(const char *dir, const uint8_t name[16]);
/* Tells in the log of each .slabs in `dir` that has lost its .ctl. */
void stage_report_parted(const char *dir);
/* Are there any? */
bool stage_is_left(const char *dir, const uint8_t name[16]);

/* The kernel's id of this boot, then zeros. */
CAIRN_MUST_CHECK int stage_boot_id(char id[40]);

/* --- epochs ----------------------------------------------------------------------------------- */

/* Epochs a left-over stage knows of: its own, and the one that a recovery had begun (0: none). */
void stage_epochs(struct stage *stage, uint64_t *ret_epoch, uint64_t *ret_next_epoch);
/* Notes durably (against our own death) that a recovery to `epoch` has begun. */
void stage_begin_recovery(struct stage *stage, uint64_t epoch);

/* Notes that operations up to `seq` are durable, so that the stage may drop its copy of them. A
 * journal that lacks them is not the one that the stage goes on from. */
void stage_note_durable(struct stage *stage, uint64_t seq);
uint64_t stage_durable_seq(struct stage *stage);

/* Sequence numbers of everything that happens, from one counter: the next one. */
uint64_t stage_next_seq(struct stage *stage);
uint64_t stage_last_seq(struct stage *stage);

/* --- slabs for receiving ---------------------------------------------------------------------- */

#define SLAB_NONE UINT32_MAX

/* A slab to receive requests into, owned by the caller. Waits while there is none at all. SLAB_NONE
 * when the stage is stopping, or (within a second) when *ended; NULL: there is no such flag. */
uint32_t stage_slab_take(struct stage *stage, const _Atomic bool *ended);
/* How many slabs receivers may hold at most, and requests that wait for room as many: what is left
 * is enough for content to pass. */
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
    bool may_open; /* opens a draft if there is none: needs the next two, and that nobody seals
                      meanwhile */
    uint64_t below_size; /* size of the file below the draft */
    uint64_t version;    /* last sealed version */
    int64_t time;
};

/* The draft of a new file, empty: it is sealed as others are, also if nobody writes. Not in the
 * log: a recovery seals what is nascent. */
void stage_open_draft(struct stage *stage, uint64_t ino);

/* Stages a write in the file's draft. -EAGAIN: no room now, nothing happened, wait for on_room.
 * -ESTALE: there is no draft, and none may be opened. Requests that continue each other are taken
 * for one application write: a request that is not full ends it. */
CAIRN_MUST_CHECK int stage_write(struct stage *stage, const struct stage_write *w);

/* Discards [offset, offset + length) of the content (length ~0: to the end) and sets the size.
 * Opens a draft. */
CAIRN_MUST_CHECK int stage_cut(struct stage *stage, uint64_t ino, uint64_t offset, uint64_t length,
                               uint64_t new_size, uint64_t below_size, uint64_t version,
                               int64_t time);

/* Part of a stored chunk that a range of the file consists of. */
struct stage_chunk_range {
    uint64_t offset, length;
    struct chunk_name name;
    uint32_t chunk_offset;
    uint64_t pack;
};

/* A range of the draft becomes a reference to a stored chunk, whose pack the caller has pinned.
 * Opens a draft. -EAGAIN: no room in the log. */
struct stage_chunk_range;
CAIRN_MUST_CHECK int stage_put_chunk(struct stage *stage, uint64_t ino,
                                     const struct stage_chunk_range *chunk, uint64_t below_size,
                                     uint64_t version, int64_t time);

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
size_t stage_resolve(struct stage *stage, uint64_t ino, uint64_t offset, uint64_t length,
                     struct stage_part *parts, size_t max, struct stage_file_state *ret_state);
void stage_unpin_parts(struct stage *stage, const struct stage_part *parts, size_t count);
/* Before the kernel copies an answer from memory parts, which are pinned: a copy that needs a page
 * fault would fail with EIO if this process were killed meanwhile. At most 0.1 ms for each slab of
 * a daemon before, once. */
void stage_map_parts(struct stage *stage, const struct stage_part *parts, size_t count);

/* --- versions --------------------------------------------------------------------------------- */

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

/* The first run of consecutive memory parts of the draft that has `min_bytes` or more; at most
 * `max_bytes` and `max` parts of it; pinned. *ret_more: the draft goes on directly after it. */
size_t stage_draft_run(struct stage *stage, uint64_t ino, uint64_t min_bytes, uint64_t max_bytes,
                       struct stage_part *parts, size_t max, bool *ret_more);

/* [offset, offset + length) as it was in `parts` now lies in a durable chunk: what is still the
 * same in memory is exchanged for a reference to it, and its room freed. */
void stage_piece_done(struct stage *stage, uint64_t ino, const struct stage_part *parts,
                      size_t count, const struct stage_chunk_range *chunk);

/* How many ranges refer to chunks of a pack that the view does not know or may drop. */
bool stage_uses_pack(struct stage *stage, uint64_t pack);

/* Drafts to seal in the background: idle for `idle_ns`, or older than `age_ns` and smaller than
 * `small_bytes`; in a crowded stage those with most pieces. */
size_t stage_ripe_drafts(struct stage *stage, int64_t now, int64_t idle_ns, int64_t age_ns,
                         uint64_t small_bytes, uint64_t *inos, size_t max);
/* Inodes with a draft: at most `max`; returns how many there are. */
size_t stage_drafts(struct stage *stage, uint64_t *inos, size_t max);

/* --- log -------------------------------------------------------------------------------------- */

/* Appends a record. -EAGAIN: the log is full, compact it. What the stage appends itself (cuts,
 * pieces) leaves STAGE_LOG_MARGIN free, so that records of the history still fit. */
#define STAGE_LOG_MARGIN (512u * 1024)
CAIRN_MUST_CHECK int stage_log_append(struct stage *stage, const struct record *rec);
/* Encoded records, of which a recovery finds all or none; `first` is the first of them. -EAGAIN as
 * above. */
CAIRN_MUST_CHECK int stage_log_append_group(struct stage *stage, const struct record *first,
                                            const struct iovec *encoded, size_t count);
/* Bytes that still fit. */
uint64_t stage_log_room(struct stage *stage);
/* True when the log should be compacted soon. */
bool stage_log_wants_compaction(struct stage *stage);
/* True when what is alive in it takes more than half of it, or compaction is late, or it soon takes
 * no draft more. */
bool stage_log_is_crowded(struct stage *stage);
/* Does it take one draft more, and then the SEAL of each that there is? A draft leaves the log only
 * by its seal: if seals found no room, nothing would ever make any. */
bool stage_log_takes_draft(struct stage *stage);

/* Rewrites the log from what is alive: `records` (encoded: the operations that are not durable, and
 * the files without a version), then the stage's own layers; the new log takes effect at once. The
 * caller keeps operations from being appended meanwhile. `with_orphans`: also the layers of files
 * without a name, which only a successor that adopts the mount needs. -EAGAIN: it does not fit; the
 * old log stays. */
CAIRN_MUST_CHECK int stage_log_compact(struct stage *stage, const void *records, size_t len,
                                       bool with_orphans);

/* --- handles: open files, known to whoever adopts the mount ----------------------------------- */

/* -ENFILE: the table is full. */
CAIRN_MUST_CHECK int stage_handle_open(struct stage *stage, uint64_t ino, uint32_t flags,
                                       uint64_t *ret_handle);
uint64_t stage_handle_close(struct stage *stage, uint64_t handle,
                            uint32_t *ret_flags); /* the inode */
uint32_t stage_handle_flags(struct stage *stage, uint64_t handle);
uint64_t stage_handle_inode(struct stage *stage, uint64_t handle);
/* Notes that one of its descriptors was closed; HANDLE_FLUSHED is among its flags from then on.
 * False: that was noted before. */
#define HANDLE_FLUSHED (1u << 31)
bool stage_handle_flushed(struct stage *stage, uint64_t handle);
/* Files with drafts that were closed, and whose seals wait: a successor seals them at once. */
#define STAGE_DUE_MAX 64u
void stage_set_due(struct stage *stage, const uint64_t *inos, size_t count);
bool stage_is_due(struct stage *stage, uint64_t ino);
/* The handle is open, and what it was for is not here any more. */
#define STAGE_INODE_LOST UINT64_MAX
void stage_handle_lose(struct stage *stage, uint64_t handle);
/* The first open handle from *cursor (at first 0) on, which moves behind it. False:
 * there is none. */
bool stage_handle_next(struct stage *stage, uint64_t *cursor, uint64_t *ret_handle,
                       uint64_t *ret_ino, uint32_t *ret_flags);

/* --- recovery --------------------------------------------------------------------------------- */

/* Calls `fn` for every record of the log that is whole, in order. */
CAIRN_MUST_CHECK int stage_replay_log(struct stage *stage,
                                      int (*fn)(const struct record *rec, void *arg), void *arg);

/* Rebuilds the layers from log and slabs. Called once, after the log was replayed into the
 * namespace. durable(): the version of `ino` that the view has, and its size; UINT64_MAX: no such
 * inode, drop what is staged of it. pack_of(): the pack in which a chunk of a piece lies; 0:
 * unknown, which is damage. */
struct stage_rebuild {
    uint64_t (*durable)(uint64_t ino, uint64_t *ret_size, void *arg);
    uint64_t (*pack_of)(const struct chunk_name *name, void *arg);
    void *arg;
};
CAIRN_MUST_CHECK int stage_rebuild_layers(struct stage *stage, const struct stage_rebuild *how);

/* The recovered stage goes on: numbers from `epoch` on. `adopting`: the mount goes on, too, and
 * with it handles and requests; else nobody knows them any more. Then write the log anew with
 * stage_log_compact(), make the epoch durable in the journal, and note it with
 * stage_commit_epoch(): a stage of an older version becomes one of today with that. */
CAIRN_MUST_CHECK int stage_adopt(struct stage *stage, uint64_t epoch, bool adopting);
CAIRN_MUST_CHECK int stage_commit_epoch(struct stage *stage, uint64_t epoch);

/* --- room ------------------------------------------------------------------------------------- */

struct stage_usage {
    uint64_t total_bytes; /* of slabs */
    uint64_t dirty_bytes; /* not durable */
    uint64_t clean_bytes; /* durable, given up when room is needed */
    uint64_t free_bytes;
    uint64_t draft_bytes; /* part of dirty: not sealed */
    uint64_t drafts;
    uint64_t ready_bytes;         /* free and faulted in */
    uint64_t control_bytes;       /* control file */
    uint64_t heap_bytes_max;      /* bound of what the stage allocates besides */
    uint64_t handles;             /* open files */
    uint64_t dropped_bytes_total; /* written, and dead before any cut needed it */
};
struct stage_usage stage_usage(struct stage *stage);
/* Its dirty_bytes alone, without a lock: of a moment ago, where others write. */
uint64_t stage_dirty_bytes(struct stage *stage);

/* `room` is called when room that a writer may wait for came free: from any thread, perhaps under
 * the caller's locks (not the stage's), so it may take leaf locks only. Set once, before use. */
void stage_on_room(struct stage *stage, void (*room)(void *arg), void *arg);

/* Ends waits in stage_slab_take() and the background thread. */
void stage_stop(struct stage *stage);
