// SPDX-License-Identifier: Apache-2.0
/* A tier: a place where packs and segments live. One table of operations; objects are named by
 * short paths
 * ("packs/00.../ID", "journal/N"). A tier knows nothing of files.
 *
 * Objects are immutable once put, except logs (append). All calls block; any thread; different
 * objects in parallel. Names come from us only: hex digits, letters, '/', '.', '-' and '_'; no part
 * of one begins with '.'.
 *
 * Errors are -errno of the medium; -ENOENT no such object; -EEXIST (put_new); -EUCLEAN what came
 * back is not what was stored (length, checksum), or can certainly not be read. Of remotes also:
 * -EACCES refused, or no credentials; -EKEYEXPIRED credentials are out of date; -EKEYREJECTED a
 * certificate that is not trusted; -ENODEV no such bucket, or in another region; -EPROTO what
 * answers is no S3; -EOPNOTSUPP the server cannot do it; -EFBIG more than 5 GiB; -ECANCELED
 * interrupted; and those of tier_error_is_transient(), after patience. */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "base/base.h"
#include "tier/source.h"

/* Room is reserved in units of this: a whole pack, as writeback makes them. */
#define TIER_RESERVE_UNIT (28 * MIB)

struct tier;

struct tier_space {
    uint64_t total_bytes; /* of the medium */
    uint64_t free_bytes;  /* that we may still take, beside what is held */
    uint64_t held_bytes;  /* allocated ahead: see reserve() */
};

struct tier_object {
    const char *name; /* whole: "packs/..." */
    uint64_t len;
    int64_t modified_ns; /* by the medium's clock, ns since 1970; 0 where it is not kept */
};

enum tier_request { TIER_PUT, TIER_GET, TIER_LIST, TIER_HEAD, TIER_DELETE, TIER_REQUESTS };

struct tier_traffic {
    uint64_t requests, retries, failures;
    uint64_t by_kind[TIER_REQUESTS];     /* of the requests; some are of none */
    uint64_t sent_bytes, received_bytes; /* of objects' content */
};

/* Where a directory lies: its filesystem, the same as long as that is the same one, whatever is
 * mounted where. */
struct tier_place {
    char identity[256]; /* to be compared; no control characters */
    char shown[256];    /* for a person: type and source */
    bool is_of_root;    /* it is the filesystem of / */
};

/* At some instant from `asked` to `answered` (CLOCK_BOOTTIME, ns) the medium's clock showed a time
 * from `least` to `most` (ns since 1970). */
struct tier_reading {
    int64_t asked, answered;
    int64_t least, most;
    /* All who use the medium read the same clock. False: it may be that of each machine. */
    bool is_shared;
};

struct tier_ops {
    const char *name;
    bool is_sorted; /* list() */
    void (*close)(struct tier *tier);

    /* Stores an object; the content is durable on return, the name after sync(). `buf` is aligned
     * to 4096 and readable up to the next multiple of 4096 after len. Where the name is taken:
     * -EEXIST on the local tier; on remotes the new object takes its place, whole, so that a put
     * may be repeated. */
    int (*put)(struct tier *tier, const char *object, const void *buf, size_t len);

    /* As put(), but -EEXIST if the name is taken. On a remote that may be by this very call: its
     * first attempt was carried out, the answer was lost, the second attempt found the object. A
     * caller that must know reads it and sees whose it is. After any other error too the object may
     * be there, or come to be there a little later. */
    int (*put_new)(struct tier *tier, const char *object, const void *buf, size_t len);

    /* Exactly len bytes at offset; -EUCLEAN where the object ends before. */
    int (*get_range)(struct tier *tier, const char *object, uint64_t offset, void *buf, size_t len);

    /* Length of an object, -ENOENT none. */
    int (*stat)(struct tier *tier, const char *object, uint64_t *ret_len);

    /* Objects of a directory ("packs", "heads"; all below it, whatever the medium calls
     * directories) whose full name is greater than `after` (NULL: all), in ascending byte order of
     * the name where `is_sorted`, else in any. `fn` returns 0 to go on, 1 to stop (list returns 0),
     * or a -errno; it may call the tier. A directory that is not there is empty. */
    int (*list)(struct tier *tier, const char *directory, const char *after,
                int (*fn)(const struct tier_object *object, void *arg), void *arg);

    /* Gives the names right below a directory ("": of all), which do not include it; those of
     * directories end in '/'. NULL: not available. */
    int (*list_level)(struct tier *tier, const char *directory,
                      int (*fn)(const struct tier_object *object, void *arg), void *arg);

    /* Gone already is no error. The room is free on return; the name's removal is durable after
     * sync(). */
    int (*remove)(struct tier *tier, const char *object);

    /* Every put and remove that returned before is durable, names too. */
    int (*sync)(struct tier *tier);

    /* As tier_remove_all(), in as few requests as the medium allows. NULL: by remove() alone. */
    int (*remove_many)(struct tier *tier, const char *const *objects, size_t count);

    /* --- Tiers that others reach too (remotes); NULL where the medium is ours alone. ---------- */

    /* As put(), of what is too large for memory: called by tier_put_from(). */
    int (*put_from)(struct tier *tier, const char *object, struct tier_source *source);

    /* The medium's own clock, ns since 1970: leases are judged by nothing else. */
    int (*now)(struct tier *tier, int64_t *ret_ns);

    /* The same clock, as exactly as the medium tells it, in one request. */
    int (*read_clock)(struct tier *tier, struct tier_reading *ret);

    /* Every call under way and every later one ends soon with -ECANCELED: the daemon is about to
     * go. */
    void (*interrupt)(struct tier *tier);

