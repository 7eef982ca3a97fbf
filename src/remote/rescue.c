// SPDX-License-Identifier: Apache-2.0
/* Searches for a chunk that can be read neither from NVMe nor from its place in the remote:
 *
 * in the stage: content that became durable stays in memory until the room is needed
 * in the remote: packs that no published head needs any more still exist for the grace, and
 * one that could not be read may be readable again
 *
 * Both searches are by location, and need a scan of all extents, or of those packs' indexes: only
 * for chunks that would be lost otherwise. */
#include "base/log.h"
#include "remote/internal.h"

#define UNREFERENCED_MAX 256u /* packs whose indexes are read for one chunk */

struct rescue {
    struct store *store;
    struct chunk_entry *entry;
    uint8_t *stored, *raw;
    uint64_t begin; /* where the chunk begins in the examined file */
    bool has_begin, found;
};

static bool is_it(const struct rescue *rs)
{
    return local_is_chunk(&rs->store->local, &rs->entry->name, rs->raw, rs->entry->raw_len);
}

/* --- from the stage --------------------------------------------------------------------------- */

static int find_begin(const struct view_extent *part, void *arg)
{
    struct rescue *rs = arg;
    const struct extent *e = &part->extent;
    if (e->kind != EXTENT_CHUNK || !chunk_name_equal(&e->chunk, &rs->entry->name))
        return 0;
    rs->has_begin = e->offset >= e->chunk_offset;
    rs->begin = rs->has_begin ? e->offset - e->chunk_offset : 0;
    return 1;
}

/* Gathers the chunk's part of the file from the stage's memory; false: not all of it is there. */
static bool gather_stretch(const struct rescue *rs, uint64_t ino)
{
    struct stage_part parts[64];
    uint64_t done = 0;
    bool whole = true;
    while (whole && done < rs->entry->raw_len) {
        size_t count = stage_read(rs->store->local.stage, ino, rs->begin + done,
                                  rs->entry->raw_len - done, parts, ARRAY_LEN(parts));
        for (size_t i = 0; i < count && whole; i++) {
            whole = parts[i].kind == PART_MEMORY || parts[i].kind == PART_HOLE;
            if (parts[i].kind == PART_MEMORY)
                memcpy(rs->raw + done, parts[i].memory, parts[i].length);
            else if (parts[i].kind == PART_HOLE)
                memset(rs->raw + done, 0, parts[i].length);
            done += parts[i].length;
        }
        stage_unpin_parts(rs->store->local.stage, parts, count);
        whole = whole && count > 0;
    }
    return whole;
}

static int try_user(uint64_t ino, uint64_t offset, void *arg)
{
    struct rescue *rs = arg;
    rs->has_begin = false;
    int r = view_extents(rs->store->local.view, ino, offset, CHUNK_SIZE_MAX, find_begin, rs);
    if (r < 0 || !rs->has_begin || !gather_stretch(rs, ino) || !is_it(rs))
        /* the file has changed meanwhile, or the stage has dropped it: another file may have it */
        return 0;
    rs->found = true;
    return 1;
}

static bool from_stage(struct rescue *rs)
{
    if (!rs->store->local.stage || rs->entry->raw_len == 0 || rs->entry->raw_len > CHUNK_SIZE_MAX)
        return false;
    if (view_chunk_users(rs->store->local.view, &rs->entry->name, try_user, rs) < 0 || !rs->found)
        return false;
    *rs->entry = (struct chunk_entry){.name = rs->entry->name,
                                      .stored_len = rs->entry->raw_len,
                                      .raw_len = rs->entry->raw_len,
                                      .encoding = ENCODING_RAW};
    memcpy(rs->stored, rs->raw, rs->entry->raw_len);
    return true;
}

/* --- from its former places in the remote ----------------------------------------------------- */

struct unreferenced {
    uint64_t ids[UNREFERENCED_MAX];
    size_t count;
};

static int add_unreferenced(const struct view_remote_pack *pack, void *arg)
{
    struct unreferenced *unreferenced = arg;
    if ((pack->unreferenced || pack->suspect) && !pack->gone)
        unreferenced->ids[unreferenced->count++] = pack->pack;
    return unreferenced->count == UNREFERENCED_MAX;
}

static int find_entry(const struct chunk_entry *entry, void *arg)
{
    struct rescue *rs = arg;
    if (!chunk_name_equal(&entry->name, &rs->entry->name))
        return 0;
    *rs->entry = *entry;
    rs->found = true;
    return 0;
}

static bool read_former(struct rescue *rs, uint64_t pack)
{
    struct tier *tier = rs->store->remote->prefix.tier;
    const struct chunk_entry before = *rs->entry;
    uint64_t length;
    rs->found = false;
    int r = pack_read_index(tier, rs->store->local.sb.history, pack, find_entry, rs, &length);
    if (r == 0 && rs->found)
        r = pack_read_part(tier, pack, rs->entry->offset, rs->stored, rs->entry->stored_len);
    if (r == 0 && rs->found)
        r = upload_check_chunk(rs->store, rs->entry, rs->stored, rs->raw);
    if (r == 0 && rs->found && rs->entry->ref_count > 0)
        upload_make_plain(rs->store, rs->entry, rs->raw, rs->stored);
    if (r == 0 && rs->found)
        return true;
    *rs->entry = before;
    return false;
}

static bool from_former_place(struct rescue *rs)
{
    struct remote *remote = rs->store->remote;
    struct unreferenced unreferenced = {.count = 0};
    if (!remote || view_remote_packs(rs->store->local.view, add_unreferenced, &unreferenced) < 0)
        return false;
    for (size_t i = 0; i < unreferenced.count && !remote_is_stopping(remote); i++)
        if (read_former(rs, unreferenced.ids[i]))
            return true;
    return false;
}

bool rescue_chunk(struct store *store, struct chunk_entry *entry, uint8_t *stored, uint8_t *raw)
{
    struct rescue rs = {.store = store, .entry = entry, .stored = stored, .raw = raw};
    const char *where = from_stage(&rs)          ? "the stage"
                        : from_former_place(&rs) ? "a pack of the remote that was given up"
                                                 : NULL;
    if (where)
        log_warn("a chunk that NVMe does not give any more was found in %s, and is stored anew",
                 where);
    return where != NULL;
}
