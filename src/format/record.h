// SPDX-License-Identifier: Apache-2.0
/* Journal records: the ordered namespace operations, in memory and as bytes.
 *
 * The same bytes go to the stage's log (as the operation happens) and to the journal's segments
 * (when they become durable). docs/on-disk-format.md describes them field by field.
 *
 * Sequence numbers: epoch in the upper 24 bits, a counter in the lower 40; strictly ascending,
 * never reused. Pure functions; any thread. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"

#define SEQ_EPOCH_SHIFT 40
#define EPOCH_MAX ((1ull << (64 - SEQ_EPOCH_SHIFT)) - 1)
#define NAME_LEN_MAX 255u
#define RECORD_HEADER_LEN 32u
/* Larger changes are split over several EXTENTS records. */
#define RECORD_LEN_MAX (16u * 1024 * 1024)
#define RECORD_EXTENTS_MAX 4096u /* extents of one EXTENTS or SEAL record */
/* largest number of changed bytes of a version stored in its record */
#define INLINE_MAX (16u * 1024)

enum record_type {
    /* In segments and in the stage's log. */
    /* a version of a file: ino, version, keep, attrs, extents; with RECORD_BIRTH also its first
     * name: parent, cookie, name */
    REC_SEAL = 1,
    /* directory, symbolic link or special file: ino, parent, cookie, name, attrs, value (link
     * target) */
    REC_MAKE = 2,
    REC_LINK = 3, /* ino, parent, cookie, name */
    /* ino, parent, name: unlink, and rmdir of a directory; RECORD_ORPHAN: that was the last name,
     * the inode lives on */
    REC_UNLINK = 4,
    /* ino from (parent, name) to (parent2, name2) with cookie. ino2: the replaced inode or, with
     * RECORD_EXCHANGE, the inode that moves to (parent, name) with cookie2; 0: the name was free.
     * RECORD_ORPHAN: ino2 lost its last name and lives on */
    REC_RENAME = 5,
    REC_SETATTR = 6,     /* ino, mask, attrs */
    REC_SETXATTR = 7,    /* ino, name, value */
    REC_REMOVEXATTR = 8, /* ino, name */
    REC_REAP = 9,        /* ino: the end of an orphan */
    REC_EXTENTS = 16,    /* ino, version, extents: precedes the SEAL of that version */
    REC_PACK = 17,       /* pack, length, count: a pack is now part of the tier */
    /* pack: no longer needed; its file is removed once this record is durable */
    REC_DROP = 18,

    /* In a feed only. */
    /* the newest version of a file among those that the feed seals: ino, version, attrs, length
     * (stored bytes of its content), count (its pages); RECORD_BIRTH: parent, cookie, name */
    REC_VERSION = 24,

    /* In the union of several nodes' names only. */
    /* A directory that is missing in the union, and to which records of a node may refer. ino2 is
     * the directory used in its place; 0: none, and (parent, name), attrs are its last ones. ino2
     * == ino: the directory is back */
    REC_STAND_IN = 25,

    /* In the stage's log only. */
    /* a file that has no version yet: ino, parent, cookie, name, attrs; RECORD_ORPHAN: it has no
     * name, or lost it */
    REC_NASCENT = 32,
    /* draft content is discarded: ino, version, offset, length (~0: to the end), attrs.size (the
     * size afterwards) */
    REC_ERASE = 33,
    /* state of a layer, replaces its earlier state: ino, version, keep, attrs; RECORD_SEALED */
    REC_LAYER = 34,
    /* range of the preceding layer: ino, version, offset, length, slab, slab_offset */
    REC_RANGE = 35,
    /* range of a draft or of a sealed version whose bytes are now in a chunk: ino, version, extents
     * (one); time: mtime of the draft, 0: unchanged */
    REC_PIECE = 36,
};

