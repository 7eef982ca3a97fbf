// SPDX-License-Identifier: Apache-2.0
/* A chunk that is to be stored in the remote, read from wherever it still is whole: NVMe, or else
 * the remote itself. */
#include "base/log.h"
#include "codec/encode.h"
#include "remote/maintenance.h"

int upload_check_chunk(struct store *store, const struct chunk_entry *entry, const uint8_t *stored,
                       uint8_t *raw)
{
    int r = chunk_decode(entry->encoding, stored, entry->stored_len, raw, entry->raw_len);
    if (r < 0)
        return r;
    struct iovec iov = {raw, entry->raw_len};
    struct chunk_name actual = hash_chunk(&store->sb.key, &iov, 1);
    return chunk_name_equal(&actual, &entry->name) ? 0 : -EBADMSG;
}

static int read_place(struct store *store, struct tier *tier, const struct chunk_entry *entry,
                      uint8_t *stored, uint8_t *raw)
{
    char object[32];
    if (entry->raw_len == 0 || entry->raw_len > CHUNK_SIZE_MAX ||
        entry->stored_len > CHUNK_SIZE_MAX)
        return -EUCLEAN;
    pack_object_name(entry->pack, object);
    int r = tier->ops->get_range(tier, object, entry->offset, stored, entry->stored_len);
    return r < 0 ? r : upload_check_chunk(store, entry, stored, raw);
}

/* -ENOENT: it has no place there. */
static int read_remote(struct store *store, struct chunk_entry *entry, uint8_t *stored,
                       uint8_t *raw)
{
    struct chunk_entry remote;
    bool published;
    int r =
        store->remote ? view_remote_chunk(store->view, &entry->name, &remote, &published) : -ENOENT;
    if (r == 0)
        r = read_place(store, store->remote->tier, &remote, stored, raw);
    if (r == 0)
        *entry = remote;
    return r;
}

int upload_read_chunk(struct store *store, struct chunk_entry *entry, uint8_t *stored, uint8_t *raw)
{
    struct chunk_entry now;
    uint64_t refs;
    int r = -ENOENT;
    if (packs_find_fresh(store, &entry->name, &now) != 0 ||
        (view_chunk(store->view, &entry->name, &now, &refs) == 0 && now.pack != 0))
        r = read_place(store, store->tier, &now, stored, raw);
    if (r == 0)
        *entry = now;
    else if (entry->pack != 0) /* it is dead by now: it lies where it was, in a pinned pack */
        r = read_place(store, store->tier, entry, stored, raw);
    if (r == -EIO) /* of NVMe: it is damage, not a server that is away for a while */
        r = -EBADMSG;
    if (r < 0) {
        int remote = read_remote(store, entry, stored, raw);
        r = remote == -ENOENT ? r : remote;
    }
    return r;
}
