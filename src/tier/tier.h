// SPDX-License-Identifier: Apache-2.0
/* A tier: a place that stores packs, journal segments and other objects. One table of operations;
 * objects are named by short paths ("packs/00.../ID", "journal/N"). A tier knows nothing of files.
 *
 * Objects are immutable once put, except logs (append). All calls block; any thread; different
 * objects in parallel. Names come from our own code only: hex digits, letters, '/', '.', '-' and
 * '_'; no part of a name begins with '.'.
 *
 * Errors are -errno of the medium; -ENOENT no such object; -EEXIST (put_new); -EUCLEAN the object
 * differs from what was stored (length, checksum), or can certainly not be read. Of remotes also:
 * -EACCES refused, or no credentials; -EKEYEXPIRED credentials have expired; -EKEYREJECTED a
 * certificate that is not trusted; -ENODEV no such bucket, or it is in another region; -EPROTO the
 * server does not speak S3; -EOPNOTSUPP the server cannot do it; -EFBIG more than 5 GiB; -ECANCELED
 * interrupted; and those of tier_error_is_transient(), after the patience. */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "base/base.h"
#include "tier/source.h"

/* Room is reserved in units of this: a whole pack as writeback writes it. */
#define TIER_RESERVE_UNIT (28 * MIB)

struct tier;

struct tier_space {
    uint64_t total_bytes; /* of the medium */
    uint64_t free_bytes;  /* that we may still use, besides the held bytes */
    uint64_t held_bytes;  /* allocated ahead: see reserve() */
};

struct tier_object {
    const char *name; /* whole: "packs/..." */
    uint64_t len;
    /* by the medium's clock, ns since 1970; 0 if the medium does not record it */
    int64_t modified_ns;
};

enum tier_request { TIER_PUT, TIER_GET, TIER_LIST, TIER_HEAD, TIER_DELETE, TIER_REQUESTS };

struct tier_traffic {
    uint64_t requests, retries, failures;
    uint64_t by_kind[TIER_REQUESTS];     /* of the requests; some belong to no kind */
    uint64_t sent_bytes, received_bytes; /* of objects' content */
};

/* Identifies the filesystem of a directory. The identity stays the same while the filesystem does,
 * wherever it is mounted. */
struct tier_place {
    char identity[256]; /* for comparison; no control characters */
    char shown[256];    /* for a person: type and source */
    bool is_of_root;    /* it is the filesystem of / */
    /* Its client remembers what a directory lists: others may have created objects meanwhile. */
    bool lists_may_lag;
};

/* At some instant between `asked` and `answered` (CLOCK_BOOTTIME, ns) the medium's clock showed a
 * time between `least` and `most` (ns since 1970). */
struct tier_reading {
    int64_t asked, answered;
    int64_t least, most;
    /* True: all users of the medium read the same clock. False: each machine may read its own. */
    bool is_shared;
};

struct tier_ops {
    const char *name;
    bool is_sorted; /* list() */
    void (*close)(struct tier *tier);

    /* Stores an object; the content is durable on return, the name after sync(). `buf` is aligned
     * to 4096 and readable up to the next multiple of 4096 after len. If the name is taken: -EEXIST
     * on the local tier; on remotes the new object replaces the old one atomically, so that a put
     * can be retried. */
    int (*put)(struct tier *tier, const char *object, const void *buf, size_t len);

    /* As put(), but -EEXIST if the name is taken. On a remote the name may have been taken by this
     * very call: its first attempt succeeded, the answer was lost, and the second attempt found the
     * object. A caller that must know reads the object and checks who wrote it. After any other
     * error too the object may exist, or appear a little later. */
    int (*put_new)(struct tier *tier, const char *object, const void *buf, size_t len);

    /* Reads exactly len bytes at offset; -EUCLEAN if the object ends earlier. */
    int (*get_range)(struct tier *tier, const char *object, uint64_t offset, void *buf, size_t len);

    /* Length of an object; -ENOENT: no such object. */
    int (*stat)(struct tier *tier, const char *object, uint64_t *ret_len);