    /* The last error, for a person: one line with the object, what was answered, and what to
     * do; "" if nothing. No secret in it. */
    void (*last_error)(struct tier *tier, char *buf, size_t size);

    /* Finds the filesystem that this is on; NULL where there is none below (s3). -EAGAIN: not known
     * yet. */
    int (*place)(struct tier *tier, struct tier_place *ret);

    /* The next call looks for the directory by its path, whatever was there before. NULL as
     * place(). */
    void (*look_again)(struct tier *tier);

    /* Totals since open. */
    void (*traffic)(struct tier *tier, struct tier_traffic *ret_traffic);

    /* --- Only of our own media; NULL elsewhere (dir: all but space; s3: all) ----------------- */

    /* Logs. log_create makes an object of `len` zero bytes, allocated and durable with
     * its name. log_append writes at `offset` (any) and makes it durable; after an error the log
     * must not be written again. */
    int (*log_create)(struct tier *tier, const char *object, uint64_t len);
    int (*log_append)(struct tier *tier, const char *object, uint64_t offset, const void *buf,
                      size_t len);

    /* Keeps at least `bytes` of room allocated ahead for later puts, so that these cannot meet
     * -ENOSPC: files of zeros that put() takes over. And `files` empty ones besides, so that short
     * objects find an inode. Grows and shrinks to it, to the MiB. -ENOSPC: the medium has less, of
     * bytes or of inodes; what could be had is kept. *ret_held: bytes held now, as far as there are
     * files for them beside `files`. */
    int (*reserve)(struct tier *tier, uint64_t bytes, unsigned files, uint64_t *ret_held);

    int (*space)(struct tier *tier, struct tier_space *ret_space);
};

struct tier {
    const struct tier_ops *ops;
    /* remotes: how long a call goes on trying before it gives a transient error back; may be
     * changed at any time, for calls that begin later */
    _Atomic int64_t patience_ns;
};

/* As put() of a remote, from a source: at most TIER_SOURCE_STEP of it is in memory. -errno of its
 * `read`, which is then in source->error, too, or of the tier. */
CAIRN_MUST_CHECK int tier_put_from(struct tier *tier, const char *object,
                                   struct tier_source *source);

/* A directory on local NVMe (or any POSIX filesystem): O_DIRECT where the filesystem has it. `path`
 * must exist. Subdirectories packs/, journal/ and room/ are made. Leftovers in room/ from an
 * earlier daemon are removed. -EROFS, -EACCES, -ENOSPC and so on as the filesystem says. */
CAIRN_MUST_CHECK int nvme_tier_open(const char *path, struct tier **ret_tier);

/* A remote in a directory that others see too (NFS, Lustre, any POSIX filesystem). `path` is made
 * if its parent exists. Everything is written under a temporary name in the same directory, made
 * durable, then renamed (put) or linked (put_new). Leftovers of such names that are older than a
 * day are removed by list(). Read-only where `read_only`.
 *
 * Such a directory may hang for as long as its server is away. So a helper process makes the calls,
 * and what gets no answer within the patience is -ETIMEDOUT (a put or a sync after 15 s at the
 * earliest: an fsync may be slow). Where the directory answers meanwhile, the next put or sync may
 * take twice as long, up to 10 minutes. No thread of this process ever hangs there. */
struct dir_options {
    const char *path; /* absolute; copied */
    bool read_only;
    bool later;          /* it is opened by later calls only, and not made */
    bool must_exist;     /* it is not made */
    int64_t patience_ns; /* 0: 60 s */
    /* asked now and then while the directory is being opened; NULL: never */
    bool (*given_up)(void *arg);
    /* Told, before anything is made there, where the path leads without symbolic links; or the
     * error of looking. A negative result is that of dir_tier_open(), whose *ret_error stays NULL.
     * Not called where nothing comes back. NULL: no matter. */
    int (*judge)(int error, const char *real, void *arg);
    void *arg; /* of both */
};

/* Also 0 where nothing came back within 5 s, or the patience, and with `later`: later calls open
 * it, and say -ENODEV where there is no such directory. -ECANCELED: given up. */
CAIRN_MUST_CHECK int dir_tier_open(const struct dir_options *options, struct tier **ret_tier,
                                   char **ret_error);

/* A remote in S3; all strings may be NULL where that has a default. Copied. */
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
    unsigned connections;  /* at most at once; 0: 32 */
    int64_t patience_ns;   /* how long a call goes on trying before it gives a transient error back;
                              0: 60 s */
    int64_t stall_ns; /* a transfer that is slower than PACE_LEAST for this long is tried again;
                         0: 15 s */
    bool unsigned_requests; /* public buckets: no credentials, no signature */
};

/* Opens without a request (mounting must work offline). -EINVAL with *ret_error (one line, to be
 * freed) where options or files of configuration are wrong; lack of credentials is found by the
 * first request. */
CAIRN_MUST_CHECK int s3_tier_open(const struct s3_options *options, struct tier **ret_tier,
                                  char **ret_error);

/* Removes all of these objects; gone already is no error. */
CAIRN_MUST_CHECK int tier_remove_all(struct tier *tier, const char *const *objects, size_t count);

/* Is this error of a remote one that may pass by itself (network, overload, server's fault), so
 * that a caller with time should try again later? */
bool tier_error_is_transient(int error);

/* For tests: passes everything on to `below` (owned), and fails or delays the calls that `fn` says.
 * `fn` gets the name of the operation and the object and returns 0 to go on or a -errno to fail
 * without calling. */
struct tier *fault_tier_new(struct tier *below,
                            int (*fn)(const char *op, const char *object, void *arg), void *arg);
