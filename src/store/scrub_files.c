// SPDX-License-Identifier: Apache-2.0
/* The files that need chunks which no tier can read: one scan of all extents for all of these
 * chunks. */
#include "base/vector.h"
#include "store/job.h"

#define LINES_MAX 1000u /* files that are reported by name; the rest are counted */
#define PAGES 1024u     /* extent pages that are read under one snapshot */

DEFINE_VECTOR(chunk_prefixes, struct chunk_prefix);

struct lacking {
    struct store *store;
    struct job *job;
    const struct chunk_name *names;
    size_t count;
    VECTOR(uint64_t) inos; /* LINES_MAX at most */
    uint64_t last, files;
};

static void note_file(uint64_t ino, size_t chunk, void *arg)
{
    struct lacking *lacking = arg;
    check(chunk < lacking->count);
    if (ino == lacking->last) /* the rows of a file are adjacent */
        return;
    lacking->last = ino;
    lacking->files++;
    if (lacking->inos.count < LINES_MAX)
        vector_add(&lacking->inos, ino);
}

static int compare_names(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct chunk_name));
}

struct lacking_part {
    const struct lacking *lacking;
    const struct chunk_name *first;
    uint64_t offset, bytes;
};

static int add_part(const struct view_extent *part, void *arg)
{
    struct lacking_part *sum = arg;
    const struct extent *e = &part->extent;
    const struct chunk_name *name = e->kind == EXTENT_CHUNK
                                        ? bsearch(&e->chunk, sum->lacking->names,
                                                  sum->lacking->count, sizeof *name, compare_names)
                                        : NULL;
    if (!name)
        return 0;
    if (!sum->first)
        sum->offset = e->offset;
    sum->first = sum->first ? sum->first : name;
    sum->bytes += e->length;
    return 0;
}

static int say_file(const struct lacking *lacking, uint64_t ino)
{
    struct store *store = lacking->store;
    struct lacking_part sum = {.lacking = lacking};
    int r = view_extents(store->local.view, ino, 0, INT64_MAX, add_part, &sum);
    if (r < 0 || !sum.first) /* the file changed meanwhile */
        return r == -ENOENT ? 0 : r;
    _cleanup_free_ char *path = ns_path(store->local.ns, ino);
    job_say(lacking->job,
            "%s: bytes from %llu on are damaged or missing, %llu in all, and nowhere else", path,
            (unsigned long long)sum.offset, (unsigned long long)sum.bytes);
    damage_note(store->commit.damage, ino, sum.first, -ENODATA);
    return 0;
}

int scrub_name_files(struct store *store, struct job *job, struct chunk_name *names, size_t count,
                     uint64_t *ret_files)
{
    struct lacking lacking = {.store = store, .job = job, .names = names, .count = count};
    struct chunk_prefixes prefixes = {0};
    uint64_t at = 0;
    bool more = count > 0;
    int r = 0;
    *ret_files = 0;
    if (count > 1)
        qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < count; i++)
        memcpy(vector_next(&prefixes), names[i].bytes, sizeof *prefixes.at);
    const struct view_users want = {
        .chunks = prefixes.at, .count = count, .max = PAGES, .fn = note_file, .arg = &lacking};
    while (r == 0 && more)
        r = job_is_cancelled(job) ? -ECANCELED
                                  : view_find_users(store->local.view, &want, &at, &more);
    for (size_t i = 0; i < lacking.inos.count && r == 0; i++)
        r = say_file(&lacking, lacking.inos.at[i]);
    if (r == 0 && lacking.files > lacking.inos.count)
        job_say(job, "and %llu more files",
                (unsigned long long)(lacking.files - lacking.inos.count));
    *ret_files = lacking.files;
    vector_free(&prefixes);
    vector_free(&lacking.inos);
    return r;
}
