// SPDX-License-Identifier: Apache-2.0
/* Content: reading, writing, erasing, seeking, copying. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>

#include "base/cause.h"
#include "commit/packs.h"
#include "fs/internal.h"
#include "fs/past.h"
#include "store/lookback.h"
#include "view/view.h"

#define REFER_TRIES 4u /* attempts to refer to a chunk of an earlier state */

static bool ends_too_late(uint64_t offset, uint64_t length)
{
    return length > FILE_SIZE_MAX || offset > FILE_SIZE_MAX - length;
}

int content_erase(struct fs *fs, uint64_t ino, uint64_t offset, uint64_t length, uint64_t new_size)
{
    if (new_size > FILE_SIZE_MAX)
        return -EFBIG;
    return history_erase(fs->commit->history, ino, offset, length, new_size);
}

int fs_write(struct fs *fs, const struct fs_write *w, const struct fs_caller *caller)
{
    if (ends_too_late(w->offset, w->length))
        return -EFBIG;
    TRY(room_admit(fs->commit->room, w->length));
    if (caller) {
        struct ns_inode inode;
        TRY(ns_inode(fs->ns, w->ino, &inode));
        TRY(kill_privileges(fs, &inode, caller));
    }
    struct stage_write staged = {
        .ino = w->ino, .offset = w->offset, .length = w->length, .slab = w->slab, .data = w->data};
    return history_write(fs->commit->history, &staged);
}

/* --- reading ---------------------------------------------------------------------------------- */

static void note_access(const struct commit_now *now, void *fs)
{
    access_note(fs, now);
}

void fs_read(struct fs *fs, const struct fetch_read_request *request, bool leaves_atime)
{
    struct fetch_read_request looking = *request;
    struct ns_inode inode;
    if (fs_is_past(request->ino)) {
        fetch_start_read(history_store(fs), request);
        return;
    }
    if (ns_inode(fs->ns, request->ino, &inode) == 0 && inode.is_elsewhere) {
        elsewhere_read(fs, request);
        return;
    }
    if (!leaves_atime && atomic_load(&fs->updates_atime)) {
        looking.looked = note_access;
        looking.looked_arg = fs;
    }
    fetch_start_read(fs->store, &looking);
}

/* --- fallocate -------------------------------------------------------------------------------- */

/* Room is reserved when the bytes are written, and may become free until then; but a file larger
 * than NVMe can ever hold is refused. */
static int check_room_for_data(struct fs *fs, const struct commit_now *now, uint64_t length)
{
    struct statvfs space;
    uint64_t had = min_u64(blocks_now(fs, now), length);
    int r = fs_statfs(fs, &space);
    if (r < 0 || (length - had) / space.f_bsize <= space.f_blocks)
        return r;
    cause_note("more than NVMe can ever hold; mount with a larger nvme=SIZE");
    return -ENOSPC;
}

/* As on ext4: frees the whole blocks within the hole, including the last one of the file; ranges
 * that were allocated behind it stay. */
static int punch_hole(struct fs *fs, const struct ns_inode *inode, uint64_t size, uint64_t offset,
                      uint64_t end)
{
    if (offset >= size)
        return touch(fs, inode->ino);
    TRY(content_erase(fs, inode->ino, offset, end >= size ? UINT64_MAX : end - offset, size));
    return allocated_remove(fs, inode, offset, end >= size ? align_up(size, 4096) : end);
}

static int zero_range(struct fs *fs, uint64_t ino, uint64_t size, uint64_t offset, uint64_t end,
                      uint64_t new_size)
{
    if (offset >= size)
        return new_size > size ? content_erase(fs, ino, size, UINT64_MAX, new_size)
                               : touch(fs, ino);
    return content_erase(fs, ino, offset, end >= size ? UINT64_MAX : end - offset, new_size);
}

static int fallocate_held(struct fs *fs, const struct ns_inode *inode, int mode, uint64_t offset,
                          uint64_t length)
{
    struct commit_now now;
    TRY(commit_look(fs->commit, inode->ino, &now));
    uint64_t size = now.size, end = offset + length;
    uint64_t new_size = mode & FALLOC_FL_KEEP_SIZE ? size : max_u64(size, end);
    if (mode & FALLOC_FL_PUNCH_HOLE)
        return punch_hole(fs, inode, size, offset, end);
    TRY(check_room_for_data(fs, &now, length));
    TRY(room_admit_change(fs->commit->room, 0));
    TRY(allocated_add(fs, inode, offset, end));
    if (mode & FALLOC_FL_ZERO_RANGE)
        return zero_range(fs, inode->ino, size, offset, end, new_size);
    return new_size == size ? touch(fs, inode->ino)
                            : content_erase(fs, inode->ino, new_size, UINT64_MAX, new_size);
}

