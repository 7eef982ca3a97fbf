// SPDX-License-Identifier: Apache-2.0
/* Gathers scattered ranges of files without a name, as no seal removes them from the table of
 * ranges. */
#include "stage/internal.h"

#define SCATTERED_MIN 4u /* ranges per stretch: fewer are not worth a slab */
#define LOOK_MAX 16384u  /* ranges examined while the lock is held */

size_t stage_find_scattered(struct stage *stage, struct stage_scattered *cursor,
                            struct stage_scattered *list, size_t max)
{
    LOCK_SCOPE(&stage->locked.lock);
    struct stage_file *file = cursor->ino ? file_get_locked(stage, cursor->ino, false) : NULL;
    struct layer *draft = file ? file->layers[LAYER_DRAFT] : NULL;
    uint64_t offset = draft ? cursor->offset : 0;
    size_t found = 0, looked = 0;
    for (draft = draft ? draft : TAILQ_FIRST(&stage->locked.drafts); draft;
         draft = TAILQ_NEXT(draft, link), offset = 0) {
        struct range *range = draft->file->orphan ? layer_first_locked(draft, offset) : NULL;
        while (range && found < max && looked < LOOK_MAX) {
            uint64_t begin = align_down(range->offset, SLAB_PAYLOAD);
            size_t before = looked;
            for (; range && range->offset < begin + SLAB_PAYLOAD; range = layer_next_locked(range))
                looked++;
            if (looked - before >= SCATTERED_MIN && begin < draft->size)
                list[found++] = (struct stage_scattered){
                    .ino = draft->file->ino,
                    .offset = begin,
                    .length = (uint32_t)min_u64(SLAB_PAYLOAD, draft->size - begin)};
        }
        if (range) {
            *cursor = (struct stage_scattered){.ino = draft->file->ino, .offset = range->offset};
            return found;
        }
    }
    *cursor = (struct stage_scattered){0};
    return found;
}

void stage_gather_begin(struct stage *stage, const struct stage_scattered *scattered)
{
    LOCK_SCOPE(&stage->locked.lock);
    stage->locked.gathering = *scattered;
}

bool stage_gather(struct stage *stage, const struct stage_scattered *scattered, uint32_t slab)
{
    mutex_lock(&stage->locked.lock);
    struct stage_file *file = file_get_locked(stage, scattered->ino, false);
    struct layer *draft = file ? file->layers[LAYER_DRAFT] : NULL;
    /* it may have a name by now */
    bool same = draft && file->orphan && stage->locked.gathering.length > 0;
    if (same) {
        layer_erase_locked(stage, draft, scattered->offset, scattered->length, false);
        struct stage_write w = {.ino = file->ino,
                                .offset = scattered->offset,
                                .length = scattered->length,
                                .slab = slab,
                                .time = draft->mtime};
        draft_put_locked(stage, draft, &w, true);
        stage->locked.room_wanted = true; /* the table has room */
    }
    stage->locked.gathering.length = 0;
    mutex_unlock(&stage->locked.lock);
    if (same)
        room_changed(stage);
    return same;
}
