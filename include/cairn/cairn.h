/* SPDX-License-Identifier: Apache-2.0 */
/* libcairn: saves that return at once, while the bytes are copied beside the training step; and
 * loads of many ranges of a file at a time.
 *
 * A lane (`cairn_lane`) owns threads, a ring of host memory and a list of saves under way. A save
 * (`cairn_save`) is one file: its size and layout are known before a byte is copied. Sources
 * (tensors, in host or device memory) are copied by the threads of the lane, after the call that
 * named them has returned; a fence waits for these copies before the sources change. The name
 * appears only when the whole file is there: an older file of that name is untouched until then,
 * also if the process ends in the middle, however it ends.
 *
 * A load (`cairn_load`) is a file that is read: threads of the load fill the targets that the calls
 * name.
 *
 * Works in any directory. On a CairnFS mount a file without a name (O_TMPFILE) receives the bytes,
 * elsewhere a hidden file, ".NAME.cairn-PID-N", with one warning in a process.
 *
 * Errors: 0 or a negative errno, and the cause as text (cairn_save_error(), cairn_error()). No call
 * exits or aborts. The first save installs handlers of SIGSEGV and SIGBUS: they turn an access to a
 * source that was freed too early into -EFAULT, and pass on every other signal. Several threads may
 * call at once, except close and free, which end their argument. fork: in the child calls on a lane
 * of the parent return -ECHILD, and cairn_lane_close() frees only memory. Units: bytes; ms and ns
 * by name. A timeout below 0 means no end. Structs begin with `size`, their sizeof: members that
 * are newer than the caller's struct are 0. */
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
    /* host memory for device sources; 0: chosen at the first device source */
    uint64_t ring_bytes;
    uint32_t copy_threads; /* 0: one for each 4 cores, 1 to 4 */
    int32_t nice;          /* of these threads: 0 to 19; they compete with the training for cores */
    /* how long a call or a fence may wait for a save before the save fails with -ETIMEDOUT; 0: 10
     * minutes; below 0: no end */
    int32_t max_block_ms;
    uint32_t flags; /* enum cairn_lane_flags */
    /* Called by any thread, without a lock held; NULL: standard error, from the level $CAIRN_LOG
     * (default: warning) up. */
    void (*log)(int level, const char *text, void *arg);
    void *log_arg;
};

/* `options` may be NULL. Blocks for less than a millisecond: memory is allocated by
 * cairn_lane_prepare() or the first save that needs it. */
CAIRN_API int cairn_lane_open(const struct cairn_lane_options *options, cairn_lane **ret);

/* Allocates a ring of `bytes`, faults it in and registers it with the CUDA driver (where a context
 * exists), so that no save has to. Blocks for some 0.1 s a GB. A further call grows the ring;
 * -EBUSY: a save is under way. */
CAIRN_API int cairn_lane_prepare(cairn_lane *lane, uint64_t bytes);

/* Waits until every save has its name, or has failed, and for each fsync that cairn_save_wait()
 * asked for; then ends the threads and frees the lane. -EIO: a save failed whose error no call
 * asked for. Saves that were not freed stay valid until cairn_save_free(). NULL: 0. */
CAIRN_API int cairn_lane_close(cairn_lane *lane);

struct cairn_stream {
    int32_t device;  /* ordinal */
    uint64_t stream; /* CUstream; 0: the default stream */
};

/* Before sources change: returns 0 when no lazy save reads its sources any more, or when the work
 * that `streams` receive after this call is ordered behind the copies from their device (the host
 * does not wait for these copies). The host waits for the copies from devices without an entry in
 * `streams`, and always for those from host sources. A save that still reads sources after
 * max_block_ms fails, and the fence goes on and returns 0. -ETIMEDOUT: `timeout_ms` has passed
 * first, and sources are still read. -EBUSY: a stream captures a graph. With no save under way this
 * is one load of a flag. */
CAIRN_API int cairn_lane_fence(cairn_lane *lane, const struct cairn_stream *streams, size_t count,
                               int timeout_ms);

/* Reports the oldest save that failed and was not reported yet (by this call, cairn_save_wait(),
 * _error() or _commit()): its error and, in `text` (may be NULL), its path and cause. 0: none. One
 * save a call: call until it returns 0. An aborted save counts as reported. */