int fs_fallocate(struct fs *fs, uint64_t ino, int mode, uint64_t offset, uint64_t length,
                 const struct fs_caller *caller)
{
    const int known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
    if (mode & ~known)
        return -EOPNOTSUPP;
    if (mode & FALLOC_FL_PUNCH_HOLE &&
        (!(mode & FALLOC_FL_KEEP_SIZE) || mode & FALLOC_FL_ZERO_RANGE))
        return -EOPNOTSUPP;
    if (length == 0)
        return -EINVAL;
    if (ends_too_late(offset, length))
        return -EFBIG;
    struct ns_inode inode;
    TRY(ns_hold(fs->ns, ino, &inode));
    int r = S_ISREG(inode.attrs.mode) ? 0 : -ENODEV;
    if (r == 0)
        r = kill_privileges(fs, &inode, caller);
    if (r == 0)
        r = fallocate_held(fs, &inode, mode, offset, length);
    ns_drop(fs->ns, ino);
    return r;
}

/* --- seeking ---------------------------------------------------------------------------------- */

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

/* Searches data or a hole within one part. */
static int seek_part(struct fs *fs, uint64_t ino, const struct stage_part *part,
                     struct seeking *seek)
{
    if (part->kind == PART_BELOW) {
        int r = view_extents(fs->commit->local->view, ino, part->offset, part->length, seek_extent,
                             seek);
        return r == -ENOENT ? 0 : r;
    }
    if ((part->kind != PART_HOLE) == seek->want_data) {
        seek->found = true;
        seek->at = part->offset;
    }
    return 0;
}

int64_t seek_view(struct view *view, uint64_t ino, const struct seek_range *range)
{
    struct seeking seek = {.want_data = range->whence == SEEK_DATA};
    if (range->whence != SEEK_DATA && range->whence != SEEK_HOLE)
        return -EINVAL;
    TRY(view_extents(view, ino, range->offset, range->size - range->offset, seek_extent, &seek));
    if (seek.found)
        return (int64_t)seek.at;
    return seek.want_data ? -ENXIO : (int64_t)range->size;
}

int64_t fs_lseek(struct fs *fs, uint64_t ino, uint64_t offset, int whence)
{
    struct commit_now now;
    int r = commit_look(fs->commit, ino, &now);
    TRY(r);
    if (whence != SEEK_DATA && whence != SEEK_HOLE)
        return -EINVAL;
    uint64_t size = now.size;
    if (offset >= size)
        return -ENXIO;
    if (now.inode.is_elsewhere) /* all of it counts as data */
        return (int64_t)(whence == SEEK_DATA ? offset : size);
    struct seeking seek = {.want_data = whence == SEEK_DATA};
    struct stage_part parts[64];
    while (offset < size && !seek.found && r == 0) {
        size_t count = stage_read(fs->stage, ino, offset, size - offset, parts, ARRAY_LEN(parts));
        for (size_t i = 0; i < count && r == 0 && !seek.found; i++)
            r = seek_part(fs, ino, &parts[i], &seek);
        offset = parts[count - 1].offset + parts[count - 1].length;
        stage_unpin_parts(fs->stage, parts, count);
    }
    TRY(r);
    if (seek.found)
        return (int64_t)seek.at;
    /* The end of a file is a hole. */
    return seek.want_data ? -ENXIO : (int64_t)size;
}

/* --- copying ---------------------------------------------------------------------------------- */

struct copying {
    struct fs *fs;
    const struct fs_caller *caller;
    const struct fs_copy *how;
    struct view *past; /* the source belongs to this earlier state; NULL: to the newest */
    size_t done;
};

static uint64_t target_offset(const struct copying *copy, uint64_t from)
{
    return copy->how->to_offset + (from - copy->how->from_offset);
}

/* `bytes`: the source in memory; NULL: it is read. */
static int read_source(const struct copying *copy, const uint8_t *bytes, uint64_t from, void *buf,
                       size_t length)
{
    const struct fetch_read how = {.ino = copy->how->from,
                                   .offset = from,
                                   .buf = buf,
                                   .length = length,
                                   .reach = STORE_REACH_LOCAL};
    struct fetch_read_end end;
    if (bytes) {
        memcpy(buf, bytes, length);
        return 0;
    }
    TRY(fetch_read(copy->fs->store, &how, &end));
    /* From the remote it would take long in this thread: the kernel reads and writes it instead. */
    return end.is_beyond_reach ? -EXDEV : 0;
}

