// SPDX-License-Identifier: Apache-2.0
/* The runs in STORE/runs: written whole, read, merged, verified, and removed when no head names
 * them. */
#include <dirent.h>

#include "commit/journal.h"
#include "commit/run_file.h"
#include "format/object.h"

int runs_merge(const struct local *local, const struct run_info *runs, size_t count,
               bool drop_removed, int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    struct run_input inputs[HEAD_RUNS_MAX + 1];
    struct run_reader *readers[HEAD_RUNS_MAX + 1] = {0};
    size_t begun = 0;
    int r = 0;
    check(count <= ARRAY_LEN(inputs));
    while (begun < count && r == 0) {
        r = run_input_begin(local, &runs[begun], &inputs[begun]);
        readers[begun] = inputs[begun].reader;
        begun++;
    }
    if (r == 0)
        r = run_merge(readers, count, drop_removed, fn, arg);
    for (size_t i = 0; i < begun; i++)
        run_input_done(&inputs[i]);
    return r;
}

int runs_read(const struct local *local, const struct head *head,
              int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    return runs_read_from(local, head, 0, fn, arg);
}

int runs_read_from(const struct local *local, const struct head *head, uint32_t first,
                   int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    return runs_merge(local, head->runs + first, head->run_count - first, first == 0, fn, arg);
}

size_t runs_first_to_merge(const struct run_info *runs, size_t count, uint64_t most)
{
    uint64_t newer = runs[count - 1].length;
    size_t first = count - 1;
    for (size_t i = count - 1; i-- > 0; newer += runs[i].length) {
        if (count > HEAD_RUNS_MAX && i + 1 >= HEAD_RUNS_MAX)
            first = i;
        else if (newer + runs[i].length > most)
            break;
        else if (2 * newer >= runs[i].length)
            first = i;
    }
    return first;
}

int runs_merge_from(const struct local *local, struct room *room, const struct run_info *info,
                    struct run_info *runs, size_t *count, size_t first)
{
    struct run_info merged = {.id = info->id, .base_cut = runs[first].base_cut, .cut = info->cut};
    struct run_file file;
    memcpy(merged.history, local->sb.history, sizeof merged.history);
    int r = run_file_begin(&file, local, room, &merged);
    if (r == 0)
        r = runs_merge(local, runs + first, *count - first, first == 0, run_file_add, &file);
    if (r == 0)
        r = run_file_finish(&file, &merged);
    run_file_done(&file);
    if (r < 0) {
        run_file_abandon(local, merged.id);
        return r;
    }
    runs[first] = merged;
    *count = first + 1;
    return 0;
}

static bool is_local_head(const struct local *local, const struct head *head)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    return local_head_read(local, known) == 0 &&
           memcmp(known->nonce, head->nonce, sizeof known->nonce) == 0;
}

/* A run that a crash left half written. Files with other names are not ours to remove. */
static bool is_unfinished(const char *name)
{
    return strlen(name) == 20 && strspn(name, "0123456789abcdef") == 16 &&
           strcmp(name + 16, ".new") == 0;
}

void runs_tidy(const struct local *local, struct room *room, const struct head *head)
{
    _cleanup_free_ char *directory = xasprintf("%s/runs", local->path);
    DIR *dir = is_local_head(local, head) ? opendir(directory) : NULL;
    if (!dir)
        return;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        uint64_t id;
        bool needed = false, is_run = object_digits(entry->d_name, &id);
        for (uint32_t i = 0; i < head->run_count && is_run; i++)
            needed = needed || head->runs[i].id == id;
        if (!needed && (is_run || is_unfinished(entry->d_name)))
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    (void)closedir(dir);
    room_account_runs(room);
}

int run_look(const struct local *local, const struct run_info *info)
{
    struct run_input input;
    int r = run_input_open(local, info, &input);
    if (r == 0)
        r = run_input_verify(&input, info->hash);
    run_input_done(&input);
    return r == -EUCLEAN || r == -EBADMSG ? -ENOENT : r;
}

int runs_verify(const struct local *local, const struct head *head)
{
    for (uint32_t i = 0; i < head->run_count; i++)
        TRY(run_look(local, &head->runs[i]));
    return 0;
}
