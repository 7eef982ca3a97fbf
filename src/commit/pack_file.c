// SPDX-License-Identifier: Apache-2.0
/* The file of a pack, in any tier: chunks are appended to a buffer, each after a frame that repeats
 * its index entry; index and trailer follow. Also reads the index, or rebuilds it from the frames.
 *
 * Users choose the content of chunks. So a frame has a tag under the store's key: user data that
 * imitates a frame does not verify. */
#include "base/crc.h"
#include "base/log.h"
#include "base/vector.h"
#include "codec/stream.h"
#include "codec/hash.h"
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "format/le.h"
#include "view/remote.h"

#define READ_TRIES 3 /* for an index that looks damaged: the read itself may have failed */
#define WINDOW MIB
#define SECTOR 4096u /* step over data that cannot be read */

static const char tag_label[] = "CairnFS pack frame";

static void frame_tag(const struct local *local, const struct chunk_entry *entry,
                      uint8_t ret_tag[PACK_TAG_LEN])
{
    uint8_t id[8], bytes[PACK_ENTRY_LEN_MAX];
    size_t len = pack_encode_entry(entry, bytes);
    put_le64(id, entry->pack);
    struct iovec iov[3] = {
        {(void *)(uintptr_t)tag_label, sizeof tag_label}, {id, sizeof id}, {bytes, len}};
    struct chunk_name name = hash_chunk(&local->sb.key, iov, 3);
    _Static_assert(sizeof name.bytes == PACK_TAG_LEN, "a tag is as long as a name");
    memcpy(ret_tag, name.bytes, PACK_TAG_LEN);
}

void pack_object_name(uint64_t pack, char buf[32])
{
    object_name("packs", pack, buf);
}

int pack_read_part(struct tier *tier, uint64_t pack, uint64_t offset, void *buf, size_t length)
{
    char object[32];
    pack_object_name(pack, object);
    return tier->ops->get_range(tier, object, offset, buf, length);
}

/* --- making one ------------------------------------------------------------------------------- */

void pack_begin(const uint8_t owner[16], uint64_t id, struct pack_buffer *buffer)
{
    struct pack_header header = {.pack = id};
    memcpy(header.store, owner, sizeof header.store);
    pack_encode_header(&header, buffer->bytes);
    buffer->data_len = PACK_HEADER_LEN;
}

uint64_t pack_end_with(uint64_t data_len, const struct chunk_entry *entry)
{
    return align_up(data_len, PACK_FRAME_ALIGN) + pack_frame_len(entry) + entry->stored_len;
}

void pack_place(const struct local *local, uint64_t id, struct pack_buffer *buffer,
                struct chunk_entry *entry, const struct iovec *stored, size_t parts)
{
    uint8_t tag[PACK_TAG_LEN];
    uint64_t at = align_up(buffer->data_len, PACK_FRAME_ALIGN),
             end = pack_end_with(buffer->data_len, entry);
    check(end <= PACK_DATA_MAX);
    memset(buffer->bytes + buffer->data_len, 0, at - buffer->data_len);
    entry->pack = id;
    entry->offset = at + pack_frame_len(entry);
    frame_tag(local, entry, tag);
    (void)pack_encode_frame(entry, tag, buffer->bytes + at);
    uint64_t to = entry->offset;
    for (size_t i = 0; i < parts; i++) {
        check(stored[i].iov_len <= entry->offset + entry->stored_len - to);
        stream_copy(buffer->bytes + to, stored[i].iov_base, stored[i].iov_len);
        to += stored[i].iov_len;
    }
    check(to == end);
    buffer->data_len = end;
}

static size_t encode_index(const struct chunk_entry *entries, uint32_t count, uint8_t *at)
{
    size_t len = 0;
    for (uint32_t i = 0; i < count; i++)
        len += pack_encode_entry(&entries[i], at + len);
    return len;
}

uint64_t pack_finish(const uint8_t owner[16], uint64_t id, const struct pack_buffer *buffer,
                     const struct chunk_entry *entries, uint32_t count)
{
    uint64_t data_len = buffer->data_len;
    uint8_t *index = buffer->bytes + data_len;
    size_t index_len = encode_index(entries, count, index);
    uint64_t file_len = align_up(data_len + index_len + PACK_TRAILER_LEN, PACK_ALIGN);
    check(file_len <= PACK_BUFFER_LEN);
    memset(index + index_len, 0, file_len - data_len - index_len);
    struct pack_trailer trailer = {.pack = id,
                                   .index_offset = data_len,
                                   .index_len = (uint32_t)index_len,
                                   .count = count,
                                   .file_len = file_len,
                                   .index_crc = crc32_of(0, index, index_len)};
    memcpy(trailer.store, owner, sizeof trailer.store);
    pack_encode_trailer(&trailer, buffer->bytes + file_len - PACK_TRAILER_LEN);
    return file_len;
}

