/* SPDX-License-Identifier: Apache-2.0 */
/* libcairn: saves that return at once, while the copy goes on beside the training step; and loads
 * of many ranges of a file at a time.
 *
 * A lane (`cairn_lane`) owns threads, a ring of host memory and a list of saves under way. A save
 * (`cairn_save`) is one file: its size and layout are known before a byte is copied. Sources
 * (tensors, in host or device memory) are copied by the threads of the lane, after the call that
 * named them has returned; a fence waits for these copies before the sources change. The name
 * appears only when the whole file is there: an older file of that name is untouched until then,
 * and whatever ends the process in the middle leaves it so.
 *
 * A load (`cairn_load`) is a file that is read: threads of its own fill the targets that calls
 * name.
 *
 * Works in any directory; on a CairnFS mount a file without a name (O_TMPFILE) takes the bytes,
 * elsewhere a hidden one, ".NAME.cairn-PID-N", with a warning once in a process.
 *
 * Errors: 0 or a negative errno, and the cause as text (cairn_save_error(), cairn_error()). Nothing
 * here exits or aborts. Handlers of SIGSEGV and SIGBUS, put there by the first save, take sources
 * that are freed too early (-EFAULT), and pass on all else. Several threads may call at once, but
 * for close and free, which end their argument. fork: in the child calls on a parent's lane
 * return -ECHILD, and cairn_lane_close() frees only memory. Units: bytes; ms, ns by name. Timeouts
 * below 0 have no end. Structs begin with `size`, their sizeof: newer members are 0 then.
 */
#ifndef CAIRN_CAIRN_H
#define CAIRN_CAIRN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CAIRN_API __attribute__((visibility("default")))
#else
#define CAIRN_API
#endif

#define CAIRN_API_VERSION 1

typedef struct cairn_lane cairn_lane;
typedef struct cairn_save cairn_save;
typedef struct cairn_load cairn_load;

/* --- the lane --------------------------------------------------------------------------------- */

enum cairn_log_level { CAIRN_LOG_ERROR, CAIRN_LOG_WARNING, CAIRN_LOG_INFO, CAIRN_LOG_DEBUG };

enum cairn_lane_flags {
    CAIRN_LANE_TELLS = 1, /* the caller reports failed saves: the log has them as information */
};

struct cairn_lane_options {
    size_t size;
    uint64_t ring_bytes;   /* host memory for device sources; 0: chosen when the first one comes */
    uint32_t copy_threads; /* 0: one for each 4 cores, 1 to 4 */
    int32_t nice;          /* of these threads: 0 to 19; they compete with the training for cores */
    int32_t max_block_ms;  /* how long a call or a fence may wait for a save before that fails with
                              -ETIMEDOUT; 0: 10 minutes; below 0: no end */
    uint32_t flags;        /* enum cairn_lane_flags */
    /* Any thread calls it, without a lock; NULL: standard error, from $CAIRN_LOG (warning) on. */
    void (*log)(int level, const char *text, void *arg);
    void *log_arg;
};

/* `options` may be NULL. Blocks for less than a millisecond: memory is taken by
 * cairn_lane_prepare() or the first save that needs it. */
CAIRN_API int cairn_lane_open(const struct cairn_lane_options *options, cairn_lane **ret);

/* Takes, faults in and registers with the CUDA driver (where a context exists) a ring of `bytes`,
 * so that no save has to. Blocks for some 0.1 s a GB. Again: grows it; -EBUSY: a save is under way.
 */
CAIRN_API int cairn_lane_prepare(cairn_lane *lane, uint64_t bytes);

/* Waits until every save has its name, or has failed, and for an fsync that cairn_save_wait() asked
 * for; then ends the threads and frees the lane. -EIO: a save failed whose error no call asked for.
 * Saves that were not freed stay valid until cairn_save_free(). NULL: 0. */
CAIRN_API int cairn_lane_close(cairn_lane *lane);

struct cairn_stream {
    int32_t device;  /* ordinal */
    uint64_t stream; /* CUstream; 0: the default stream */
};

/* Before sources change: returns 0 when no lazy save reads its sources any more, or when the work
 * of `streams` that comes after this call is ordered behind the copies from that device (the host
 * does not wait for these). Devices without an entry in `streams` are waited for by the host, and
 * host sources always. A save that is not that far after max_block_ms fails, and the fence goes on:
 * 0. -ETIMEDOUT: `timeout_ms` has passed first, sources are still read. -EBUSY: a stream captures a
 * graph. With nothing under way this is one load of a flag. */
