// SPDX-License-Identifier: Apache-2.0
/* Reads content of files from whichever tier has it, and manages which of it is on NVMe. The part
 * for fs/ and above, which include store/store.h. Threads: any. */
#pragma once

#include "remote/remote.h"

/* How far a read may reach. */
enum fetch_reach {
    STORE_REACH_LOCAL,  /* NVMe only */
    STORE_REACH_REMOTE, /* also the remote: may take as long as the remote is retried */
};

/* The answer to a read: an error, or the content, in memory that is valid until the reply function
 * returns. */
struct fetch_answer {
    uint64_t ino;
    /* -ENOENT: there is no such file; -EIO: damage, or the remote did not return it; -ESTALE:
     * another state is shown by now */
    int error;
    size_t length;
    const struct iovec *iov;
    size_t iov_count; /* at most 512 */
};

/* `ino`: of the current state, or of an earlier state that is open (commit/past_views.h). -ESTALE:
 * that state is not open. */
struct fetch_read_request {
    uint64_t ino, offset;
    size_t length;
    bool may_be_short; /* the bytes before damage are returned, instead of -EIO */
    /* NULL, or called first, with the current state of the file; in the calling thread, without
     * locks. */
    void (*looked)(const struct commit_now *now, void *arg);
    void *looked_arg;
    void (*reply)(const struct fetch_answer *answer, void *arg);
    void *arg;
};
/* Reads [offset, offset + length), up to its end, of the file as it is now, staged or durable, and
 * calls `reply` once: before the call returns, if all content is in memory; else in a thread that
 * may wait for NVMe or the remote, possibly before the call returns. Itself does no I/O except by
 * RocksDB. */
void fetch_start_read(struct store *store, const struct fetch_read_request *request);
/* As fetch_start_read(), into `buf`, in this thread: exactly `length` bytes, with zeros past the
 * end. Blocks. */
struct fetch_read {
    uint64_t ino, offset;
    void *buf;
    size_t length;
    enum fetch_reach reach;
};
struct fetch_read_end {
    size_t good; /* bytes that are valid from the start: fewer with an error, or beyond reach */
    /* the rest was not read: it would have to be read from a tier beyond `reach` */
    bool is_beyond_reach;
};
CAIRN_MUST_CHECK int fetch_read(struct store *store, const struct fetch_read *how,
                                struct fetch_read_end *ret);
/* Returns when no read is under way. No caller starts new ones. */
void fetch_end_reads(struct store *store);
/* Maps the zeros that holes are answered with into the page tables, as stage_map_parts(). */
void fetch_map_zeros(void);

/* --- content that is on NVMe because it was requested --- */

struct warm_status {
    bool ended;
    int error;            /* negative: the job could not visit everything; -ECANCELED */
    uint64_t total_bytes; /* stored bytes that are to be fetched, or that could be evicted */
    uint64_t done_bytes;
    uint64_t failed_bytes;   /* the remote did not return them */
    uint64_t not_kept_bytes; /* fetched, but NVMe has no room */
    uint64_t other_bytes;    /* of other nodes' files, which are fetched when they are read */
    uint64_t dropped_bytes;  /* evicted */
    /* bytes that stay: pinned; not in the published remote; in use */
    uint64_t pinned_bytes, unpublished_bytes, busy_bytes;
};

/* Starts a job that fetches all of a file, or of all files below a directory, onto NVMe; or
 * (`evicts`) drops there the chunks that the published remote has. At most a few at once: -EBUSY.
 * -ENOTCONN: there is no remote. */
CAIRN_MUST_CHECK int fetch_warm_start(struct store *store, uint64_t ino, bool evicts,
                                      uint64_t *ret_job);
/* Returns the state of a job; known until another job needs its slot. -ENOENT. */
CAIRN_MUST_CHECK int fetch_warm_status(struct store *store, uint64_t job, bool cancel,
                                       struct warm_status *ret);

/* A pin was set or removed. Any thread. */
void fetch_pins_changed(struct store *store);

/* --- which parts files consist of --- */

/* Returns the root hash over the chunk names of the durable version, and stored bytes of its chunks
 * (each counted once per use). */
CAIRN_MUST_CHECK int fetch_content_root(struct store *store, uint64_t ino, uint8_t ret_hash[32]);
CAIRN_MUST_CHECK int fetch_stored_bytes(struct store *store, uint64_t ino, uint64_t *ret_bytes);

/* One part of a file's durable content. */
struct survey_part {
    bool is_chunk; /* else the content lies inline in the journal and the view */
    uint64_t offset, length;
    uint32_t uses; /* how many of the references are this part's */
    struct chunk_name name;
    uint64_t refs; /* references to the chunk, by all files */
    uint32_t raw_len, stored_len;
    uint8_t encoding;          /* enum chunk_encoding; on NVMe, or else in the remote */
    bool is_local, is_remote;  /* is_local: on NVMe; is_remote: the published remote has it */
    bool is_sound;             /* the remote has it, and could read it at the last attempt */
    struct chunk_entry remote; /* if is_remote: its encoding there, and its references */
};
struct survey_request {
    uint64_t ino;
    size_t max;                                            /* parts in one call, including holes */
    void (*fn)(const struct survey_part *part, void *arg); /* not called for a hole */
    void *arg;
};
/* Calls want->fn for parts of the content from *at on; the file may be of an earlier state.
 * *ret_more: there are more parts, from the new *at on; false also if the durable state has no such
 * file. -ESTALE: the earlier state is not open. */
CAIRN_MUST_CHECK int fetch_survey(struct store *store, const struct survey_request *want,
                                  uint64_t *at, bool *ret_more);
/* Bytes of the file that the remote horizon has passed, but that are not safe in the remote: it
 * lacks them, or they lie in a pack that could not be read. Reads the view only if the remote has
 * such packs or lacks chunks. */
struct fetch_unsafe {
    uint64_t lost_bytes;    /* NVMe does not have them either */
    uint64_t pending_bytes; /* NVMe has them: they are uploaded again */
};
CAIRN_MUST_CHECK int fetch_remote_damaged(struct store *store, uint64_t ino,
                                          struct fetch_unsafe *ret);
/* As view_find_users(). */
CAIRN_MUST_CHECK int fetch_find_users(struct store *store, const struct view_users *want,
                                      uint64_t *at, bool *ret_more);
