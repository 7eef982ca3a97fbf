// SPDX-License-Identifier: Apache-2.0
#include "store/chunk_users.h"

#include "view/view.h"

#define PAGES 1024u /* extent pages that are looked at under one snapshot of RocksDB */

struct finding {
    const struct chunk_users *want;
    uint64_t last; /* file that was given */
};

static void give_file(uint64_t ino, size_t chunk, void *arg)
{
    struct finding *finding = arg;
    (void)chunk;
    if (ino == finding->last) /* uses come file by file */
        return;
    finding->last = ino;
    finding->want->fn(ino, finding->want->arg);
}

static int compare_names(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct chunk_name));
}

int chunk_users_find(const struct chunk_users *want)
{
    VECTOR(struct chunk_prefix) prefixes = {0};
    struct finding finding = {.want = want};
    uint64_t at = 0;
    bool more = want->names->count > 0;
    int r = 0;
    vector_sort(want->names, compare_names);
    for (size_t i = 0; i < want->names->count; i++)
        memcpy(vector_next(&prefixes), want->names->at[i].bytes, sizeof *prefixes.at);
    const struct view_users users = {.chunks = prefixes.at,
                                     .count = prefixes.count,
                                     .max = PAGES,
                                     .fn = give_file,
                                     .arg = &finding};
    while (r == 0 && more)
        r = want->is_cancelled && want->is_cancelled(want->arg)
                ? -ECANCELED
                : view_find_users(want->view, &users, &at, &more);
    vector_free(&prefixes);
    return r;
}