/* --- reading its index ------------------------------------------------------------------------ */

DEFINE_VECTOR(entries, struct chunk_entry);

static int collect_entry(const struct chunk_entry *entry, void *arg)
{
    struct entries *all = arg;
    vector_add(all, *entry);
    return 0;
}

static int give_entries(const struct entries *all,
                        int (*fn)(const struct chunk_entry *entry, void *arg), void *arg)
{
    for (size_t i = 0; i < all->count; i++)
        TRY(fn(&all->at[i], arg));
    return 0;
}

static int read_trailer(struct tier *tier, const uint8_t owner[16], const char *object,
                        uint64_t pack, struct pack_trailer *ret)
{
    uint64_t len;
    uint8_t trailer[PACK_TRAILER_LEN];
    TRY(tier->ops->stat(tier, object, &len));
    if (len < PACK_HEADER_LEN + PACK_TRAILER_LEN)
        return -EUCLEAN;
    TRY(tier->ops->get_range(tier, object, len - sizeof trailer, trailer, sizeof trailer));
    TRY(pack_decode_trailer(trailer, sizeof trailer, ret));
    bool fits = ret->pack == pack && ret->file_len == len && memcmp(ret->store, owner, 16) == 0;
    return fits ? 0 : -EUCLEAN;
}

static int read_index_once(struct tier *tier, const uint8_t owner[16], uint64_t pack,
                           struct entries *all, uint64_t *ret_length)
{
    char object[32];
    pack_object_name(pack, object);
    struct pack_trailer trailer;
    TRY(read_trailer(tier, owner, object, pack, &trailer));
    if (trailer.index_len > PACK_CHUNKS_MAX * PACK_ENTRY_LEN_MAX ||
        trailer.index_offset > trailer.file_len ||
        trailer.index_len > trailer.file_len - trailer.index_offset)
        return -EUCLEAN;
    *ret_length = trailer.file_len;
    _cleanup_free_ uint8_t *index = xmalloc(trailer.index_len);
    TRY(tier->ops->get_range(tier, object, trailer.index_offset, index, trailer.index_len));
    if (crc32_of(0, index, trailer.index_len) != trailer.index_crc)
        return -EBADMSG;
    return pack_decode_index(&trailer, index, trailer.index_len, collect_entry, all);
}

static bool looks_damaged(int error)
{
    return error == -EBADMSG || error == -EUCLEAN || error == -EIO;
}

int pack_read_index(struct tier *tier, const uint8_t owner[16], uint64_t pack,
                    int (*fn)(const struct chunk_entry *entry, void *arg), void *arg,
                    uint64_t *ret_length)
{
    _cleanup_vector_ struct entries all = {0};
    int r = -EUCLEAN;
    for (int i = 0; i < READ_TRIES && looks_damaged(r); i++) {
        all.count = 0;
        r = read_index_once(tier, owner, pack, &all, ret_length);
    }
    return r < 0 ? r : give_entries(&all, fn, arg);
}

static int count_entry(const struct chunk_entry *entry, void *arg)
{
    (void)entry;
    ++*(uint32_t *)arg;
    return 0;
}

int pack_check_index(struct tier *tier, const uint8_t owner[16],
                     const struct view_remote_pack *pack)
{
    uint32_t count = 0;
    uint64_t length = 0;
    TRY(pack_read_index(tier, owner, pack->pack, count_entry, &count, &length));
    return count == pack->count && length == pack->length ? 0 : -EUCLEAN;
}

int packs_read_index(struct packs *packs, uint64_t pack,
                     int (*fn)(const struct chunk_entry *entry, void *arg), void *arg)
{
    uint64_t length;
    int r = pack_read_index(packs->local->tier, packs->local->sb.store, pack, fn, arg, &length);
    /* Written under a former id of the store? Of a pack of a wrong owner only the trailer is
     * read. */
    for (uint16_t i = 0; i < packs->local->sb.former_count && r == -EUCLEAN; i++)
        r = pack_read_index(packs->local->tier, packs->local->sb.former[i], pack, fn, arg, &length);
    return r;
}

/* --- making its index again from the frames --------------------------------------------------- */

struct scan {
    const struct local *local;
    uint64_t pack, len;
    char object[32];
    uint8_t *bytes; /* WINDOW bytes and more, from `at` on */
    uint64_t at, have;
};

/* Part of the window cannot be read: reads the sector at `offset` and the next, or only the
 * first. */
static uint64_t read_sectors(struct scan *s, uint64_t offset)
{
    uint64_t end = align_up(offset + 1, SECTOR);
    for (int count = 1; count >= 0; count--) {
        uint64_t have = min_u64(end + (unsigned)count * SECTOR, s->len) - offset;
        if (s->local->tier->ops->get_range(s->local->tier, s->object, offset, s->bytes, have) == 0)
            return have;
    }
    return 0;
}

