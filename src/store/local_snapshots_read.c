// SPDX-License-Identifier: Apache-2.0
/* Reads snapshots of a store from the disk: for commands that need no mount, and for the store. */
#include <stdio.h>

#include "base/cause.h"
#include "base/io.h"
#include "store/local_snapshots_internal.h"
#include "view/view.h"

#define FILE_MAX (8ull * LOCAL_SNAPSHOT_PACKS_MAX + 4096)
#define CACHE_BYTES (4 * MIB)

static bool is_deleted(const char *path, uint64_t number)
{
    _cleanup_free_ char *file = xasprintf("%s/%llu" DELETED, path, (unsigned long long)number);
    return access(file, F_OK) == 0;
}

/* Their directories come after the files that mark them as deleted, which must be removed last. */
static void leave_deleted_out(const char *path, struct pack_ids *numbers, struct names *leftovers)
{
    size_t count = 0;
    for (size_t i = 0; i < numbers->count; i++) {
        uint64_t number = numbers->at[i];
        if (!is_deleted(path, number))
            numbers->at[count++] = number;
        else if (leftovers)
            vector_add(leftovers, xasprintf("%llu", (unsigned long long)number));
    }
    numbers->count = count;
}

int local_snapshots_numbers(const char *path, struct pack_ids *ret, struct names *ret_leftovers)
{
    struct dirent *entry;
    DIR *directory = opendir(path);
    if (!directory)
        return errno == ENOENT ? 0 : -errno;
    while ((errno = 0, entry = readdir(directory))) {
        char *end;
        uint64_t number = strtoull(entry->d_name, &end, 10);
        if (entry->d_name[0] == '.' || number == 0)
            continue;
        if (!*end)
            vector_add(ret, number);
        else if (ret_leftovers)
            vector_add(ret_leftovers, xstrdup(entry->d_name));
    }
    int r = -errno;
    (void)closedir(directory);
    vector_sort(ret, compare_u64);
    leave_deleted_out(path, ret, ret_leftovers);
    return r;
}

int local_snapshots_read_file(const char *path, uint64_t number, struct local_snapshot *ret)
{
    _cleanup_free_ char *file = xasprintf("%s/%llu/snapshot", path, (unsigned long long)number);
    _cleanup_free_ char *bytes = NULL;
    size_t len;
    *ret = (struct local_snapshot){0};
    TRY(io_read_file(file, FILE_MAX, &bytes, &len));
    int r = local_snapshot_decode(bytes, len, ret);
    return r == 0 && ret->number != number ? -EUCLEAN : r;
}

int local_snapshots_open_view(const char *path, uint64_t number, struct view **ret)
{
    const struct view_options options = {
        .cache_bytes = CACHE_BYTES, .is_small = true, .is_read_only = true};
    _cleanup_free_ char *view = xasprintf("%s/%llu/view", path, (unsigned long long)number);
    int r = view_open(view, &options, 0, ret);
    if (r == -ESTALE)
        cause_note("the snapshot is of an earlier version of CairnFS, which can read it");
    return r == -ENOENT ? -EIO : r;
}

struct local_snapshot_info local_snapshot_info(const struct local_snapshot *snapshot)
{
    struct local_snapshot_info info = {.number = snapshot->number,
                                       .taken = snapshot->taken,
                                       .files = snapshot->files,
                                       .logical_bytes = snapshot->logical_bytes,
                                       .cut = snapshot->cut};
    memcpy(info.name, snapshot->name, sizeof info.name);
    return info;
}

/* False if it was given up meanwhile. */
static bool is_there(const char *path, uint64_t number)
{
    _cleanup_free_ char *one = xasprintf("%s/%llu", path, (unsigned long long)number);
    return access(one, F_OK) == 0;
}

int local_snapshots_read(const char *store, struct local_snapshot_list *ret)
{
    _cleanup_free_ char *path = xasprintf("%s/" LOCAL_SNAPSHOTS, store);
    _cleanup_vector_ struct pack_ids numbers = {0};
    int r = local_snapshots_numbers(path, &numbers, NULL);
    for (size_t i = 0; i < numbers.count && r == 0; i++) {
        struct local_snapshot one;
        int error = local_snapshots_read_file(path, numbers.at[i], &one);
        struct local_snapshot_info info = local_snapshot_info(&one);
        vector_free(&one.packs);
        info.number = numbers.at[i];
        info.error = error;
        if (error != -ENOENT || is_there(path, numbers.at[i]))
            vector_add(ret, info);
    }
    return r;
}

static bool is_chosen(const struct local_snapshot_info *one, const struct head_choice *at)
{
    if (at->number)
        return one->number == at->number;
    return at->time ? one->error == 0 && one->taken <= at->time : strcmp(one->name, at->name) == 0;
}

const struct local_snapshot_info *local_snapshots_choose(const struct local_snapshot_list *list,
                                                         const struct head_choice *at)
{
    for (size_t i = list->count; i-- > 0;)
        if (is_chosen(&list->at[i], at))
            return &list->at[i];
    return NULL;
}