enum record_flags {
    RECORD_BIRTH = 1 << 0, /* SEAL: first version, with the name */
    /* UNLINK, RENAME, NASCENT: the inode lives on without a name until REAP. LINK, in the union of
     * several nodes' names only: the inode had no name before */
    RECORD_ORPHAN = 1 << 1,
    RECORD_EXCHANGE = 1 << 2,     /* RENAME: both names stay and exchange their inodes */
    RECORD_ELIDED = 1 << 3,       /* SEAL: without content, a later SEAL of the same batch has it */
    RECORD_SEALED = 1 << 4,       /* LAYER: a sealed version, not a draft */
    RECORD_STARTS_WRITE = 1 << 5, /* RANGE: an application write begins here */
    /* DROP: chunks of the pack that are still in use are fetched from the remote, which has them */
    RECORD_EVICTED = 1 << 6,
    /* In a node's journal: the operation was taken from the union of several nodes' operations, so
     * the node does not publish it. A VERSION record with this flag is a file of another node,
     * whose content this store lacks. */
    RECORD_TAKEN = 1 << 7,
};

enum attr_mask {
    ATTR_MODE = 1 << 0,
    ATTR_UID = 1 << 1,
    ATTR_GID = 1 << 2,
    ATTR_ATIME = 1 << 3,
    ATTR_MTIME = 1 << 4,
    ATTR_CTIME = 1 << 5,
};

/* Times are nanoseconds since 1970. */
struct attrs {
    uint32_t mode; /* with the type bits */
    uint32_t uid, gid;
    uint32_t rdev;
    uint64_t size;
    int64_t atime, mtime, ctime, btime;
};

enum extent_kind {
    EXTENT_HOLE = 0,   /* reads as zeros */
    EXTENT_CHUNK = 1,  /* part of a chunk */
    EXTENT_INLINE = 2, /* bytes are in the record's value, the inline extents in order */
};

struct extent {
    uint64_t offset; /* in the file */
    uint64_t length;
    enum extent_kind kind;
    struct chunk_name chunk; /* EXTENT_CHUNK */
    uint32_t chunk_offset;   /* EXTENT_CHUNK: where the range begins in the chunk */
};

/* One record. `type` determines which fields are used; the others are zero. After decoding, name,
 * name2, value and the encoded extents point into the decoded buffer. */
struct record {
    uint16_t type;
    uint16_t writer;
    uint32_t flags;
    uint64_t seq;
    /* hybrid time, ns: later than that of the preceding record, unless the clock was set back by
     * more than 10 s */
    int64_t time;

    uint64_t ino, ino2;
    uint64_t version; /* of the inode: first is 1 */
    uint64_t parent, parent2;
    /* Position of the entry in its directory's order: the seq at which it entered the directory. A
     * rename over an existing name, and an exchange, leave each name its position; a rename within
     * a directory keeps the position of the entry. */
    uint64_t cookie, cookie2;
    /* SEAL, LAYER: how many bytes of the previous version remain below the extents */
    uint64_t keep;
    uint64_t offset, length;
    uint64_t pack;
    uint32_t count;
    uint32_t mask; /* enum attr_mask */
    uint32_t slab, slab_offset;
    struct attrs attrs;
    const char *name, *name2; /* not NUL-terminated */
    uint16_t name_len, name2_len;
    const void *value;
    uint32_t value_len;
    uint32_t extent_count;
    const struct extent *extents;   /* to encode */
    const uint8_t *extents_encoded; /* after decoding: use record_extent() */
};

/* Encoded length of `rec` in bytes, a multiple of 8. */
size_t record_encoded_len(const struct record *rec);

/* Writes exactly record_encoded_len() bytes. The record must be within the limits above. */
void record_encode(const struct record *rec, void *buf);

/* Decodes the record at the start of `buf`. On success *ret_len is its length in bytes.
 * Errors: -EUCLEAN (structure, limits, a name with '/' or NUL), -EBADMSG (checksum),
 * -EPROTONOSUPPORT (unknown type). */
CAIRN_MUST_CHECK int record_decode(const void *buf, size_t len, struct record *ret_rec,
                                   size_t *ret_len);

/* Extent `i` of a decoded record (i < extent_count). */
struct extent record_extent(const struct record *rec, uint32_t i);

/* Applies a SETATTR to the attributes of its inode, for the overlay and the view alike. */
void record_set_attrs(const struct record *rec, struct attrs *attrs);

/* Does the record create an inode, with its first name? */
static inline bool record_makes_inode(const struct record *rec)
{
    return rec->type == REC_MAKE || (rec->type == REC_VERSION && rec->flags & RECORD_BIRTH);
}

/* For messages: "SEAL", "RENAME"... */
const char *record_type_name(uint16_t type);
