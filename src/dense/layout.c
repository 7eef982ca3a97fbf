// SPDX-License-Identifier: Apache-2.0
#include "dense/layout.h"

#include "base/clock.h"
#include "base/log.h"
#include "dense/changed.h"
#include "format/record.h"
#include "view/cut_files.h"

#define FILES_MAX 16384u
#define BURST_GAP_NS (2ll * SECOND_NS)

/* A chunk, identified by the first bytes of its name: two chunks with the same bytes get the same
 * place, which is harmless. */
struct layout_spot {
    uint64_t name;
    uint32_t burst, place;
};

DEFINE_VECTOR(file_keys, struct file_key);

struct layout {
    VECTOR(struct layout_spot) spots; /* in order of name, then of place */
};

static uint64_t first_bytes(const struct chunk_name *name)
{
    uint64_t ret;
    memcpy(&ret, name->bytes, sizeof ret);
    return ret;
}

static int compare_spots(const void *a, const void *b)
{
    const struct layout_spot *x = a, *y = b;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* A file up to this size has no chunk. */
static int note_file(const struct view_inode *file, void *arg)
{
    struct file_keys *files = arg;
    if (file->attrs.size > INLINE_MAX)
        vector_add(files, (struct file_key){file->attrs.mtime, file->ino});
    return files->count == FILES_MAX;
}

static int add_file(struct layout *layout, struct view_cut *cut, uint64_t ino, uint32_t burst)
{
    struct parts parts = {0};
    int r = parts_of_file(cut, ino, &parts);
    for (size_t i = 0; i < parts.count && layout->spots.count < LAYOUT_SPOTS_MAX; i++)
        vector_add(&layout->spots, (struct layout_spot){.name = first_bytes(&parts.at[i].chunk),
                                                        .burst = burst,
                                                        .place = (uint32_t)layout->spots.count});
    vector_free(&parts);
    return r == -ENOENT ? 0 : r;
}

static int add_files(struct layout *layout, struct view_cut *cut, const struct file_keys *files)
{
    uint32_t burst = 1;
    int r = 0;
    for (size_t i = 0; i < files->count && r == 0; i++) {
        if (i > 0 && files->at[i].mtime - files->at[i - 1].mtime > BURST_GAP_NS)
            burst++;
        r = add_file(layout, cut, files->at[i].ino, burst);
    }
    return r;
}

struct layout *layout_build(struct view_cut *cut)
{
    struct layout *layout = xcalloc(1, sizeof *layout);
    struct file_keys files = {0};
    int r = view_cut_changed_files(cut, note_file, &files);
    vector_sort(&files, file_keys_compare);
    if (r == 0)
        r = add_files(layout, cut, &files);
    check(files.count <= FILES_MAX && layout->spots.count <= LAYOUT_SPOTS_MAX);
    vector_free(&files);
    vector_sort(&layout->spots, compare_spots);
    if (r < 0) {
        log_warn("finding which chunks belong together failed, so packs of this upload may mix "
                 "checkpoints: %s",
                 strerror(-r));
        layout_free(layout);
        return NULL;
    }
    return layout;
}

void layout_free(struct layout *layout)
{
    if (!layout)
        return;
    vector_free(&layout->spots);
    free(layout);
}

uint32_t layout_burst(const struct layout *layout, const struct chunk_name *name,
                      uint32_t *ret_place)
{
    uint64_t sought = first_bytes(name);
    size_t low = 0, high = layout->spots.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (layout->spots.at[middle].name < sought)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == layout->spots.count || layout->spots.at[low].name != sought)
        return 0;
    check(layout->spots.at[low].burst > 0);
    *ret_place = layout->spots.at[low].place;
    return layout->spots.at[low].burst;
}
