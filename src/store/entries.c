// SPDX-License-Identifier: Apache-2.0
/* Entries of packs' indexes, for the readers of a store and for a scrub. */
#include "remote/chunks.h"
#include "store/internal.h"
#include "store/reader.h"
#include "view/remote.h"

bool reader_is_damage(int error)
{
    return error == -EBADMSG || error == -EUCLEAN || error == -ENOENT || error == -ENODATA ||
           error == -EPROTONOSUPPORT || error == -ENOLINK;
}

int reader_check_lengths(const struct chunk_entry *entry)
{
    return entry->raw_len == 0 || entry->raw_len > CHUNK_SIZE_MAX ||
                   entry->stored_len > CHUNK_SIZE_MAX
               ? -EUCLEAN
               : 0;
}

int reader_add_entry(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    struct reader_entries *all = arg;
    TRY(reader_check_lengths(entry));
    if (is_needed)
        vector_add(all, *entry);
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    return compare_u64(&((const struct chunk_entry *)a)->offset,
                       &((const struct chunk_entry *)b)->offset);
}

void reader_sort_entries(struct reader_entries *entries)
{
    vector_sort(entries, compare_places);
}

int reader_pack_chunks(struct store *store, uint64_t pack, struct reader_entries *ret)
{
    ret->count = 0;
    TRY(view_remote_pack_chunks(store->local.view, pack, reader_add_entry, ret));
    reader_sort_entries(ret);
    return 0;
}

int reader_check_index(struct store *store, const struct view_remote_pack *pack)
{
    return pack_check_index(remote_tier(store->remote), store->local.sb.history, pack);
}
