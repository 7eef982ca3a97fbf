// SPDX-License-Identifier: Apache-2.0
/* Content of files, from whatever tier has it, and which of it is on NVMe. The part of it for fs/
 * and above, which include store/store.h. Threads: any. */
#pragma once

#include "remote/remote.h"

/* The reach of a read. */
enum fetch_reach {
    STORE_REACH_LOCAL,  /* NVMe */
    STORE_REACH_REMOTE, /* and the remote: may take as long as that is patient */
};

/* The answer to a read: an error, or its content, in memory that is valid until the reply function
 * returns. */
struct fetch_answer {
    uint64_t ino;
    int error; /* -ENOENT: there is no such file; -EIO: damage, or the remote did not give it;
                  -ESTALE: another state is shown by now */
    size_t length;
    const struct iovec *iov;
    size_t iov_count; /* at most 512 */
};

/* `ino`: also of an earlier state that is open (commit/past_views.h). -ESTALE: it is not. */
struct fetch_read_request {
    uint64_t ino, offset;
    size_t length;
    bool may_be_short; /* what comes before damage is given, instead of -EIO */
    /* NULL, or called first, with what the file is now; in the calling thread, and without
     * locks. */
    void (*looked)(const struct commit_now *now, void *arg);
    void *looked_arg;
    void (*reply)(const struct fetch_answer *answer, void *arg);
    void *arg;
};
/* Reads what there is of [offset, offset + length) of the file as it is now, staged or durable, and
 * calls `reply` once: before it returns, if all is in memory; else in a thread that may wait for
 * NVMe or the remote, possibly before it returns. Does no I/O itself but RocksDB's. */
void fetch_start_read(struct store *store, const struct fetch_read_request *request);
/* The same into `buf`, in this thread: exactly `length` bytes, with zeros past the end. Blocks. */
struct fetch_read {
    uint64_t ino, offset;
    void *buf;
    size_t length;
    enum fetch_reach reach;
};
struct fetch_read_end {
    size_t good; /* bytes that are good from the start: fewer with an error, or beyond reach */
    bool is_beyond_reach; /* the rest was not read: it would have to come from further away */
};
CAIRN_MUST_CHECK int fetch_read(struct store *store, const struct fetch_read *how,
                                struct fetch_read_end *ret);
/* Returns when no read is under way. No caller starts new ones. */
void fetch_end_reads(struct store *store);
/* The zeros with which holes are answered: into the page tables, as stage_map_parts(). */
void fetch_map_zeros(void);

/* --- what is on NVMe, because it was asked for ------------------------------------------------ */

struct warm_status {
    bool ended;
    int error;            /* negative: it could not look at everything; -ECANCELED */
    uint64_t total_bytes; /* stored; to be fetched, or that could leave */
    uint64_t done_bytes;
    uint64_t failed_bytes;   /* the remote did not give them */
    uint64_t not_kept_bytes; /* fetched, but NVMe has no room */
    uint64_t other_bytes;    /* of other nodes' files, which are fetched when they are read */
    uint64_t dropped_bytes;  /* evicted */
    /* that stay: pinned; not in the published remote; in use */
    uint64_t pinned_bytes, unpublished_bytes, busy_bytes;
};

/* Fetches all of a file, or of all below a directory, onto NVMe; or (`evicts`) drops there what the
 * published remote has. At most a few at once: -EBUSY. -ENOTCONN: there is no remote. */
CAIRN_MUST_CHECK int fetch_warm_start(struct store *store, uint64_t ino, bool evicts,
                                      uint64_t *ret_job);
/* The state of a job; known until others need its place. -ENOENT. */
CAIRN_MUST_CHECK int fetch_warm_status(struct store *store, uint64_t job, bool cancel,
                                       struct warm_status *ret);

/* Something was pinned, or no longer is. Any thread. */
void fetch_pins_changed(struct store *store);

/* --- what files consist of -------------------------------------------------------------------- */

/* Root hash over the chunk names of the durable version, and stored bytes of its chunks (each
 * counted once per use). */
CAIRN_MUST_CHECK int fetch_content_root(struct store *store, uint64_t ino, uint8_t ret_hash[32]);
CAIRN_MUST_CHECK int fetch_stored_bytes(struct store *store, uint64_t ino, uint64_t *ret_bytes);

/* One part of a file's durable content. */
struct survey_part {
    bool is_chunk; /* else the content lies inline in the journal and the view */
    uint64_t offset, length;
    uint32_t uses; /* how many of the references are this part's */
    struct chunk_name name;
    uint64_t refs; /* to the chunk, of all files */
    uint32_t raw_len, stored_len;
    uint8_t encoding;          /* enum chunk_encoding; as it is on NVMe, or else in the remote */
    bool is_local, is_remote;  /* it is on NVMe; the published remote has it */
    bool is_sound;             /* it has, and could read it when it was asked last */
    struct chunk_entry remote; /* if it has: how, and what that refers to */
};
struct survey_request {
    uint64_t ino;
    size_t max;                                            /* parts in one call, holes counted */
    void (*fn)(const struct survey_part *part, void *arg); /* of a hole it is not called */
    void *arg;
};
/* Calls want->fn for parts of the content from *at on; the file may be of an earlier state.
 * *ret_more: there is more, from the new *at on; not so, too, if there is no such file in the
 * durable state. -ESTALE: the earlier state is not open. */
CAIRN_MUST_CHECK int fetch_survey(struct store *store, const struct survey_request *want,
                                  uint64_t *at, bool *ret_more);
/* Bytes of the file that the remote horizon has passed, and that the remote does not have safely:
 * it lacks them, or they lie in a pack that could not be read. Reads the view only where the remote
 * has such packs or lacks chunks. */
struct fetch_unsafe {
    uint64_t lost_bytes;    /* NVMe has not got them either */
    uint64_t pending_bytes; /* it has: they are uploaded again */
};
CAIRN_MUST_CHECK int fetch_remote_damaged(struct store *store, uint64_t ino,
                                          struct fetch_unsafe *ret);
/* As view_find_users(). */
CAIRN_MUST_CHECK int fetch_find_users(struct store *store, const struct view_users *want,
                                      uint64_t *at, bool *ret_more);