CAIRN_API int cairn_lane_take_error(cairn_lane *lane, char *text, size_t text_size);

struct cairn_lane_stats {
    size_t size;
    uint64_t saves_begun, saves_published, saves_failed;
    uint64_t bytes_copied;     /* from host and device sources, into files */
    uint64_t bytes_referenced; /* taken by reference from an earlier version */
    uint64_t bytes_device;     /* the part of bytes_copied that came from a device */
    uint64_t pending_bytes;    /* of sources named, and not yet copied */
    uint64_t pending_saves;    /* saves without a name yet */
    uint64_t blocked_ns;       /* for which calls and fences blocked their callers */
    uint64_t ring_bytes, ring_registered_bytes;
};
CAIRN_API int cairn_lane_stats(cairn_lane *lane, struct cairn_lane_stats *ret);

/* --- a save ----------------------------------------------------------------------------------- */

enum cairn_source_flags {
    /* copied before the call that names the source returns: it may change at once */
    CAIRN_SOURCE_NOW = 1,
};

/* A range of the file and where its bytes come from: exactly one of `host` and `device_address` is
 * set, or length is 0. The memory stays allocated until cairn_save_wait() has returned something
 * else than -ETIMEDOUT, or cairn_save_abort() or cairn_save_fail() has returned: also when a save
 * fails by itself, its sources may be read for a moment still. Host memory that is written to
 * before that, without a fence, fails the save with -EBADMSG if much of it changed: the copy is
 * checked by samples. Sources with CAIRN_SAVE_URGENT or CAIRN_SOURCE_NOW are not checked. */
struct cairn_source {
    uint64_t offset, length; /* in the file, or of the record (cairn_save_zip(): offset is 0) */
    const void *host;
    uint64_t device_address; /* CUdeviceptr */
    int32_t device;          /* ordinal */
    uint32_t flags;
    /* CUstream whose work so far makes the bytes; the copy waits for that work */
    uint64_t producer;
    /* Names the same tensor in each version of the file ("layer.0.weight"), for CAIRN_SAVE_REFER;
     * NULL: always copied. The call copies the text. */
    const char *key;
};

enum cairn_save_flags {
    CAIRN_SAVE_EXCLUSIVE = 1, /* -EEXIST where the name exists when the file is to receive it */
    /* A source with the same fingerprint as in the last save to the same pattern of path (paths
     * that differ only in digits are one pattern) is taken from that save's file by reference
     * (copy_file_range): it is neither copied from its device nor written again. */
    CAIRN_SAVE_REFER = 2,
    CAIRN_SAVE_NO_CRC = 4, /* zip: records carry CRC 0, as torch writes them with crc off */
    CAIRN_SAVE_CLEAN = 8,  /* removes hidden files in this directory whose processes have ended */
    /* zip, safetensors: the call does not commit. The caller commits with cairn_save_commit(), when
     * its sources did not change during the copy; until then the save stays at CAIRN_COPIED. */
    CAIRN_SAVE_HOLD = 16,
    /* The caller waits: these sources are copied before those of other saves, and by one thread
     * more. */
    CAIRN_SAVE_URGENT = 32,
    CAIRN_SAVE_REGULAR = 64, /* -ENOTSUP where the path leads to no regular file */
};

struct cairn_save_options {
    size_t size;
    mode_t mode; /* less the umask; 0: 0666 */
    uint32_t flags;
    /* saves of this lane: this one gets its name after all of them, and fails with -ECANCELED if
     * one of them fails */
    cairn_save *const *after;
    size_t after_count;
    int32_t max_block_ms; /* of this save, in place of the lane's; 0: the lane's */
};

/* Each of these calls names the whole file or begins it. The file appears at `path` when all
 * sources are copied and commit was called. `options` may be NULL. Two saves to one path are
 * published in the order in which they were begun. Errors of the call itself: those of open(2) for
 * writing `path`, -ETIMEDOUT where the filesystem has not answered for max_block_ms, -ENOMEM,
 * -EINVAL, -ECHILD, -ENODEV and -EBUSY of a device; *ret is NULL then. A later failure is an error
 * of the save: the call has returned 0. A thread of the lane opens the file, so if the calling
 * thread has credentials, a working directory or a umask of its own, those of the process count
 * instead. Symbolic links are followed, as by open(2). A file that existed at `path` keeps its
 * bytes until the new one replaces it; its mode, owner and other names do not pass to the new file.
 * A device that takes writes at offsets (/dev/null) is written as the bytes are copied. For a fifo,
 * a terminal or a socket the bytes wait in memory: the call that commits writes them, in order,
 * before it returns (-EPIPE, and no signal, without a reader); max_block_ms is no limit there. */

