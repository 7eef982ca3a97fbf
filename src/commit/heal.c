// SPDX-License-Identifier: Apache-2.0
/* Healing on NVMe: a thread that found a damaged chunk and could read it elsewhere passes it on
 * here, and the writeback thread stores it in another pack, whose batch moves its place. The
 * writeback thread does not read it itself, as it must not wait for a remote. */
#include "commit/packs_internal.h"
#include "commit/read_internal.h"

struct heal {
    struct packs *packs;
    struct damage *damage;
    struct cairn_mutex lock; /* LOCK_LEAF */
    struct {
        struct chunk_name name;
        uint8_t *raw;
        uint32_t raw_len;
    } chunks[HEAL_MAX];
    size_t count, added; /* the first `added` are in a pack that no batch names yet */
};

struct heal *heal_new(struct packs *packs, struct damage *damage)
{
    struct heal *heal = xcalloc(1, sizeof *heal);
    heal->packs = packs;
    heal->damage = damage;
    mutex_init(&heal->lock, LOCK_LEAF);
    return heal;
}

void heal_free(struct heal *heal)
{
    if (!heal)
        return;
    for (size_t i = 0; i < heal->count; i++)
        free(heal->chunks[i].raw);
    mutex_done(&heal->lock);
    free(heal);
}

bool heal_give(struct heal *heal, const struct chunk_name *name, const void *raw, size_t raw_len)
{
    LOCK_SCOPE(&heal->lock);
    for (size_t i = 0; i < heal->count; i++)
        if (chunk_name_equal(&heal->chunks[i].name, name))
            return true;
    if (heal->count == HEAL_MAX)
        return false;
    heal->chunks[heal->count].name = *name;
    heal->chunks[heal->count].raw = xmalloc(raw_len);
    heal->chunks[heal->count].raw_len = (uint32_t)raw_len;
    memcpy(heal->chunks[heal->count++].raw, raw, raw_len);
    return true;
}

bool heal_is_pending(struct heal *heal)
{
    LOCK_SCOPE(&heal->lock);
    return heal->count > 0;
}

size_t heal_names(struct heal *heal, struct chunk_name ret[HEAL_MAX])
{
    LOCK_SCOPE(&heal->lock);
    for (size_t i = 0; i < heal->count; i++)
        ret[i] = heal->chunks[i].name;
    return heal->count;
}

bool heal_add(struct heal *heal)
{
    mutex_lock(&heal->lock);
    size_t count = heal->count;
    mutex_unlock(&heal->lock);
    void *scratch = count ? xmalloc(PACKS_SCRATCH_LEN) : NULL;
    /* only this thread removes entries, so these stay in place */
    for (size_t i = 0; i < count; i++) {
        struct chunk_entry entry;
        const void *stored = packs_encode(heal->packs, &heal->chunks[i].name, heal->chunks[i].raw,
                                          heal->chunks[i].raw_len, scratch, &entry);
        packs_add_stored(heal->packs, &entry, stored);
    }
    free(scratch);
    heal->added = count;
    return count > 0;
}

void heal_settle(struct heal *heal)
{
    for (size_t i = 0; i < heal->added; i++) {
        damage_forget(heal->damage, &heal->chunks[i].name);
        damage_cured(heal->damage, &heal->chunks[i].name);
    }
    LOCK_SCOPE(&heal->lock);
    for (size_t i = 0; i < heal->added; i++)
        free(heal->chunks[i].raw);
    memmove(heal->chunks, heal->chunks + heal->added,
            (heal->count - heal->added) * sizeof *heal->chunks);
    heal->count -= heal->added;
    heal->added = 0;
}
