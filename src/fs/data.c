/* Content: reading, writing, cutting, seeking, copying. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>

#include "fs/internal.h"

#define FILE_SIZE_MAX ((uint64_t)INT64_MAX - 4096)

static const uint8_t zeros[64 * 1024];

int cut(struct fs *fs, uint64_t ino, uint64_t offset, uint64_t length, uint64_t new_size)
{
    if (new_size > FILE_SIZE_MAX)
        return -EFBIG;
    return store_cut(fs->store, ino, offset, length, new_size);
}

int fs_write(struct fs *fs, uint64_t ino, uint64_t offset, uint32_t length, uint32_t slab, const void *data,
             const struct fs_caller *caller)
{
    if (offset > FILE_SIZE_MAX - length)
        return -EFBIG;
    int r = store_admit(fs->store, length);
    if (r < 0)
        return r;
    if (caller->uid != 0) {
        struct ns_inode inode;
        r = ns_inode(fs->ns, ino, &inode);
        if (r == 0)
            r = kill_privileges(fs, &inode, caller);
        if (r < 0)
            return r;
    }
    struct stage_write w = {.ino = ino, .offset = offset, .length = length, .slab = slab, .data = data};
    return store_write(fs->store, &w);
}

/* --- reading ------------------------------------------------------------------------------------------------------------ */

/* How much of [offset, offset + length) lies within the file. */
static int clamp(struct fs *fs, uint64_t ino, uint64_t offset, size_t *length)
{
    struct ns_inode inode;
    int r = ns_inode(fs->ns, ino, &inode);
    if (r < 0)
        return r;
    uint64_t size = size_now(fs, &inode);
    *length = offset >= size ? 0 : (size_t)min_u64(*length, size - offset);
    return 0;
}

static bool add_zeros(struct fs_read *read, uint64_t length)
{
    while (length > 0) {
        if (read->iov_count == FS_READ_PARTS)
            return false;
        size_t n = (size_t)min_u64(length, sizeof zeros);
        read->iov[read->iov_count++] = (struct iovec){(void *)(uintptr_t)zeros, n};
        length -= n;
    }
    return true;
}

/* True if all parts are in memory, and fit the answer. */
static bool answer_from_memory(struct fs_read *read)
{
    uint64_t covered = 0;
    for (size_t i = 0; i < read->part_count; i++) {
        const struct stage_part *part = &read->parts[i];
        covered += part->length;
        if (part->kind == PART_HOLE && !add_zeros(read, part->length))
            return false;
        if (part->kind == PART_HOLE)
            continue;
        if (part->kind != PART_MEMORY || read->iov_count == FS_READ_PARTS)
            return false;
        read->iov[read->iov_count++] = (struct iovec){(void *)(uintptr_t)part->memory, part->length};
    }
    return covered == read->length;
}

int fs_read_fast(struct fs *fs, uint64_t ino, uint64_t offset, size_t length, struct fs_read *ret)
{
    int r = clamp(fs, ino, offset, &length);
    ret->length = length;
    ret->iov_count = ret->part_count = 0;
    if (r < 0 || length == 0)
        return r;
    ret->part_count = stage_read(fs->stage, ino, offset, length, ret->parts, FS_READ_PARTS);
    if (answer_from_memory(ret))
        return 0;
    fs_read_done(fs, ret);
    return 1;
}

void fs_read_done(struct fs *fs, struct fs_read *read)
{
    stage_unpin_parts(fs->stage, read->parts, read->part_count);
    read->part_count = 0;
}

/* One part into `buf`. *ret_good: what is right before damage. */
static int read_part(struct fs *fs, uint64_t ino, const struct stage_part *part, uint8_t *buf, size_t *ret_good)
{
    *ret_good = 0;
    switch (part->kind) {
    case PART_MEMORY:
        memcpy(buf, part->memory, part->length);
        return 0;
    case PART_HOLE:
        memset(buf, 0, part->length);
        return 0;
    case PART_CHUNK:
        return store_read_chunk(fs->store, ino, &part->name, part->chunk_offset, buf, part->length);
    case PART_BELOW:
        return store_read_below(fs->store, ino, part->offset, buf, part->length, ret_good);
    }
    return -EIO;
}

