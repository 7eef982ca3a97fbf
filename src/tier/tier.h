/* A tier: a place where packs and segments live. One table of operations; objects are named by short paths
 * ("packs/00.../ID", "journal/N"). A tier knows nothing of files.
 *
 * Objects are immutable once put, except logs (append). All calls block; any thread; different objects in parallel.
 * Errors are -errno of the medium; -ENOENT no such object; -EEXIST (put_new). Names come from us only: hex digits,
 * letters, '/', '.' and '-'. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

/* Room is reserved in units of this: a whole pack, as writeback makes them. */
#define TIER_RESERVE_UNIT (28 * MIB)

struct tier;

struct tier_space {
    uint64_t total_bytes; /* of the medium */
    uint64_t free_bytes;  /* that we may still take */
};

struct tier_ops {
    const char *name;
    void (*close)(struct tier *tier);

    /* Stores an object; the content is durable on return, the name after sync(). `buf` is aligned to 4096 and
     * readable up to the next multiple of 4096 after len. */
    int (*put)(struct tier *tier, const char *object, const void *buf, size_t len);

    /* As put(), but -EEXIST if the name is taken. */
    int (*put_new)(struct tier *tier, const char *object, const void *buf, size_t len);

    /* Exactly len bytes at offset; -EUCLEAN where the object ends before. */
    int (*get_range)(struct tier *tier, const char *object, uint64_t offset, void *buf, size_t len);

    int (*stat)(struct tier *tier, const char *object, uint64_t *ret_len);
    int (*list)(struct tier *tier, const char *folder, int (*fn)(const char *object, uint64_t len, void *arg), void *arg);

    /* Gone already is no error. The room is free on return; the name's removal is durable after sync(). */
    int (*remove)(struct tier *tier, const char *object);

    /* Every put and remove that returned before is durable, names too. */
    int (*sync)(struct tier *tier);

    /* Logs, NULL where the medium has none. log_create makes an object of `room` zero bytes, allocated and durable with
     * its name. log_append writes at `offset` (any) and makes it durable; after an error the log must not be written
     * again. */
    int (*log_create)(struct tier *tier, const char *object, uint64_t room);
    int (*log_append)(struct tier *tier, const char *object, uint64_t offset, const void *buf, size_t len);

    /* Keeps at least `bytes` of room allocated ahead for later puts, so that these cannot meet -ENOSPC: files of
     * zeros that put() takes over. Grows and shrinks towards it. -ENOSPC: the medium has less; what could be had is
     * kept. *ret_held: bytes held now. */
    int (*reserve)(struct tier *tier, uint64_t bytes, uint64_t *ret_held);

    int (*space)(struct tier *tier, struct tier_space *ret_space);
};

struct tier {
    const struct tier_ops *ops;
};

/* A directory on local NVMe (or any POSIX filesystem): O_DIRECT where the filesystem has it. `path` must exist.
 * Subfolders packs/, journal/ and room/ are made. Leftovers in room/ from an earlier run are removed.
 * -EROFS, -EACCES, -ENOSPC and so on as the filesystem says. */
CAIRN_MUST_CHECK int nvme_tier_open(const char *path, struct tier **ret_tier);

/* For tests: passes everything on to `below` (owned), and fails or delays the calls that `fn` says. `fn` gets the name of
 * the operation and the object and returns 0 to go on or a -errno to fail without calling. */
struct tier *fault_tier_new(struct tier *below, int (*fn)(const char *op, const char *object, void *arg), void *arg);