/* A file of `bytes`. Sources are added with cairn_save_put(), in any order, disjoint; gaps read as
 * zeros. */
CAIRN_API int cairn_save_begin(cairn_lane *lane, const char *path, uint64_t bytes,
                               const struct cairn_save_options *options, cairn_save **ret);
/* Adds sources, which are read from now on. -EINVAL: a range outside the file, or after commit. */
CAIRN_API int cairn_save_put(cairn_save *save, const struct cairn_source *sources, size_t count);
/* Ends the list of sources: no cairn_save_put() may follow. */
CAIRN_API int cairn_save_commit(cairn_save *save);

/* A zip archive as torch.save writes it: records stored and aligned, named ARCHIVE/NAME, with
 * CRC-32. The call commits it. */
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

/* A safetensors file: `header` is the JSON text, padded with blanks to 8 bytes; the sources'
 * offsets are its data_offsets (relative to the end of the header). The call commits it. */
CAIRN_API int cairn_save_safetensors(cairn_lane *lane, const char *path, const char *header,
                                     size_t header_length, const struct cairn_source *sources,
                                     size_t count, const struct cairn_save_options *options,
                                     cairn_save **ret);

/* A small file, whose bytes the call copies: "latest", published after other saves
 * (options->after). */
CAIRN_API int cairn_save_marker(cairn_lane *lane, const char *path, const void *data, size_t length,
                                const struct cairn_save_options *options, cairn_save **ret);

/* --- where a save is -------------------------------------------------------------------------- */

enum cairn_level {
    CAIRN_COPIED,    /* no source is read any more */
    CAIRN_PUBLISHED, /* the name exists, and the file has every byte */
    CAIRN_NVME,      /* survives power loss; off CairnFS by fsync of file and directory */
    CAIRN_REMOTE,    /* in the object store; -ENODATA where there is none */
};

/* Returns 0 when the save has reached `level`; -ETIMEDOUT; or the save's own error, from every
 * call, once none of its sources is read any more. A wait for NVME or REMOTE makes the filesystem
 * begin to store the file at once (fsync, by a thread of the lane, which goes on after a timeout),
 * also if the file was renamed. -ESTALE: the file was replaced; -EACCES: `path` was relative, and
 * the directories above may not be searched. */
CAIRN_API int cairn_save_wait(cairn_save *save, enum cairn_level level, int timeout_ms);
struct cairn_save_progress {
    size_t size;
    uint64_t bytes, bytes_copied, bytes_referenced; /* of the sources */
    int32_t level;                                  /* enum cairn_level that is reached; -1: none */
    int32_t error;                                  /* 0, or the save's error */
};
CAIRN_API int cairn_save_progress(cairn_save *save, struct cairn_save_progress *ret);
/* Fails the save with -ECANCELED. -EALREADY: the file has its name; -EINPROGRESS: the filesystem is
 * just publishing the name (ask cairn_save_wait()). Blocks until no source is read any more, except
 * by a write that is under way: its bytes are discarded, and its source may be freed. */
CAIRN_API int cairn_save_abort(cairn_save *save);
/* As cairn_save_abort(), with `error` (negative errno) and a cause: for example, a source
 * changed. */
CAIRN_API int cairn_save_fail(cairn_save *save, int error, const char *cause);
/* Returns the error of a failed save; 0: the save has not failed. The text belongs to the save.
 * cairn_lane_take_error() does not report this save again. */
CAIRN_API int cairn_save_error(cairn_save *save, const char **ret_text);
/* Frees the handle; the save itself continues. NULL: no effect. */
CAIRN_API void cairn_save_free(cairn_save *save);

/* The path at which the file appears, links followed; absolute if known. The text belongs to the
 * save. */
CAIRN_API const char *cairn_save_path(const cairn_save *save);

/* --- a load ----------------------------------------------------------------------------------- */