/* Large content is written into a slab of its own, without a lock, as if it had been received
 * there. */
static int copy_large(struct copying *copy, const uint8_t *bytes, uint64_t from, uint32_t length)
{
    struct stage *stage = copy->fs->stage;
    uint32_t slab = stage_slab_try_take(stage);
    if (slab == SLAB_NONE)
        return -EAGAIN;
    const struct fs_write w = {
        .ino = copy->how->to, .offset = target_offset(copy, from), .length = length, .slab = slab};
    int r = read_source(copy, bytes, from,
                        (uint8_t *)stage_slab_memory(stage, slab) + SLAB_PAYLOAD_OFFSET, length);
    if (r == 0)
        r = fs_write(copy->fs, &w, copy->caller);
    if (r < 0)
        stage_slab_give(stage, slab);
    return r;
}

static int copy_small(struct copying *copy, const uint8_t *bytes, uint64_t from, uint32_t length)
{
    _cleanup_free_ uint8_t *buf = xmalloc(length);
    const struct fs_write w = {.ino = copy->how->to,
                               .offset = target_offset(copy, from),
                               .length = length,
                               .slab = SLAB_NONE,
                               .data = buf};
    TRY(read_source(copy, bytes, from, buf, length));
    return fs_write(copy->fs, &w, copy->caller);
}

/* `bytes` NULL: the source's content is read and verified. */
static int copy_bytes(struct copying *copy, const uint8_t *bytes, uint64_t from, uint64_t length)
{
    while (length > 0) {
        uint32_t n = (uint32_t)min_u64(length, SLAB_PAYLOAD);
        TRY(n >= STAGE_STEAL_MIN ? copy_large(copy, bytes, from, n)
                                 : copy_small(copy, bytes, from, n));
        copy->done += n;
        from += n;
        if (bytes)
            bytes += n;
        length -= n;
    }
    return 0;
}

static int copy_hole(struct copying *copy, uint64_t from, uint64_t length)
{
    struct commit_now now;
    uint64_t at = target_offset(copy, from);
    TRY(commit_look(copy->fs->commit, copy->how->to, &now));
    TRY(content_erase(copy->fs, copy->how->to, at, at + length >= now.size ? UINT64_MAX : length,
                      max_u64(now.size, at + length)));
    copy->done += length;
    return 0;
}

static int refer_once(struct copying *copy, const struct stage_chunk_range *chunk)
{
    struct store *store = copy->fs->store;
    struct claim claim = {0};
    if (copy->past)
        lookback_claim(store_lookback(store), copy->past, &chunk->name, &claim);
    int r = history_put_chunk(copy->fs->commit->history, copy->how->to, chunk,
                              store_refers_to_remote(store));
    lookback_unclaim(store_lookback(store), &claim);
    return r;
}

/* If only the earlier state has a place of the chunk in the remote, it is added to the newest
 * state's view first. A head that is published meanwhile may remove it again. */
static int refer(struct copying *copy, const struct stage_chunk_range *chunk)
{
    struct packs *packs = copy->fs->commit->packs;
    for (unsigned i = 1;; i++) {
        uint64_t dooms = packs_dooms(packs);
        int r = refer_once(copy, chunk);
        if (r != -ENOENT || !copy->past || i == REFER_TRIES || !packs_await_dooms(packs, dooms))
            return r;
    }
}

/* Copies by reference, unless the view does not have the chunk yet, or the chunk is being moved. */
static int copy_chunk(struct copying *copy, uint64_t from, uint64_t length,
                      const struct chunk_name *name, uint32_t chunk_offset)
{
    const struct stage_chunk_range chunk = {.offset = target_offset(copy, from),
                                            .length = length,
                                            .name = *name,
                                            .chunk_offset = chunk_offset};
    int r = refer(copy, &chunk);
    if (r == -ENOENT)
        return copy_bytes(copy, NULL, from, length);
    TRY(r);
    copy->done += length;
    return 0;
}

static int copy_extent(const struct view_extent *part, void *arg)
{
    struct copying *copy = arg;
    const struct extent *e = &part->extent;
    if (e->kind == EXTENT_HOLE)
        return copy_hole(copy, e->offset, e->length);
    if (e->kind == EXTENT_INLINE)
        return copy_bytes(copy, part->bytes, e->offset, e->length);
    return copy_chunk(copy, e->offset, e->length, &e->chunk, e->chunk_offset);
}

