// SPDX-License-Identifier: Apache-2.0
/* Reads a chunk to be stored in the remote from where it is intact: NVMe, or else the remote
 * itself. */
#include "dense/bases.h"
#include "remote/internal.h"
#include "remote/maintenance.h"

int upload_check_chunk(struct store *store, const struct chunk_entry *entry, const uint8_t *stored,
                       uint8_t *raw)
{
    struct bases bases;
    (void)bases_gather(&bases, store, entry, 1);
    int r = bases_decode(&bases, entry, stored, raw, NULL);
    bases_release(&bases);
    return r;
}

void upload_make_plain(struct store *store, struct chunk_entry *entry, const uint8_t *raw,
                       uint8_t *stored)
{
    _cleanup_free_ void *scratch = xmalloc(PACKS_SCRATCH_LEN);
    struct chunk_entry plain;
    const void *bytes =
        packs_encode(store->commit.packs, &entry->name, raw, entry->raw_len, scratch, &plain);
    memcpy(stored, bytes, plain.stored_len);
    *entry = plain;
}

static int read_place(struct store *store, struct tier *tier, const struct chunk_entry *entry,
                      uint8_t *stored, uint8_t *raw)
{
    if (!chunk_is_readable(entry))
        return -EUCLEAN;
    int r = pack_read_part(tier, entry->pack, entry->offset, stored, entry->stored_len);
    return r < 0 ? r : upload_check_chunk(store, entry, stored, raw);
}

/* A chunk with bases on NVMe may have some that the remote lacks: it is not sent in that form. */
static int read_local(struct store *store, struct chunk_entry *entry, uint8_t *stored, uint8_t *raw)
{
    int r = read_place(store, store->local.tier, entry, stored, raw);
    if (r == 0 && entry->ref_count > 0)
        upload_make_plain(store, entry, raw, stored);
    return r;
}

/* Most of the pack is needed, so it pays to read the bytes after a chunk as well. */
static uint64_t window_at(struct store *store, const struct chunk_entry *entry)
{
    struct view_remote_pack pack;
    if (view_remote_pack(store->local.view, entry->pack, &pack) < 0 ||
        pack.live_bytes < pack.length / 2 || entry->offset + entry->stored_len > pack.length)
        return entry->stored_len;
    return min_u64(pack.length - entry->offset, CHUNK_SIZE_MAX);
}

static bool window_has(const struct remote_window *window, const struct chunk_entry *entry)
{
    return window->length > 0 && window->pack == entry->pack && entry->offset >= window->offset &&
           entry->offset + entry->stored_len <= window->offset + window->length;
}

/* Makes one request for the chunk, and for its neighbours if they fit in the window. */
static int read_through_window(struct store *store, const struct chunk_entry *entry,
                               uint8_t *stored, uint8_t *raw, struct remote_window *window)
{
    if (!chunk_is_readable(entry))
        return -EUCLEAN;
    if (!window_has(window, entry)) {
        uint64_t length = window_at(store, entry);
        window->length = 0;
        int r =
            remote_get_to_merge(store->remote, entry->pack, entry->offset, window->bytes, length);
        if (r < 0)
            return r;
        window->pack = entry->pack;
        window->offset = entry->offset;
        window->length = length;
    }
    check(window_has(window, entry));
    memcpy(stored, window->bytes + (entry->offset - window->offset), entry->stored_len);
    return upload_check_chunk(store, entry, stored, raw);
}

/* -ENOENT: it has no place there. If the remote lacks a base, so that the chunk could be decoded
 * only with NVMe, it is not stored there in that form. */
static int read_remote(struct store *store, struct chunk_entry *entry, uint8_t *stored,
                       uint8_t *raw, struct remote_window *window)
{
    struct chunk_entry remote;
    struct chunk_name lacks;
    bool published;
    if (!store->remote)
        return -ENOENT;
    TRY(view_remote_chunk(store->local.view, &entry->name, &remote, &published));
    if (window) {
        TRY(read_through_window(store, &remote, stored, raw, window));
    } else {
        TRY(read_place(store, store->remote->prefix.tier, &remote, stored, raw));
        atomic_fetch_add(&store->remote->prefix.fetched_total, remote.stored_len);
    }
    *entry = remote;
    if (entry->ref_count > 0 &&
        view_remote_lacks(store->local.view, &entry->name, &lacks) != -ENOENT)
        upload_make_plain(store, entry, raw, stored);
    return 0;
}