    /* Lists the objects of a directory ("packs", "heads"; all below it, whatever the medium calls
     * directories) whose full name is greater than `after` (NULL: all), in ascending byte order of
     * the name if `is_sorted`, else in any order. `fn` returns 0 to continue, 1 to stop (list
     * returns 0), or a -errno; it may call the tier. A directory that does not exist is empty. */
    int (*list)(struct tier *tier, const char *directory, const char *after,
                int (*fn)(const struct tier_object *object, void *arg), void *arg);

    /* Lists the names directly below a directory ("": the root), relative to it; names of
     * directories end in '/'. NULL: not available. */
    int (*list_level)(struct tier *tier, const char *directory,
                      int (*fn)(const struct tier_object *object, void *arg), void *arg);

    /* Removes an object; it may be gone already. Its room is free on return; the removal is durable
     * after sync(). */
    int (*remove)(struct tier *tier, const char *object);

    /* On return every earlier put and remove is durable, names included. */
    int (*sync)(struct tier *tier);

    /* As tier_remove_all(), in as few requests as the medium allows. NULL: remove() is called for
     * each. */
    int (*remove_many)(struct tier *tier, const char *const *objects, size_t count);

    /* --- Tiers that other machines reach too (remotes); NULL if the medium is ours alone. ----- */

    /* As put(), for content too large for memory: called by tier_put_from(). */
    int (*put_from)(struct tier *tier, const char *object, struct tier_source *source);

    /* The medium's own clock, ns since 1970. Leases are judged by this clock only. */
    int (*now)(struct tier *tier, int64_t *ret_ns);

    /* Reads the same clock as precisely as possible, in one request. */
    int (*read_clock)(struct tier *tier, struct tier_reading *ret);

    /* Every call in progress and every later one soon returns -ECANCELED: the daemon is about to
     * end. */
    void (*interrupt)(struct tier *tier);

    /* The last error as one line for a person: the object, the answer, and what to do; "" if none.
     * Contains no secret. */
    void (*last_error)(struct tier *tier, char *buf, size_t size);

    /* Identifies the filesystem of this tier; NULL if there is none below (s3). -EAGAIN: not known
     * yet. */
    int (*place)(struct tier *tier, struct tier_place *ret);

    /* The next call opens the directory by its path again, and accepts any directory there. NULL if
     * place() is. */
    void (*look_again)(struct tier *tier);

    /* Totals since open. */
    void (*traffic)(struct tier *tier, struct tier_traffic *ret_traffic);

    /* --- Only for media of our own; NULL elsewhere (dir: all but space; s3: all) -------------- */

    /* Logs. log_create creates an object of `len` zero bytes, allocated and durable together with
     * its name. log_append writes at `offset` (any) and makes the bytes durable; after an error the
     * log must not be written again. */
    int (*log_create)(struct tier *tier, const char *object, uint64_t len);
    int (*log_append)(struct tier *tier, const char *object, uint64_t offset, const void *buf,
                      size_t len);

    /* Keeps at least `bytes` allocated ahead for later puts, so that these cannot fail with
     * -ENOSPC: in files of zeros that put() reuses. Keeps `files` empty files in addition, so that
     * short objects find an inode. Grows and shrinks the reserve as needed, to the MiB. -ENOSPC:
     * the medium has fewer bytes or inodes; the reserve is then as large as possible. *ret_held:
     * bytes reserved now, as far as files for them exist besides `files`. */
    int (*reserve)(struct tier *tier, uint64_t bytes, unsigned files, uint64_t *ret_held);

    int (*space)(struct tier *tier, struct tier_space *ret_space);
};

struct tier {
    const struct tier_ops *ops;
    /* remotes: how long a call retries before it returns a transient error; may be changed at any
     * time, for calls that begin later */
    _Atomic int64_t patience_ns;
};

/* As put() of a remote, from a source: at most TIER_SOURCE_STEP of it is in memory. Returns the
 * -errno of its `read`, which is then also in source->error, or that of the tier. */
CAIRN_MUST_CHECK int tier_put_from(struct tier *tier, const char *object,
                                   struct tier_source *source);

/* A directory on local NVMe (or any POSIX filesystem): uses O_DIRECT if the filesystem supports it.
 * `path` must exist. Creates the subdirectories packs/, journal/ and room/, and removes files of an
 * earlier daemon in room/. -EROFS, -EACCES, -ENOSPC and so on from the filesystem. */