/* Several threads read ranges of one file into memory of the caller, at most 1 MiB a read: in the
 * order of the file within one cairn_load_get(), and the calls one after the other. A read never
 * crosses a border of target start + k MiB, where k > 0, as CairnFS stores tensors in such chunks:
 * a read of a whole chunk costs the mount least. On a CairnFS mount reads bypass the page cache
 * (O_DIRECT); elsewhere they are plain reads. */

enum cairn_load_flags {
    /* through the page cache on CairnFS, too: other processes read this file as well */
    CAIRN_LOAD_BUFFERED = 1,
};

struct cairn_load_options {
    size_t size;
    uint32_t threads; /* that read; 0: 4; at most 64 */
    uint32_t flags;   /* enum cairn_load_flags */
};

/* Opens `path` for reading: the load stays with that file when another one replaces it at `path`.
 * `options` may be NULL. Blocks as open(2) does. Errors: those of open(2); -EISDIR; -ENOTSUP: no
 * regular file; -EINVAL: of the options; -ENOMEM, -ECHILD; *ret is NULL then. The load keeps the
 * lane until cairn_load_free(), also after cairn_lane_close(). */
CAIRN_API int cairn_load_open(cairn_lane *lane, const char *path,
                              const struct cairn_load_options *options, cairn_load **ret);

/* Returns the descriptor of the file, for pread(2) of small ranges by the caller. It belongs to the
 * load. */
CAIRN_API int cairn_load_fd(const cairn_load *load);

/* The size of the file in bytes when it was opened. */
CAIRN_API uint64_t cairn_load_size(const cairn_load *load);

enum cairn_target_flags {
    /* The memory was just mapped, and the threads that read fault it in: cheaper than a fault at
     * each page. */
    CAIRN_TARGET_FRESH = 1,
};

/* A range of the file, and the memory that receives its bytes. The memory stays allocated, and
 * nobody else uses it, until cairn_load_wait() for this target has returned something else than
 * -ETIMEDOUT, or cairn_load_free() has returned. Targets may overlap in the file, but never in
 * memory. */
struct cairn_target {
    uint64_t offset, length; /* in the file */
    void *host;
    uint32_t flags;       /* enum cairn_target_flags */
    uint32_t reserved32;  /* 0 */
    uint64_t reserved[3]; /* 0: a device, its memory and its stream, in a later version */
};

/* Begins to read, and returns at once. The call copies the array. Targets are numbered from 0,
 * consecutively over all calls of a load. -EINVAL: a range outside the file, or no memory given for
 * it; -ENOMEM, -EAGAIN: no memory, no thread. After any of these errors no target of the call is
 * read. Also returns the load's own error. */
CAIRN_API int cairn_load_get(cairn_load *load, const struct cairn_target *targets, size_t count);

/* Returns 0 when the `count` targets from number `first` on are filled, and size and mtime of the
 * file are as they were when it was opened. -EBADMSG: size or mtime differ: the file was changed in
 * place. -ETIMEDOUT. -EINVAL: there are no such targets. Or the error of the load, if one of these
 * targets is not filled, once no thread writes to any target: that of read(2), -EIO for a file that
 * ends too early, -ENOMEM: no memory for a FRESH target, -EFAULT, -ECANCELED. The content of a
 * target that is not filled is undefined. */
CAIRN_API int cairn_load_wait(cairn_load *load, size_t first, size_t count, int timeout_ms);

/* No further read begins: targets that are not filled stay so, and the load's error is -ECANCELED,
 * unless it already has an error. Does not block; cairn_load_wait() for these targets returns when
 * no thread writes to them any more. On a CairnFS mount reads under way end at once, also those
 * that wait for a remote, unless other loads read the same file; elsewhere a read that the
 * filesystem holds up ends when the filesystem ends it. */
CAIRN_API int cairn_load_cancel(cairn_load *load);

/* Cancels the targets that are not read yet, waits until no thread writes to a target, closes the
 * file. In a child of fork it frees only memory. NULL: no effect. */
CAIRN_API void cairn_load_free(cairn_load *load);

/* The cause of the last error that a call returned to this thread; "" if none. */
CAIRN_API const char *cairn_error(void);

#ifdef __cplusplus
}
#endif
#endif