/* Returns `need` bytes from `offset` on, or as many as exist; NULL: they cannot be read. */
static const uint8_t *scan_window(struct scan *s, uint64_t offset, size_t need, size_t *ret_len)
{
    const struct tier_ops *ops = s->local->tier->ops;
    if (offset < s->at || offset + min_u64(need, s->len - offset) > s->at + s->have) {
        s->at = offset;
        s->have = min_u64(WINDOW, s->len - offset);
        if (ops->get_range(s->local->tier, s->object, offset, s->bytes, s->have) < 0)
            s->have = read_sectors(s, offset);
    }
    *ret_len = s->have - (offset - s->at);
    return s->have ? s->bytes + (offset - s->at) : NULL;
}

enum frame { FRAME, NO_FRAME, UNREADABLE };

/* Is there a valid frame of this store? */
static enum frame frame_at(struct scan *s, uint64_t offset, struct chunk_entry *ret)
{
    uint8_t tag[PACK_TAG_LEN], expected[PACK_TAG_LEN];
    size_t len;
    const uint8_t *bytes = scan_window(s, offset, PACK_FRAME_LEN_MAX, &len);
    if (!bytes)
        return UNREADABLE;
    const struct pack_frame_place place = {s->pack, s->len, offset};
    if (pack_decode_frame(&place, bytes, len, ret, tag) < 0)
        return NO_FRAME;
    frame_tag(s->local, ret, expected);
    return memcmp(tag, expected, sizeof tag) == 0 ? FRAME : NO_FRAME;
}

/* Goes from frame to frame; if one is missing, searches for the next. */
static void scan_frames(struct scan *s, struct entries *all)
{
    uint64_t offset = align_up(PACK_HEADER_LEN, PACK_FRAME_ALIGN);
    while (offset + PACK_FRAME_ALIGN < s->len) {
        struct chunk_entry entry;
        switch (frame_at(s, offset, &entry)) {
        case FRAME:
            vector_add(all, entry);
            offset = align_up(entry.offset + entry.stored_len, PACK_FRAME_ALIGN);
            break;
        case NO_FRAME:
            offset += PACK_FRAME_ALIGN;
            break;
        case UNREADABLE:
            offset = align_up(offset + 1, SECTOR);
        }
    }
}

static int rebuild_index(struct packs *packs, uint64_t pack, struct entries *all)
{
    struct scan s = {.local = packs->local, .pack = pack};
    pack_object_name(pack, s.object);
    TRY(packs->local->tier->ops->stat(packs->local->tier, s.object, &s.len));
    s.bytes = xmalloc(WINDOW);
    scan_frames(&s, all);
    free(s.bytes);
    return all->count ? 0 : -EBADMSG;
}

int packs_recover_index(struct packs *packs, uint64_t pack,
                        int (*fn)(const struct chunk_entry *entry, void *arg), void *arg,
                        bool *ret_was_made)
{
    _cleanup_vector_ struct entries all = {0};
    int r = packs_read_index(packs, pack, collect_entry, &all);
    *ret_was_made = looks_damaged(r);
    if (*ret_was_made) {
        all.count = 0;
        TRY(rebuild_index(packs, pack, &all));
        log_error("pack %016llx: its index cannot be read (%s): it was made again from its %zu "
                  "chunks; 'cairn scrub' moves them to another pack",
                  (unsigned long long)pack, strerror(-r), all.count);
    } else if (r < 0) {
        return r;
    }
    return give_entries(&all, fn, arg);
}

static bool trailer_is_ours(struct packs *packs, const char *object, uint64_t pack)
{
    struct pack_trailer trailer;
    struct tier *tier = packs->local->tier;
    const struct superblock *sb = &packs->local->sb;
    bool is_ours = read_trailer(tier, sb->store, object, pack, &trailer) == 0;
    for (uint16_t i = 0; i < sb->former_count && !is_ours; i++)
        is_ours = read_trailer(tier, sb->former[i], object, pack, &trailer) == 0;
    return is_ours;
}

bool packs_is_ours(struct packs *packs, uint64_t pack)
{
    char object[32];
    uint8_t bytes[PACK_HEADER_LEN];
    struct pack_header header;
    pack_object_name(pack, object);
    int r = packs->local->tier->ops->get_range(packs->local->tier, object, 0, bytes, sizeof bytes);
    if (r == 0 && pack_decode_header(bytes, sizeof bytes, &header) == 0)
        return header.pack == pack && superblock_has_id(&packs->local->sb, header.store);
    return trailer_is_ours(packs, object, pack);
}