CAIRN_API int cairn_lane_fence(cairn_lane *lane, const struct cairn_stream *streams, size_t count,
                               int timeout_ms);

/* Reports the oldest save that failed and was not reported yet (by this, cairn_save_wait(),
 * _error() or _commit()): its error and, in `text` (may be NULL), its path and cause. 0: none. One
 * a call: ask until it is 0. An abort counts as reported. */
CAIRN_API int cairn_lane_take_error(cairn_lane *lane, char *text, size_t text_size);

struct cairn_lane_stats {
    size_t size;
    uint64_t saves_begun, saves_published, saves_failed;
    uint64_t bytes_copied;     /* from host and device sources, into files */
    uint64_t bytes_referenced; /* taken by reference from an earlier version */
    uint64_t bytes_device;     /* of those copied: came from a device */
    uint64_t pending_bytes;    /* named, and not yet copied */
    uint64_t pending_saves;    /* without a name yet */
    uint64_t blocked_ns;       /* by which calls and fences kept their callers */
    uint64_t ring_bytes, ring_registered_bytes;
};
CAIRN_API int cairn_lane_stats(cairn_lane *lane, struct cairn_lane_stats *ret);

/* --- a save ----------------------------------------------------------------------------------- */

enum cairn_source_flags {
    CAIRN_SOURCE_NOW = 1, /* copied before the call that names it returns: it may change at once */
};

/* A range of the file and where its bytes come from: exactly one of `host` and `device_address` is
 * set, or length is 0. The memory stays allocated until cairn_save_wait() has returned something
 * else than -ETIMEDOUT, or cairn_save_abort() or cairn_save_fail() has returned: of a save that
 * fails by itself, too, sources may be read for a moment still. Host memory that is written to
 * before that, without a fence, fails the save with -EBADMSG if samples of it tell: much of it
 * changed. CAIRN_SAVE_URGENT and CAIRN_SOURCE_NOW are without that check. */
struct cairn_source {
    uint64_t offset, length; /* in the file, or of the record (cairn_save_zip(): offset is 0) */
    const void *host;
    uint64_t device_address; /* CUdeviceptr */
    int32_t device;          /* ordinal */
    uint32_t flags;
    uint64_t producer; /* CUstream whose work so far makes the bytes; the copy waits for it */
    /* Names the same tensor in each version of the file ("layer.0.weight"), for CAIRN_SAVE_REFER;
     * NULL: always copied. The call copies the text. */
    const char *key;
};

enum cairn_save_flags {
    CAIRN_SAVE_EXCLUSIVE = 1, /* -EEXIST where the name is there when the file is to get it */
    /* Sources that have the fingerprint that they had in the last save of the same pattern of path
     * (digits are one) are taken from that file by reference (copy_file_range), and are neither
     * copied from their device nor written again. */
    CAIRN_SAVE_REFER = 2,
    CAIRN_SAVE_NO_CRC = 4, /* zip: records carry CRC 0, as torch writes them with crc off */
    CAIRN_SAVE_CLEAN = 8,  /* removes hidden files here of processes that are gone */
    /* zip, safetensors: the call does not commit. The caller does, with cairn_save_commit(), when
     * its sources did not change during the copy; until then the save stays at CAIRN_COPIED. */
    CAIRN_SAVE_HOLD = 16,
    /* The caller waits: sources are copied before those of other saves, and by one thread more. */
    CAIRN_SAVE_URGENT = 32,
    CAIRN_SAVE_REGULAR = 64, /* -ENOTSUP where the path leads to no regular file */
};

struct cairn_save_options {
    size_t size;
    mode_t mode; /* less the umask; 0: 0666 */
    uint32_t flags;
    cairn_save *const *after; /* of this lane: gets its name after these have theirs; fails with
                                 -ECANCELED if one of them fails */
    size_t after_count;
    int32_t max_block_ms; /* of this save, in place of the lane's; 0: the lane's */
};

