// SPDX-License-Identifier: Apache-2.0
/* Content of files, from whatever tier has it, and which of it is on NVMe. The part of it for fs/ and above, who include store/store.h.
 * Threads: any. */
#pragma once

#include "remote/remote.h"

/* How far a read may go. */
enum store_reach {
    STORE_REACH_NEAR, /* NVMe; -EREMOTE: some of it would have to come from the remote */
    STORE_REACH_FAR,  /* and the remote: may take as long as that is patient */
};

/* Reads durable content of the newest version into `buf`: exactly `length` bytes (zeros past the end or in holes).
 * *ret_good: bytes that are good from the start, if the result is an error. -EIO: damage, or the remote did not give it. -ESTALE:
 * another state is shown by now (store_turn()). Blocks. */
CAIRN_MUST_CHECK int store_read_below(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length,
                                      enum store_reach reach, size_t *ret_good);
/* Part of a chunk that is known by name. The same. */
CAIRN_MUST_CHECK int store_read_chunk(struct store *store, uint64_t ino, const struct chunk_name *name, uint64_t offset,
                                      void *buf, size_t length, enum store_reach reach);

/* Content as it is now, staged or durable. The same. */
CAIRN_MUST_CHECK int store_read(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length, enum store_reach reach,
                                size_t *ret_good);

/* Memory of the store that holds what was asked for, until store_loan_done(). */
#define STORE_LOANS 4u
struct pull_chunk;
struct store_loan {
    size_t count;
    struct iovec iov[STORE_LOANS];
    struct pull_chunk *chunk[STORE_LOANS];
};
/* Durable content that came from the remote just now, without a copy: 0, and *ret is the caller's. -EAGAIN: not all of it lies in
 * memory; -EINPROGRESS: what is missing is on its way, and `job` is called when it has come or failed, by a thread that may block,
 * possibly before this returns. Does no I/O but RocksDB's. */
CAIRN_MUST_CHECK int store_lend(struct store *store, uint64_t ino, uint64_t offset, size_t length, void (*job)(void *arg),
                                void *arg, struct store_loan *ret);
void store_loan_done(struct store *store, struct store_loan *loan);

/* Runs `job` on a thread that may block on NVMe, or one that may block on the remote. */
void store_submit_read(struct store *store, enum store_reach reach, void (*job)(void *arg), void *arg);
/* Returns when none of them, nor of those of store_lend(), runs or waits any more. Nobody submits new ones. */
void store_end_reads(struct store *store);

/* --- what is on NVMe, because somebody said so -------------------------------------------------------------------------- */

struct warm_status {
    bool ended;
    int error;               /* negative: it could not look at everything; -ECANCELED */
    uint64_t total_bytes;    /* stored; to be fetched, or that could leave */
    uint64_t done_bytes;
    uint64_t failed_bytes;   /* the remote did not give them */
    uint64_t not_kept_bytes; /* fetched, but NVMe has no room */
    uint64_t dropped_bytes;  /* evicted */
    uint64_t pinned_bytes, unpublished_bytes, busy_bytes; /* that stay: pinned; not in the published remote; in use */
};

/* Fetches all of a file, or of all below a directory, onto NVMe; or (`evicts`) drops there what the published remote has. At most a
 * few at once: -EBUSY. -ENOTCONN: there is no remote. */
CAIRN_MUST_CHECK int store_warm_start(struct store *store, uint64_t ino, bool evicts, uint64_t *ret_job);
/* How it goes; known until others need its place. -ENOENT. */
CAIRN_MUST_CHECK int store_warm_status(struct store *store, uint64_t job, bool cancel, struct warm_status *ret);

/* Something was pinned, or no longer is. Any thread. */
void store_pins_changed(struct store *store);

/* --- what files consist of -------------------------------------------------------------------------------------------- */

/* Root hash over the chunk names of the durable version, and stored bytes of its chunks (each counted once per use). */
CAIRN_MUST_CHECK int store_content_root(struct store *store, uint64_t ino, uint8_t ret_hash[32]);
CAIRN_MUST_CHECK int store_stored_bytes(struct store *store, uint64_t ino, uint64_t *ret_bytes);

/* What a part of a file's durable content is. */
struct survey_part {
    bool is_chunk; /* else the content lies inline in the journal and the view */
    uint64_t length;
    uint32_t uses; /* how many of the references are this part's */
    struct chunk_name name;
    uint64_t refs; /* to the chunk, of all files */
    uint32_t raw_len, stored_len;
    uint8_t encoding; /* enum chunk_encoding */
    bool near, far; /* it is on NVMe; the published remote has it */
};
/* Calls `fn` for parts of the content from *at on, holes left out: at most `max`, holes counted. 1: there is more, from the new *at
 * on; 0: that was the end, or there is no such file in the durable state. */
CAIRN_MUST_CHECK int store_survey(struct store *store, uint64_t ino, uint64_t *at, size_t max,
                                  void (*fn)(const struct survey_part *part, void *arg), void *arg);
