// SPDX-License-Identifier: Apache-2.0
/* Allocated ranges, which fallocate added to a file: their blocks are counted by st_blocks, whether
 * they were written or not.
 *
 * No room is reserved for them, and the unwritten part of a range remains a hole for reads and
 * seeks. They exist for programs that check with st_blocks whether fallocate worked (rsync
 * --preallocate), as on ext4. They are stored in an extended attribute that no program can name
 * (fs_setxattr() does not accept its prefix): so they are part of history at once, are published,
 * and survive whenever the file does. A list that is missing or malformed is an empty one: only a
 * count depends on it.
 *
 * The kernel sends one change of a file's size or allocation at a time: nothing else changes the
 * list meanwhile. */
#include "base/log.h"
#include "format/le.h"
#include "fs/internal.h"
#include "view/view.h"

#define LIST_NAME "cairn.allocated"
#define LIST_VERSION 1u
#define HEADER_LEN 8u /* version, then zeros */
#define RANGE_LEN 16u /* offset, length */
#define RANGES_MAX 128u
#define BLOCK 4096u

struct range {
    uint64_t from, to;
};

/* Whole blocks; ascending, with gaps between. */
struct ranges {
    size_t count;
    struct range at[RANGES_MAX + 1]; /* one more than the limit while the list is changed */
};

/* --- the list --------------------------------------------------------------------------------- */

/* False: no list. */
static bool decode_list(const uint8_t *bytes, size_t len, struct ranges *ret)
{
    ret->count = 0;
    if (len <= HEADER_LEN || (len - HEADER_LEN) % RANGE_LEN || get_le32(bytes) != LIST_VERSION)
        return false;
    uint64_t end = 0;
    size_t count = (len - HEADER_LEN) / RANGE_LEN;
    for (size_t i = 0; i < count && i < RANGES_MAX; i++) {
        uint64_t from = get_le64(bytes + HEADER_LEN + i * RANGE_LEN),
                 length = get_le64(bytes + HEADER_LEN + i * RANGE_LEN + 8);
        bool fits = from % BLOCK == 0 && length % BLOCK == 0 && length > 0 &&
                    (i == 0 || from > end) && from <= INT64_MAX && length <= INT64_MAX;
        if (!fits)
            return false;
        ret->at[i] = (struct range){from, end = from + length};
    }
    ret->count = min_u64(count, RANGES_MAX);
    return true;
}

static size_t encode_list(const struct ranges *ranges, uint8_t *bytes)
{
    memset(bytes, 0, HEADER_LEN);
    put_le32(bytes, LIST_VERSION);
    for (size_t i = 0; i < ranges->count; i++) {
        put_le64(bytes + HEADER_LEN + i * RANGE_LEN, ranges->at[i].from);
        put_le64(bytes + HEADER_LEN + i * RANGE_LEN + 8, ranges->at[i].to - ranges->at[i].from);
    }
    return HEADER_LEN + ranges->count * RANGE_LEN;
}

static int load_list(struct fs *fs, const struct ns_inode *inode, struct ranges *ret)
{
    uint8_t bytes[HEADER_LEN + RANGES_MAX * RANGE_LEN];
    ret->count = 0;
    if (!inode->may_have_xattrs)
        return 0;
    ssize_t len =
        ns_getxattr(fs->ns, inode->ino, LIST_NAME, strlen(LIST_NAME), bytes, sizeof bytes);
    if (len == -ENODATA || len == -ERANGE)
        return 0;
    if (len < 0)
        return (int)len;
    if (!decode_list(bytes, (size_t)len, ret))
        ret->count = 0;
    return 0;
}

static int save_list(struct fs *fs, uint64_t ino, const struct ranges *ranges)
{
    uint8_t bytes[HEADER_LEN + RANGES_MAX * RANGE_LEN];
    struct record rec = {
        .type = REC_REMOVEXATTR, .ino = ino, .name = LIST_NAME, .name_len = strlen(LIST_NAME)};
    if (ranges->count > 0) {
        rec.type = REC_SETXATTR;
        rec.value = bytes;
        rec.value_len = (uint32_t)encode_list(ranges, bytes);
    }
    int r = history_commit(fs->commit->history, &rec);
    return r == -ENODATA ? 0 : r;
}

static bool is_same(const struct ranges *a, const struct ranges *b)
{
    return a->count == b->count && memcmp(a->at, b->at, a->count * sizeof a->at[0]) == 0;
}

/* If there are too many ranges, the smallest is dropped: its blocks are not counted any more. */
static void bound_list(struct ranges *ranges)
{
    size_t least = 0;
    if (ranges->count <= RANGES_MAX)
        return;
    for (size_t i = 1; i < ranges->count; i++)
        if (ranges->at[i].to - ranges->at[i].from < ranges->at[least].to - ranges->at[least].from)
            least = i;
    ranges->count--;
    memmove(&ranges->at[least], &ranges->at[least + 1],
            (ranges->count - least) * sizeof ranges->at[0]);
}

static void append_range(struct ranges *ranges, uint64_t from, uint64_t to)
{
    if (from < to)
        ranges->at[ranges->count++] = (struct range){from, to};
}