static int copy_part(struct copying *copy, const struct stage_part *part)
{
    switch (part->kind) {
    case PART_MEMORY:
        return copy_bytes(copy, part->memory, part->offset, part->length);
    case PART_CHUNK:
        return copy_chunk(copy, part->offset, part->length, &part->name, part->chunk_offset);
    case PART_HOLE:
        return copy_hole(copy, part->offset, part->length);
    case PART_BELOW:
        break; /* see copy_parts() */
    }
    return -EIO;
}

static bool is_data_in_view(const struct stage_part *part)
{
    return part->kind == PART_BELOW || (part->kind == PART_MEMORY && part->is_clean);
}

/* Refers to chunks of the view, in ranges as long as possible, also if their content is still in
 * memory. *ret_ended: the source was made shorter meanwhile. */
static int copy_parts(struct copying *copy, const struct stage_part *parts, size_t count,
                      bool *ret_ended)
{
    *ret_ended = false;
    for (size_t i = 0, n; i < count && !*ret_ended; i += n) {
        uint64_t length = parts[i].length;
        for (n = 1; is_data_in_view(&parts[i]) && i + n < count && is_data_in_view(&parts[i + n]);
             n++)
            length += parts[i + n].length;
        uint64_t end = copy->done + length;
        TRY(is_data_in_view(&parts[i])
                ? view_extents(copy->fs->commit->local->view, copy->how->from, parts[i].offset,
                               length, copy_extent, copy)
                : copy_part(copy, &parts[i]));
        *ret_ended = copy->done != end;
    }
    return 0;
}

/* Copies from a file of an earlier state, by reference if the view has the chunk. -EXDEV: the
 * kernel reads and writes it instead. */
static int copy_past(struct copying *copy, size_t length)
{
    struct lookback *lookback = store_lookback(copy->fs->store);
    unsigned slot = past_slot(copy->how->from);
    struct view *view = lookback ? past_views_enter(lookback_views(lookback), slot) : NULL;
    if (!view)
        return -EXDEV;
    copy->past = view;
    int r = view_extents(view, past_number(copy->how->from), copy->how->from_offset, length,
                         copy_extent, copy);
    past_views_leave(lookback_views(lookback), slot);
    return r;
}

/* Needed for copies by reference, and of holes: only a write removes privileges itself. */
static int kill_privileges_of(struct fs *fs, uint64_t ino, const struct fs_caller *caller)
{
    struct ns_inode inode;
    TRY(ns_hold(fs->ns, ino, &inode));
    int r = kill_privileges(fs, &inode, caller);
    ns_drop(fs->ns, ino);
    return r;
}

/* Shortens [offset, offset + length) to the part within the file. */
static int clamp_length(struct fs *fs, uint64_t ino, uint64_t offset, size_t *length)
{
    struct commit_now now;
    TRY(commit_look(fs->commit, ino, &now));
    if (now.inode.is_elsewhere)
        return -EXDEV; /* the kernel reads and writes it instead */
    *length = offset >= now.size ? 0 : (size_t)min_u64(*length, now.size - offset);
    return 0;
}

ssize_t fs_copy(struct fs *fs, const struct fs_copy *how, const struct fs_caller *caller)
{
    size_t length = how->length;
    bool is_past = fs_is_past(how->from);
    TRY(is_past ? 0 : clamp_length(fs, how->from, how->from_offset, &length));
    struct copying copy = {.fs = fs, .caller = caller, .how = how};
    struct stage_part parts[64];
    bool has_ended = false;
    int r = 0;
    if (ends_too_late(how->to_offset, length))
        return -EFBIG;
    if (length > 0)
        TRY(kill_privileges_of(fs, how->to, caller));
    if (is_past)
        r = copy_past(&copy, length);
    while (!is_past && r == 0 && !has_ended && copy.done < length) {
        size_t count = stage_read(fs->stage, how->from, how->from_offset + copy.done,
                                  length - copy.done, parts, ARRAY_LEN(parts));
        r = copy_parts(&copy, parts, count, &has_ended);
        stage_unpin_parts(fs->stage, parts, count);
    }
    if (copy.done > 0 && !is_past)
        fs_accessed(fs, how->from);
    return copy.done > 0 ? (ssize_t)copy.done : r;
}