/* Each of these names the whole file or begins it; the name that `path` is gets the file when all
 * is copied and commit was called. `options` may be NULL. Two saves to one path get the name in the
 * order in which they were begun. Errors of the call itself: those of open(2) for writing `path`,
 * -ETIMEDOUT where the filesystem has not answered for max_block_ms, -ENOMEM, -EINVAL, -ECHILD,
 * -ENODEV and -EBUSY of a device; *ret is NULL then. What fails later is an error of the save: the
 * call returns 0. A thread of the lane opens the file: with the credentials, the directory and the
 * umask of the process, if the calling thread has others of its own. Symbolic links are followed,
 * as by open(2). A file that was there keeps its bytes until the name changes over; mode, owner and
 * other names of it do not pass to the new one. A device that takes writes at offsets (/dev/null)
 * gets the bytes as they are copied. For a fifo, a terminal, a socket they wait in memory: the call
 * that commits writes them, in order, before it returns (-EPIPE, and no signal, without a reader);
 * max_block_ms is no limit there. */

/* A file of `bytes`. Sources by cairn_save_put(), in any order, disjoint; gaps read as zeros. */
CAIRN_API int cairn_save_begin(cairn_lane *lane, const char *path, uint64_t bytes,
                               const struct cairn_save_options *options, cairn_save **ret);
/* -EINVAL: a range outside the file, or after commit. Sources are read from now on. */
CAIRN_API int cairn_save_put(cairn_save *save, const struct cairn_source *sources, size_t count);
/* No more puts. */
CAIRN_API int cairn_save_commit(cairn_save *save);

/* A zip archive as torch.save writes it: records stored and aligned, ARCHIVE/NAME, with CRC-32.
 * Committed by the call. */
struct cairn_zip_record {
    const char *name; /* "data.pkl", "data/0" */
    struct cairn_source source;
};
struct cairn_zip_options {
    size_t size;
    const char *archive; /* NULL: the file's name without its suffix */
    uint32_t alignment;  /* 0: 64 */
};
CAIRN_API int cairn_save_zip(cairn_lane *lane, const char *path,
                             const struct cairn_zip_record *records, size_t count,
                             const struct cairn_zip_options *zip,
                             const struct cairn_save_options *options, cairn_save **ret);

/* A safetensors file: `header` is the JSON text, whose data_offsets the sources' offsets are
 * (relative to the end of the header); padded with blanks to 8 bytes. Committed by the call. */
CAIRN_API int cairn_save_safetensors(cairn_lane *lane, const char *path, const char *header,
                                     size_t header_length, const struct cairn_source *sources,
                                     size_t count, const struct cairn_save_options *options,
                                     cairn_save **ret);

/* A small file, whose bytes the call copies: "latest", after saves (options->after). */
CAIRN_API int cairn_save_marker(cairn_lane *lane, const char *path, const void *data, size_t length,
                                const struct cairn_save_options *options, cairn_save **ret);

/* --- where a save is -------------------------------------------------------------------------- */

enum cairn_level {
    CAIRN_COPIED,    /* no source is read any more */
    CAIRN_PUBLISHED, /* the name is there, with every byte */
    CAIRN_NVME,      /* survives power loss; off CairnFS by fsync of file and directory */
    CAIRN_REMOTE,    /* in the object store; -ENODATA where there is none */
};

/* 0; -ETIMEDOUT; or the save's own error, each time that this is asked, once none of its sources is
 * read any more. A wait for NVME or REMOTE makes the filesystem begin with that at once (fsync, by
 * a thread of the lane, which goes on after a timeout), also if the file was renamed. -ESTALE: it
 * was replaced; -EACCES: `path` was relative, and the directories above may not be searched. */
CAIRN_API int cairn_save_wait(cairn_save *save, enum cairn_level level, int timeout_ms);
struct cairn_save_progress {
    size_t size;
    uint64_t bytes, bytes_copied, bytes_referenced; /* of the sources */
    int32_t level;                                  /* enum cairn_level that is reached; -1: none */
    int32_t error;                                  /* 0, or its error */
};
CAIRN_API int cairn_save_progress(cairn_save *save, struct cairn_save_progress *ret);
/* Fails the save with -ECANCELED. -EALREADY: it has its name; -EINPROGRESS: the filesystem is just
 * giving it the name (ask cairn_save_wait()). Blocks until no source is read any more, but by a
 * write that is under way: its bytes go nowhere, and its source may be freed. */
CAIRN_API int cairn_save_abort(cairn_save *save);
/* As cairn_save_abort(), with `error` (negative errno) and a cause: a source changed, say. */
CAIRN_API int cairn_save_fail(cairn_save *save, int error, const char *cause);
/* Returns the error of a failed save; 0: it has not failed. The text belongs to the save.
 * cairn_lane_take_error() does not report this save again. */