static void with_range(const struct ranges *old, struct range more, struct ranges *ret)
{
    size_t i = 0;
    ret->count = 0;
    for (; i < old->count && old->at[i].to < more.from; i++)
        append_range(ret, old->at[i].from, old->at[i].to);
    for (; i < old->count && old->at[i].from <= more.to; i++) {
        more.from = min_u64(more.from, old->at[i].from);
        more.to = max_u64(more.to, old->at[i].to);
    }
    append_range(ret, more.from, more.to);
    for (; i < old->count; i++)
        append_range(ret, old->at[i].from, old->at[i].to);
    bound_list(ret);
}

static void without_range(const struct ranges *old, struct range less, struct ranges *ret)
{
    ret->count = 0;
    for (size_t i = 0; i < old->count; i++) {
        append_range(ret, old->at[i].from, min_u64(old->at[i].to, less.from));
        append_range(ret, max_u64(old->at[i].from, less.to), old->at[i].to);
    }
    bound_list(ret);
}

int allocated_add(struct fs *fs, const struct ns_inode *inode, uint64_t from, uint64_t to)
{
    struct ranges old, now;
    int r = load_list(fs, inode, &old);
    with_range(&old, (struct range){align_down(from, BLOCK), align_up(to, BLOCK)}, &now);
    if (r < 0 || is_same(&old, &now))
        return r;
    r = room_admit_change(fs->commit->room, sizeof now);
    return r < 0 ? r : save_list(fs, inode->ino, &now);
}

int allocated_remove(struct fs *fs, const struct ns_inode *inode, uint64_t from, uint64_t to)
{
    struct ranges old, now;
    int r = load_list(fs, inode, &old);
    from = align_up(from, BLOCK);
    to = align_down(to, BLOCK);
    if (r < 0 || old.count == 0 || from >= to)
        return r;
    without_range(&old, (struct range){from, to}, &now);
    return is_same(&old, &now) ? 0 : save_list(fs, inode->ino, &now);
}

bool allocated_is_name(const char *name, size_t name_len)
{
    return name_len == strlen(LIST_NAME) && memcmp(name, LIST_NAME, name_len) == 0;
}

/* --- counting --------------------------------------------------------------------------------- */

static int add_extent(const struct view_extent *part, void *arg)
{
    *(uint64_t *)arg += part->extent.kind != EXTENT_HOLE ? part->extent.length : 0;
    return 0;
}

/* Returns the bytes of [from, to) that are content and no hole. Ranges that cannot be read count as
 * holes. */
static uint64_t count_content(struct fs *fs, uint64_t ino, uint64_t from, uint64_t to)
{
    struct stage_part parts[64];
    uint64_t bytes = 0;
    while (from < to) {
        size_t count = stage_read(fs->stage, ino, from, to - from, parts, ARRAY_LEN(parts));
        for (size_t i = 0; i < count; i++) {
            if (parts[i].kind == PART_MEMORY || parts[i].kind == PART_CHUNK)
                bytes += parts[i].length;
            if (parts[i].kind == PART_BELOW &&
                view_extents(fs->commit->local->view, ino, parts[i].offset, parts[i].length,
                             add_extent, &bytes) < 0)
                log_debug("inode %llu: its blocks cannot be counted exactly",
                          (unsigned long long)ino);
        }
        from = parts[count - 1].offset + parts[count - 1].length;
        stage_unpin_parts(fs->stage, parts, count);
    }
    return bytes;
}

/* Content in [0, end) outside of the ranges. */
static uint64_t content_outside(struct fs *fs, uint64_t ino, const struct ranges *ranges,
                                uint64_t end)
{
    uint64_t bytes = 0, at = 0;
    for (size_t i = 0; i < ranges->count && at < end; i++) {
        bytes += count_content(fs, ino, at, min_u64(ranges->at[i].from, end));
        at = ranges->at[i].to;
    }
    return bytes + (at < end ? count_content(fs, ino, at, end) : 0);
}

/* Holes in [0, end) within the ranges. */
static uint64_t holes_inside(struct fs *fs, uint64_t ino, const struct ranges *ranges, uint64_t end)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < ranges->count && ranges->at[i].from < end; i++) {
        uint64_t to = min_u64(ranges->at[i].to, end);
        bytes += to - ranges->at[i].from - count_content(fs, ino, ranges->at[i].from, to);
    }
    return bytes;
}

uint64_t allocated_bytes(struct fs *fs, const struct commit_now *now, uint64_t content)
{
    struct ranges ranges;
    uint64_t all = 0, inside = 0, end = align_up(now->size, BLOCK), ino = now->inode.ino;
    if (load_list(fs, &now->inode, &ranges) < 0 || ranges.count == 0)
        return content;
    for (size_t i = 0; i < ranges.count; i++) {
        all += ranges.at[i].to - ranges.at[i].from;
        inside += min_u64(ranges.at[i].to, end) - min_u64(ranges.at[i].from, end);
    }
    /* Usually all of the file was allocated at once, or has no holes: then nothing has to be
     * searched. */
    if (content == 0 || inside == end)
        return all;
    if (content >= now->size || inside == 0)
        return content + (all - inside);
    if (end - inside <= inside)
        return all + content_outside(fs, ino, &ranges, end);
    return content + (all - inside) + holes_inside(fs, ino, &ranges, end);
}
