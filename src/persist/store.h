/* A store: everything below the file semantics. It keeps the order of operations, carries them down, and brings them
 * back.
 *
 *   store_open()     recovers what is durable, and what the stage still has
 *   store_commit()   an operation becomes part of the history (acknowledged, in the stage)
 *   store_seal()     a file's draft becomes a version, part of the history
 *   background       targets are chosen, written to packs and a journal batch; the horizon moves; the view follows
 *   store_wait()     tells when the horizon has reached an operation
 *
 * Threads: any, unless said otherwise. Errors are negative errno; nothing acknowledged is lost by any of them. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "format/record.h"
#include "meta/ns.h"
#include "stage/stage.h"

struct store;

struct store_options {
    const char *path;          /* the store's folder; exists, empty or a store */
    const char *stage_dir;
    uint64_t stage_bytes;
    uint64_t cap_bytes;        /* 0: what the disk has */
    unsigned writeback_threads;
    uint64_t writeback_limit;  /* bytes/s, 0: none */
    int64_t writeback_delay_ns;
};

/* Opens or makes the store and recovers. On failure *ret_text says in one line what is wrong and what to do (caller
 * frees). The caller holds STORE/lock. */
CAIRN_MUST_CHECK int store_open(const struct store_options *options, struct store **ret, char **ret_text);

/* Starts the background. `room` is called when a request that got -EAGAIN may succeed: in any thread,
 * perhaps under locks, so it may take leaf locks only. */
CAIRN_MUST_CHECK int store_start(struct store *store, void (*room)(void *arg), void *arg);

/* Stops the background and closes. What is not durable stays in the stage; if all is, the stage is removed. */
void store_close(struct store *store);

struct ns *store_ns(struct store *store);
struct stage *store_stage(struct store *store);
uint64_t store_new_ino(struct store *store);

/* --- history ------------------------------------------------------------------------------------------------------- */

/* Performs `rec` (without seq and time): in the log, in the overlay, in the history. Inodes that it names are held by
 * the caller. cookie 0 becomes its sequence number. On a nascent file it happens but is not history. Content of an
 * inode that loses its last name is dropped, or kept with RECORD_ORPHAN.
 * -EAGAIN: no room in the log now, nothing happened. -ENOSPC: the store is full. */
CAIRN_MUST_CHECK int store_commit(struct store *store, struct record *rec);

/* Seals the draft of `ino`, if any, or a nascent file. Does nothing for orphans. -EAGAIN as above. */
CAIRN_MUST_CHECK int store_seal(struct store *store, uint64_t ino);

/* Seals every draft below `dir` (and of `dir` itself if it is a file). */
CAIRN_MUST_CHECK int store_seal_below(struct store *store, uint64_t dir);

/* Seals every draft and every nascent file: nobody will write any more. */
CAIRN_MUST_CHECK int store_seal_all(struct store *store);

/* Sequence number of the last operation of the history. */
uint64_t store_newest(struct store *store);

/* --- horizon ------------------------------------------------------------------------------------------------------- */

uint64_t store_horizon(struct store *store);

/* Calls `fn` once: with 0 when the horizon is at `seq` or later (at once, if it is), with -ESHUTDOWN when the store
 * stops. While somebody waits, limits and low priority are lifted. *ret_ticket names the wait, for store_unwait(): true
 * if `fn` will not be called any more. */
void store_wait(struct store *store, uint64_t seq, void (*fn)(int result, void *arg), void *arg, uint64_t *ret_ticket);
bool store_unwait(struct store *store, uint64_t ticket);

/* Somebody outside waits too, until `until_ns` (monotonic). */
void store_urge(struct store *store, int64_t until_ns);

/* --- content ------------------------------------------------------------------------------------------------------- */

/* May `bytes` more be staged? Room on NVMe is reserved before a byte is acknowledged. -EAGAIN: wait for room;
 * -ENOSPC: there is none and none will come. */
CAIRN_MUST_CHECK int store_admit(struct store *store, uint64_t bytes);

/* Stages a write (see stage_write(); what concerns opening a draft is filled in here). -EAGAIN. */
CAIRN_MUST_CHECK int store_write(struct store *store, struct stage_write *w);
/* Discards content and sets the size, see stage_cut(). -EAGAIN. */
CAIRN_MUST_CHECK int store_cut(struct store *store, uint64_t ino, uint64_t offset, uint64_t length, uint64_t new_size);
/* Refers to `length` bytes of a stored chunk from `offset` of the file on. -EAGAIN; -ENOENT: it is stored no longer. */
CAIRN_MUST_CHECK int store_put_chunk(struct store *store, uint64_t ino, uint64_t offset, uint64_t length,
                                     const struct chunk_name *name, uint32_t chunk_offset);
/* What durable content consists of, in order: see view_extents(). */
CAIRN_MUST_CHECK int store_extents_below(struct store *store, uint64_t ino, uint64_t offset, uint64_t length,
                                         int (*fn)(const struct view_extent *part, void *arg), void *arg);

/* Marks that requests wait for room, which makes writeback hurry. */
void store_note_waiting(struct store *store, unsigned waiting);

/* Reads durable content of the newest version into `buf`: exactly `length` bytes (zeros past the end or in holes).
 * *ret_good: bytes that are good from the start, if the result is an error. -EIO: damage. Blocks on NVMe. */
CAIRN_MUST_CHECK int store_read_below(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length,
                                      size_t *ret_good);
/* Part of a chunk that is known by name. Blocks on NVMe. */
CAIRN_MUST_CHECK int store_read_chunk(struct store *store, uint64_t ino, const struct chunk_name *name, uint64_t offset,
                                      void *buf, size_t length);

/* Runs `job` on a thread that may block on NVMe. */
void store_submit_read(struct store *store, void (*job)(void *arg), void *arg);

/* --- looking at it --------------------------------------------------------------------------------------------------- */

struct store_status {
    uint8_t store_id[16];
    uint64_t epoch;
    uint64_t cap_bytes, used_bytes, reserved_bytes, available_bytes;
    uint64_t horizon_seq, newest_seq;
    uint64_t behind_bytes, behind_files;
    double seconds_behind; /* age of the oldest operation that is not durable */
    uint64_t written_bytes_total, dedup_bytes_total;
    uint64_t errors;
    char last_error[256];
    int64_t last_error_ns; /* monotonic */
    struct view_state view;
    uint64_t memory_bound_bytes; /* all of it, the stage included */
    char memory_formula[256];
};
void store_status(struct store *store, struct store_status *ret);

/* Calls `fn` for each damage seen since mount (bounded). */
void store_damage(struct store *store, void (*fn)(const char *path, const char *what, void *arg), void *arg);

/* Bytes that are missing before the horizon can be at `seq`. */
uint64_t store_missing_bytes(struct store *store, uint64_t seq);

/* The level of an inode's last change: horizon reached (nvme) or not (stage). */
bool store_is_durable(struct store *store, uint64_t ino);

/* Root hash over the chunk names of the durable version, and stored bytes of its chunks (each counted once per use). */
CAIRN_MUST_CHECK int store_content_root(struct store *store, uint64_t ino, uint8_t ret_hash[32]);
CAIRN_MUST_CHECK int store_stored_bytes(struct store *store, uint64_t ino, uint64_t *ret_bytes);

/* Offline: verifies everything. Returns the number of problems or -errno. */
CAIRN_MUST_CHECK int store_fsck(const char *path, void (*report)(const char *line, bool is_problem, void *arg),
                                void *arg);
/* Offline: what can be told without recovering. */
CAIRN_MUST_CHECK int store_peek(const char *path, struct store_status *ret);
