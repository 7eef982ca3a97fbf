// SPDX-License-Identifier: Apache-2.0
/* Merges runs in STORE/runs. */
#include "commit/run_file.h"

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
        run_file_abandon(local, &merged);
        return r;
    }
    runs[first] = merged;
    *count = first + 1;
    return 0;
}
