// SPDX-License-Identifier: Apache-2.0
#include "dense/changed.h"

#include "base/clock.h"
#include "codec/fx.h"
#include "dense/internal.h"
#include "view/cut_files.h"

#define FILES_MAX 16384u
#define PARTS_MAX 65536u
#define WIDTHS 16u /* chunks per file of which the element width is read */

int file_keys_compare(const void *a, const void *b)
{
    const struct file_key *x = a, *y = b;
    if (x->mtime != y->mtime)
        return x->mtime < y->mtime ? -1 : 1;
    return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int note_part(const struct view_extent *part, void *arg)
{
    struct parts *parts = arg;
    const struct extent *e = &part->extent;
    if (e->kind == EXTENT_CHUNK && e->chunk_offset == 0)
        vector_add(parts, (struct part){e->chunk, e->offset, (uint32_t)e->length});
    return parts->count == PARTS_MAX;
}

int parts_of_file(struct view_cut *cut, uint64_t ino, struct parts *ret)
{
    return view_cut_content(cut, ino, note_part, ret);
}

unsigned dense_width(struct store *store, const struct chunk_entry *entry)
{
    uint8_t head[1];
    if (entry->encoding != ENCODING_FX || entry->pack == 0)
        return 0;
    if (pack_read_part(store->local.tier, entry->pack, entry->offset, head, sizeof head) < 0)
        return 0; /* the thread that reads the whole chunk reports the error */
    return fx_width(head[0]);
}

/* --- files in one directory ------------------------------------------------------------------- */

/* Files of one directory, by number. */
struct siblings {
    struct store *store;
    struct view_cut *cut;
    struct changed_file *at;
    size_t count, named;
    char *directory;
};

static int compare_siblings(const void *a, const void *b)
{
    const struct changed_file *x = a, *y = b;
    if (x->parent != y->parent)
        return x->parent < y->parent ? -1 : 1;
    return x->key.ino < y->key.ino ? -1 : x->key.ino > y->key.ino;
}

static int note_path(const char *name, uint64_t ino, void *arg)
{
    struct siblings *siblings = arg;
    const struct changed_file key = {.key.ino = ino, .parent = siblings->at->parent};
    struct changed_file *file =
        bsearch(&key, siblings->at, siblings->count, sizeof key, compare_siblings);
    if (file && !file->path) {
        const char *directory = siblings->directory;
        file->path = xasprintf("%s/%s", strcmp(directory, "/") == 0 ? "" : directory, name);
        siblings->named++;
    }
    return siblings->named == siblings->count;
}

/* Reads the directory once for all of them. */
static int name_siblings(struct siblings *siblings)
{
    uint64_t parent = siblings->at->parent;
    siblings->directory = view_cut_path(siblings->cut, parent);
    int r = siblings->directory ? view_cut_names(siblings->cut, parent, "", 0, note_path, siblings)
                                : -ESTALE;
    free(siblings->directory);
    return r;
}

/* Uses samples. */
static int look_at_widths(const struct siblings *siblings, struct changed_file *file)
{
    struct parts parts = {0};
    int r = parts_of_file(siblings->cut, file->key.ino, &parts);
    size_t samples = (size_t)min_u64(parts.count, WIDTHS);
    for (size_t i = 0; i < samples && r == 0 && !file->is_wide; i++) {
        const struct part *part = &parts.at[(2 * i + 1) * parts.count / (2 * samples)];
        struct chunk_entry entry;
        r = view_cut_chunk(siblings->cut, &part->chunk, &entry);
        if (r == 0)
            file->is_wide = dense_width(siblings->store, &entry) > 2;
        r = r == -ENOENT ? 0 : r;
    }
    vector_free(&parts);
    return r;
}

static int look_at_siblings(struct siblings *siblings)
{
    bool is_unknown = siblings->at->parent == 0, has_wide = is_unknown;
    int r = is_unknown ? 0 : name_siblings(siblings);
    for (size_t i = 0; i < siblings->count && r == 0; i++) {
        r = look_at_widths(siblings, &siblings->at[i]);
        has_wide = has_wide || siblings->at[i].is_wide;
    }
    for (size_t i = 0; i < siblings->count; i++)
        siblings->at[i].is_chained = !has_wide;
    return r;
}

/* --- all of them ------------------------------------------------------------------------------ */

static int note_file(const struct view_inode *file, void *arg)
{
    struct changed_files *files = arg;
    if (file->attrs.size >= FX_RAW_MIN)
        vector_add(files, (struct changed_file){.key = {file->attrs.mtime, file->ino},
                                                .parent = file->parent});
    return files->count == FILES_MAX;
}

static int look_at_files(struct dense *dense, struct view_cut *cut, int64_t *time,
                         struct changed_files *files)
{
    int r = 0;
    for (size_t i = 0, n; i < files->count && r == 0 && *time > 0; i += n) {
        struct siblings siblings = {.store = dense->store, .cut = cut, .at = &files->at[i]};
        int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        for (n = 1; i + n < files->count && files->at[i + n].parent == siblings.at->parent;)
            n++;
        siblings.count = n;
        r = dense_is_stopping(dense) ? -ECANCELED : look_at_siblings(&siblings);
        *time -= clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
    }
    return r;
}

int changed_list(struct dense *dense, struct view_cut *cut, int64_t *time,
                 struct changed_files *ret)
{
    int r = view_cut_changed_files(cut, note_file, ret);
    vector_sort(ret, compare_siblings);
    if (r == 0)
        r = look_at_files(dense, cut, time, ret);
    vector_sort(ret, file_keys_compare);
    return r;
}

void changed_done(struct changed_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->at[i].path);
    vector_free(files);
}