CAIRN_MUST_CHECK int nvme_tier_open(const char *path, struct tier **ret_tier);

/* A remote in a shared directory (NFS, Lustre, any POSIX filesystem). `path` is created if its
 * parent exists. Each object is written under a temporary name in its directory, made durable, then
 * renamed (put) or linked (put_new). list() removes temporary files older than a day. Writes
 * nothing if `read_only`.
 *
 * Such a directory may hang for as long as its server is away. So a helper process makes the calls,
 * and a call without an answer within the patience returns -ETIMEDOUT (a put or a sync after 15 s
 * at the earliest, as an fsync may be slow). If the directory answers other calls meanwhile, the
 * next put or sync may take twice as long, up to 10 minutes. No thread of this process ever hangs
 * there. */
struct dir_options {
    const char *path; /* absolute; copied */
    bool read_only;
    bool later;          /* it is opened by later calls only, and never created */
    bool must_exist;     /* it is not created */
    int64_t patience_ns; /* 0: 60 s */
    /* polled while the directory is being opened; true ends that. NULL: never */
    bool (*given_up)(void *arg);
    /* Called with the path without symbolic links, before anything is created there, or with the
     * error of resolving it. A negative result is returned by dir_tier_open(), whose *ret_error
     * stays NULL. Not called if the directory does not answer. NULL: no check. */
    int (*judge)(int error, const char *real, void *arg);
    void *arg; /* of both callbacks */
};

/* Also returns 0 if there was no answer within 5 s or the patience, and with `later`: then later
 * calls open the directory, and return -ENODEV if it does not exist. -ECANCELED: given_up()
 * returned true. */
CAIRN_MUST_CHECK int dir_tier_open(const struct dir_options *options, struct tier **ret_tier,
                                   char **ret_error);

/* A remote in S3; strings are copied, and may be NULL if there is a default. */
struct s3_options {
    const char *bucket;
    const char *prefix;       /* without '/' at its ends; NULL or "": the whole bucket */
    const char *endpoint_url; /* NULL: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, profile, else AWS of
                                 the region */
    const char *region;       /* NULL: AWS_REGION, AWS_DEFAULT_REGION, profile, else us-east-1 */
    const char *profile;      /* NULL: AWS_PROFILE, else "default" */
    enum s3_addressing { S3_ADDRESSING_AUTO, S3_ADDRESSING_PATH, S3_ADDRESSING_VIRTUAL } addressing;
    enum s3_checksum {
        S3_CHECKSUM_AUTO,
        S3_CHECKSUM_CRC32,
        S3_CHECKSUM_MD5,
        S3_CHECKSUM_NONE
    } checksum;
    const char *storage_class;
    const char *sse; /* AES256, aws:kms */
    const char *sse_kms_key_id;
    const char *ca_bundle; /* NULL: AWS_CA_BUNDLE, else the system's */
    unsigned connections;  /* connections at once; 0: 32 */
    /* how long a call retries before it returns a transient error; 0: 60 s */
    int64_t patience_ns;
    int64_t stall_ns; /* a transfer slower than PACE_LEAST for this long is retried; 0: 15 s */
    bool unsigned_requests; /* public buckets: no credentials, no signature */
};

/* Opens without a request (mounting must work offline). -EINVAL with *ret_error (one line, to be
 * freed) if options or configuration files are wrong; missing credentials are detected by the first
 * request. */
CAIRN_MUST_CHECK int s3_tier_open(const struct s3_options *options, struct tier **ret_tier,
                                  char **ret_error);

/* Removes all of these objects; any of them may be gone already. */
CAIRN_MUST_CHECK int tier_remove_all(struct tier *tier, const char *const *objects, size_t count);

/* Is this error of a remote transient (network, overload, the server's fault), so that a caller
 * with time should retry later? */
bool tier_error_is_transient(int error);

/* For tests: passes calls on to `below` (owned), and fails or delays those that `fn` selects. `fn`
 * gets the name of the operation and the object; it returns 0 to continue, or a -errno, which is
 * returned instead of calling `below`. */
struct tier *fault_tier_new(struct tier *below,
                            int (*fn)(const char *op, const char *object, void *arg), void *arg);
