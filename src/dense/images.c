// SPDX-License-Identifier: Apache-2.0
#include "dense/images.h"

#include "base/clock.h"
#include "base/lock.h"

#define IMAGES_BYTES_MAX (32 * MIB)
#define IMAGES_MAX 32768u /* images with known names: a power of two */
#define IDLE_NS (600ll * SECOND_NS)

struct images {
    struct cairn_mutex lock;  /* LOCK_LEAF; held to add an image or to allow memory */
    struct twin_index *index; /* NULL: no image was added lately */
    struct chunk_name *names; /* of the image with a tag, at index tag modulo IMAGES_MAX */
    uint64_t tags;            /* tags assigned so far */
    int64_t used_at;          /* monotonic ns */
};

struct images *images_new(void)
{
    struct images *images = xcalloc(1, sizeof *images);
    mutex_init(&images->lock, LOCK_LEAF);
    return images;
}

static void forget_all(struct images *images)
{
    twin_index_free(images->index);
    free(images->names);
    images->index = NULL;
    images->names = NULL;
}

void images_free(struct images *images)
{
    if (!images)
        return;
    forget_all(images);
    mutex_done(&images->lock);
    free(images);
}

void images_tick(struct images *images, int64_t now)
{
    LOCK_SCOPE(&images->lock);
    if (images->index && now - images->used_at >= IDLE_NS)
        forget_all(images);
}

void images_add(struct images *images, const struct chunk_entry *entry,
                const struct fx_guess *guess, const uint8_t *raw)
{
    LOCK_SCOPE(&images->lock);
    check(entry->ref_count == 0 && guess->width == 2);
    if (!images->index) {
        images->index = twin_index_new(IMAGES_BYTES_MAX);
        images->names = xcalloc(IMAGES_MAX, sizeof *images->names);
    }
    images->names[images->tags % IMAGES_MAX] = entry->name;
    twin_index_add(images->index, cpu_level(), guess, raw, entry->raw_len, images->tags++);
    images->used_at = clock_monotonic_ns();
}

/* A seventh of a training state is images; those of short tensors take more than their share. */
void images_allow(struct images *images, size_t len)
{
    LOCK_SCOPE(&images->lock);
    if (images->index)
        twin_index_allow(images->index, len);
}

size_t images_find(const struct images *images, const struct fx_guess *guess, const uint8_t *raw,
                   size_t len, struct twin_images *bytes, struct twin_match ret[CHUNK_REFS_MAX])
{
    return images->index ? twin_find(images->index, cpu_level(), guess, raw, len, bytes, ret) : 0;
}

bool images_name(const struct images *images, uint64_t tag, struct chunk_name *ret)
{
    if (images->tags - tag > IMAGES_MAX)
        return false;
    *ret = images->names[tag % IMAGES_MAX];
    return true;
}