ssize_t fs_read_slow(struct fs *fs, uint64_t ino, uint64_t offset, void *buf, size_t length, bool may_be_short)
{
    int r = clamp(fs, ino, offset, &length);
    size_t done = 0;
    struct stage_part parts[64];
    while (r == 0 && done < length) {
        size_t count = stage_read(fs->stage, ino, offset + done, length - done, parts, ARRAY_LEN(parts));
        for (size_t i = 0; i < count && r == 0; i++) {
            size_t good;
            r = read_part(fs, ino, &parts[i], (uint8_t *)buf + done, &good);
            done += r == 0 ? parts[i].length : good;
        }
        stage_unpin_parts(fs->stage, parts, count);
    }
    if (r < 0 && !(may_be_short && done > 0))
        return r;
    return (ssize_t)done;
}

/* --- fallocate ------------------------------------------------------------------------------------------------------------ */

static int fallocate_held(struct fs *fs, const struct ns_inode *inode, int mode, uint64_t offset, uint64_t length)
{
    uint64_t size = size_now(fs, inode), end = offset + length;
    bool keep_size = mode & FALLOC_FL_KEEP_SIZE;
    uint64_t new_size = keep_size ? size : max_u64(size, end);
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
        if (offset >= size)
            return new_size > size ? cut(fs, inode->ino, size, UINT64_MAX, new_size) : 0;
        return cut(fs, inode->ino, offset, end >= size ? UINT64_MAX : length, new_size);
    }
    /* Room is given when bytes come; but not even trying what cannot fit is an error now. */
    int r = new_size > size ? store_admit(fs->store, 0) : 0;
    if (r == 0 && new_size > size)
        r = cut(fs, inode->ino, new_size, UINT64_MAX, new_size);
    return r;
}

int fs_fallocate(struct fs *fs, uint64_t ino, int mode, uint64_t offset, uint64_t length)
{
    const int known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
    if (mode & ~known)
        return -EOPNOTSUPP;
    if (mode & FALLOC_FL_PUNCH_HOLE && (!(mode & FALLOC_FL_KEEP_SIZE) || mode & FALLOC_FL_ZERO_RANGE))
        return -EOPNOTSUPP;
    if (length == 0)
        return -EINVAL;
    if (offset > FILE_SIZE_MAX - length)
        return -EFBIG;
    struct ns_inode inode;
    int r = ns_hold(fs->ns, ino, &inode);
    if (r < 0)
        return r;
    r = S_ISREG(inode.attrs.mode) ? fallocate_held(fs, &inode, mode, offset, length) : -ENODEV;
    ns_drop(fs->ns, ino);
    return r;
}

/* --- seeking ---------------------------------------------------------------------------------------------------------------- */

struct seeking {
    bool want_data;
    bool found;
    uint64_t at;
};

static int seek_extent(const struct view_extent *part, void *arg)
{
    struct seeking *seek = arg;
    bool is_data = part->extent.kind != EXTENT_HOLE;
    if (is_data != seek->want_data)
        return 0;
    seek->found = true;
    seek->at = part->extent.offset;
    return 1;
}

/* Looks for data or a hole within one part. */
static int seek_part(struct fs *fs, uint64_t ino, const struct stage_part *part, struct seeking *seek)
{
    if (part->kind == PART_BELOW) {
        int r = store_extents_below(fs->store, ino, part->offset, part->length, seek_extent, seek);
        return r == -ENOENT ? 0 : r;
    }
    if ((part->kind != PART_HOLE) == seek->want_data) {
        seek->found = true;
        seek->at = part->offset;
    }
    return 0;
}

int64_t fs_lseek(struct fs *fs, uint64_t ino, uint64_t offset, int whence)
{
    struct ns_inode inode;
    int r = ns_inode(fs->ns, ino, &inode);
    if (r < 0)
        return r;
    if (whence != SEEK_DATA && whence != SEEK_HOLE)
        return -EINVAL;
    uint64_t size = size_now(fs, &inode);
    if (offset >= size)
        return -ENXIO;
    struct seeking seek = {.want_data = whence == SEEK_DATA};
    struct stage_part parts[64];
    while (offset < size && !seek.found && r == 0) {
        size_t count = stage_read(fs->stage, ino, offset, size - offset, parts, ARRAY_LEN(parts));
        for (size_t i = 0; i < count && r == 0 && !seek.found; i++)
            r = seek_part(fs, ino, &parts[i], &seek);
        offset = parts[count - 1].offset + parts[count - 1].length;
        stage_unpin_parts(fs->stage, parts, count);
    }
    if (r < 0)
        return r;
    if (seek.found)
        return (int64_t)seek.at;
    /* The end of a file is a hole. */
    return seek.want_data ? -ENXIO : (int64_t)size;
}