CAIRN_API int cairn_save_error(cairn_save *save, const char **ret_text);
/* The save goes on by itself. NULL: nothing. */
CAIRN_API void cairn_save_free(cairn_save *save);

/* The name that the file gets, links followed; absolute if known. The text belongs to the save. */
CAIRN_API const char *cairn_save_path(const cairn_save *save);

/* --- a load ----------------------------------------------------------------------------------- */

/* Ranges of one file go to memory of the caller, read by several threads, at most 1 MiB a read: in
 * the order of the file within a cairn_load_get(), one call after the other. A read never goes over
 * a border of target start + k MiB, where k > 0, as CairnFS stores tensors in such chunks: a whole
 * one costs the mount least. On a CairnFS mount reads pass by the page cache (O_DIRECT); elsewhere
 * they are plain ones. */

enum cairn_load_flags {
    CAIRN_LOAD_BUFFERED = 1, /* by the page cache on CairnFS, too: others read this file as well */
};

struct cairn_load_options {
    size_t size;
    uint32_t threads; /* that read; 0: 4; at most 64 */
    uint32_t flags;   /* enum cairn_load_flags */
};

/* Opens `path` for reading: the load stays with that file when the name gets another one. `options`
 * may be NULL. Blocks as open(2) does. Errors: those of open(2); -EISDIR; -ENOTSUP: no regular
 * file; -EINVAL: of the options; -ENOMEM, -ECHILD; *ret is NULL then. The lane is kept until
 * cairn_load_free(), also behind cairn_lane_close(). */
CAIRN_API int cairn_load_open(cairn_lane *lane, const char *path,
                              const struct cairn_load_options *options, cairn_load **ret);

/* The descriptor that it reads by, for the caller's own pread(2) of small things. It belongs to the
 * load. */
CAIRN_API int cairn_load_fd(const cairn_load *load);

/* The size of the file in bytes when it was opened. */
CAIRN_API uint64_t cairn_load_size(const cairn_load *load);

enum cairn_target_flags {
    /* The memory was just mapped, and is faulted in by the threads that read: that costs less than
     * a fault at each page. */
    CAIRN_TARGET_FRESH = 1,
};

/* A range of the file, and where its bytes go. The memory stays allocated, and is no other's, until
 * cairn_load_wait() for it has returned something else than -ETIMEDOUT, or cairn_load_free() has
 * returned. Targets overlap in the file as they like, in memory never. */
struct cairn_target {
    uint64_t offset, length; /* in the file */
    void *host;
    uint32_t flags;       /* enum cairn_target_flags */
    uint32_t reserved32;  /* 0 */
    uint64_t reserved[3]; /* 0: a device, its memory and its stream, in a later version */
};

/* Begins to read, and returns at once. The call copies the array. Targets are numbered from 0, on
 * over all calls of a load. -EINVAL: a range outside the file, or no memory for it; nothing of the
 * call is read then. -ENOMEM, -EAGAIN: no memory, no thread; likewise. The load's own error. */
CAIRN_API int cairn_load_get(cairn_load *load, const struct cairn_target *targets, size_t count);

/* 0: the `count` targets from number `first` on are filled, and size and mtime of the file are as
 * they were when it was opened. -EBADMSG: they are not, it was changed in place. -ETIMEDOUT.
 * -EINVAL: there are no such targets. Or the error of the load, if one of these is not filled, once
 * no thread writes to any target: that of read(2), -EIO for a file that ends too early, -ENOMEM: no
 * memory for a FRESH target, -EFAULT, -ECANCELED. What a target that is not filled holds is
 * undefined. */
CAIRN_API int cairn_load_wait(cairn_load *load, size_t first, size_t count, int timeout_ms);

/* No further read begins: targets that are not filled stay so, and the load's error is -ECANCELED,
 * unless it has one. Does not block; a wait for these tells when no thread writes to them any more.
 * On a CairnFS mount reads under way end at once, also those that wait for a remote, unless other
 * loads read the same file; elsewhere a read that the filesystem holds up ends with that. */
CAIRN_API int cairn_load_cancel(cairn_load *load);

/* Cancels what is not read yet, waits until no thread writes to targets, closes the file. In a
 * child of fork frees only memory. NULL: nothing. */
CAIRN_API void cairn_load_free(cairn_load *load);

/* The cause of the last error that a call returned to this thread; "" if none. */
CAIRN_API const char *cairn_error(void);

#ifdef __cplusplus
}
#endif
#endif