static int read_anywhere(struct store *store, struct chunk_entry *entry, uint8_t *stored,
                         uint8_t *raw, struct remote_window *window)
{
    struct chunk_entry now;
    uint64_t refs;
    int r = -ENOENT;
    if (packs_find_fresh(store->commit.packs, &entry->name, &now) != 0 ||
        (view_chunk(store->local.view, &entry->name, &now, &refs) == 0 && now.pack != 0))
        r = read_local(store, &now, stored, raw);
    if (r == 0)
        *entry = now;
    else if (entry->pack != 0) /* it is dead by now, but still in its old place, in a pinned pack */
        r = read_local(store, entry, stored, raw);
    if (r == -EIO) /* of NVMe: this is damage, not an unreachable server */
        r = -EBADMSG;
    if (r < 0) {
        int remote = read_remote(store, entry, stored, raw, window);
        r = remote == -ENOENT ? r : remote;
    }
    return r;
}

int upload_read_chunk(struct store *store, struct chunk_entry *entry, uint8_t *stored, uint8_t *raw)
{
    return read_anywhere(store, entry, stored, raw, NULL);
}

/* --- of a pack that is being rewritten -------------------------------------------------------- */

static bool has_same_form(const struct chunk_entry *a, const struct chunk_entry *b)
{
    bool is_same =
        a->encoding == b->encoding && a->raw_len == b->raw_len && a->ref_count == b->ref_count;
    for (size_t i = 0; i < a->ref_count && is_same; i++)
        is_same = chunk_name_equal(&a->refs[i].name, &b->refs[i].name) &&
                  a->refs[i].offset == b->refs[i].offset && a->refs[i].length == b->refs[i].length;
    return is_same;
}

/* On NVMe it may be condensed, with the same parts of the same bases as in the remote: then these
 * bytes can be used there, whether they are equal or not. -ENOENT: it is not. */
static int read_condensed(struct store *store, const struct chunk_entry *remote,
                          struct chunk_entry *entry, uint8_t *stored, uint8_t *raw)
{
    struct chunk_entry local;
    uint64_t refs;
    if (view_chunk(store->local.view, &remote->name, &local, &refs) < 0 || local.pack == 0 ||
        !has_same_form(&local, remote))
        return -ENOENT;
    TRY(read_place(store, store->local.tier, &local, stored, raw));
    *entry = local;
    entry->depth = remote->depth;
    return 0;
}

/* Reads its stored form: from NVMe, else from the remote with its neighbours. */
static int read_dense(struct store *store, const struct chunk_entry *remote,
                      struct chunk_entry *entry, uint8_t *stored, uint8_t *raw,
                      struct remote_window *window)
{
    struct chunk_name lacks;
    if (view_remote_lacks(store->local.view, &remote->name, &lacks) == -ENOENT &&
        read_condensed(store, remote, entry, stored, raw) == 0)
        return 0;
    return read_remote(store, entry, stored, raw, window);
}

int upload_read_again(struct store *store, struct chunk_entry *entry, uint8_t *stored, uint8_t *raw,
                      struct remote_window *window)
{
    struct chunk_entry remote;
    bool is_there = view_remote_place(store->local.view, &entry->name, &remote) == 0 &&
                    !remote_is_bad_pack(store->remote, remote.pack);
    if (is_there && remote.ref_count > 0) {
        int r = read_dense(store, &remote, entry, stored, raw, window);
        if (r == 0 || r == -ECANCELED)
            return r;
    }
    entry->pack = 0; /* use the place in the remote */
    return read_anywhere(store, entry, stored, raw, is_there ? window : NULL);
}