/* --- copying ---------------------------------------------------------------------------------------------------------------- */

struct copying {
    struct fs *fs;
    const struct fs_caller *caller;
    uint64_t to, from_offset, to_offset;
    size_t done;
};

static uint64_t target_offset(const struct copying *copy, uint64_t from)
{
    return copy->to_offset + (from - copy->from_offset);
}

static int copy_bytes(struct copying *copy, uint64_t from, const uint8_t *bytes, uint64_t length)
{
    while (length > 0) {
        uint32_t n = (uint32_t)min_u64(length, STAGE_STEAL_MIN / 2);
        int r = fs_write(copy->fs, copy->to, target_offset(copy, from), n, SLAB_NONE, bytes, copy->caller);
        if (r < 0)
            return r;
        copy->done += n;
        from += n;
        bytes += n;
        length -= n;
    }
    return 0;
}

static int copy_hole(struct copying *copy, uint64_t from, uint64_t length)
{
    struct ns_inode inode;
    uint64_t at = target_offset(copy, from);
    int r = ns_inode(copy->fs->ns, copy->to, &inode);
    if (r < 0)
        return r;
    uint64_t size = size_now(copy->fs, &inode);
    r = cut(copy->fs, copy->to, at, at + length >= size ? UINT64_MAX : length, max_u64(size, at + length));
    if (r == 0)
        copy->done += length;
    return r;
}

static int copy_chunk(struct copying *copy, uint64_t from, uint64_t length, const struct chunk_name *name,
                      uint32_t chunk_offset)
{
    int r = store_put_chunk(copy->fs->store, copy->to, target_offset(copy, from), length, name, chunk_offset);
    if (r == 0)
        copy->done += length;
    return r;
}

static int copy_extent(const struct view_extent *part, void *arg)
{
    const struct extent *e = &part->extent;
    switch (e->kind) {
    case EXTENT_CHUNK:
        return copy_chunk(arg, e->offset, e->length, &e->chunk, e->chunk_offset);
    case EXTENT_INLINE:
        return copy_bytes(arg, e->offset, part->bytes, e->length);
    case EXTENT_HOLE:
        return copy_hole(arg, e->offset, e->length);
    }
    return -EIO;
}

static int copy_part(struct copying *copy, uint64_t from_ino, const struct stage_part *part)
{
    switch (part->kind) {
    case PART_MEMORY:
        return copy_bytes(copy, part->offset, part->memory, part->length);
    case PART_CHUNK:
        return copy_chunk(copy, part->offset, part->length, &part->name, part->chunk_offset);
    case PART_HOLE:
        return copy_hole(copy, part->offset, part->length);
    case PART_BELOW:
        return store_extents_below(copy->fs->store, from_ino, part->offset, part->length, copy_extent, copy);
    }
    return -EIO;
}

ssize_t fs_copy(struct fs *fs, uint64_t from, uint64_t from_offset, uint64_t to, uint64_t to_offset, size_t length,
                const struct fs_caller *caller)
{
    int r = clamp(fs, from, from_offset, &length);
    struct copying copy = {
        .fs = fs, .caller = caller, .to = to, .from_offset = from_offset, .to_offset = to_offset};
    struct stage_part parts[64];
    if (to_offset > FILE_SIZE_MAX - length)
        return -EFBIG;
    while (r == 0 && copy.done < length) {
        size_t count = stage_read(fs->stage, from, from_offset + copy.done, length - copy.done, parts, ARRAY_LEN(parts));
        for (size_t i = 0; i < count && r == 0; i++)
            r = copy_part(&copy, from, &parts[i]);
        stage_unpin_parts(fs->stage, parts, count);
    }
    return copy.done > 0 ? (ssize_t)copy.done : r;
}
