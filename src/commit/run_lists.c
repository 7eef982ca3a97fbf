// SPDX-License-Identifier: Apache-2.0
#include "commit/run_lists.h"

#include <dirent.h>

#include "base/process.h"
#include "commit/journal.h"
#include "format/object.h"

/* how many files a process may usually have open, besides others, without a raised limit */
#define FILES_USUAL 500u

/* --- the lists of a head ---------------------------------------------------------------------- */

static void add_list(struct run_lists *lists, uint32_t node, const char *types,
                     const struct run_info *runs, size_t count)
{
    struct run_info *own = xcalloc(count + 1, sizeof *own);
    for (size_t i = 0; i < count; i++) {
        own[i] = runs[i];
        own[i].node = node;
    }
    vector_add(&lists->lists,
               (struct run_list){.node = node, .types = types, .count = count, .runs = own});
}

static int add_list_of_writer(const struct local *local, const struct head *head, uint32_t i,
                              struct run_lists *lists)
{
    _cleanup_free_ struct feed *feed = xcalloc(1, sizeof *feed);
    int r = feed_look(local, head, i, feed);
    if (r < 0)
        return r;
    add_list(lists, feed->node, VIEW_ROWS_OF_CONTENT, feed->runs, feed->run_count);
    return 0;
}

int run_lists_of(const struct local *local, const struct head *head, struct run_lists *ret_lists)
{
    *ret_lists = (struct run_lists){0};
    const char *types = head_has_nodes(head) ? VIEW_ROWS_OF_NAMES : NULL;
    add_list(ret_lists, 0, types, head->runs, head->run_count);
    for (uint32_t i = 0; i < head->writer_count; i++)
        if (head_reads_writer(head, i))
            TRY(add_list_of_writer(local, head, i, ret_lists));
    return 0;
}

void run_lists_done(struct run_lists *lists)
{
    for (size_t i = 0; i < lists->lists.count; i++)
        free((void *)lists->lists.at[i].runs);
    vector_free(&lists->lists);
}

/* --- runs known before ------------------------------------------------------------------------ */

static bool is_same_list(const struct run_list *a, const struct run_list *b)
{
    return a->node == b->node &&
           (a->types == b->types || (a->types && b->types && strcmp(a->types, b->types) == 0));
}

static struct run_list *find_list(struct run_lists *lists, const struct run_list *like)
{
    for (size_t i = 0; i < lists->lists.count; i++)
        if (is_same_list(&lists->lists.at[i], like))
            return &lists->lists.at[i];
    return NULL;
}

static uint64_t cut_of_list(const struct run_list *list)
{
    return list->count ? list->runs[list->count - 1].cut : 0;
}

/* Runs are only added, and the newest ones merged. A list merged as a whole has no trace of removed
 * keys. */
static bool list_goes_on(struct run_list *list, const struct run_list *known)
{
    while (list->first < known->count && list->first < list->count &&
           known->runs[list->first].id == list->runs[list->first].id)
        list->first++;
    return cut_of_list(known) <= cut_of_list(list) && (list->first > 0 || known->count == 0);
}

void run_lists_forget(struct run_lists *lists)
{
    for (size_t i = 0; i < lists->lists.count; i++)
        lists->lists.at[i].first = 0;
}

void run_lists_go_on(struct run_lists *lists, const struct run_lists *known)
{
    bool all = true;
    for (size_t i = 0; i < known->lists.count && all; i++) {
        struct run_list *list = find_list(lists, &known->lists.at[i]);
        all = list && list_goes_on(list, &known->lists.at[i]);
    }
    if (!all)
        run_lists_forget(lists);
}

bool run_lists_are_new(const struct run_lists *lists)
{
    bool all = true;
    for (size_t i = 0; i < lists->lists.count; i++)
        all = all && lists->lists.at[i].first == 0;
    return all;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Runs read at the same time. */
struct merged_runs {
    struct run_input *inputs;
    struct run_reader **readers;
    size_t count; /* readers started */
};

static size_t count_unknown(const struct run_list *lists, size_t list_count)
{
    size_t count = 0;
    for (size_t i = 0; i < list_count; i++)
        count += lists[i].count - lists[i].first;
    return count;
}

static int begin_list(const struct local *local, const struct run_list *list,
                      struct merged_runs *merged)
{
    for (size_t i = list->first; i < list->count; i++) {
        struct run_input *input = &merged->inputs[merged->count];
        int r = run_input_begin(local, &list->runs[i], input);
        merged->readers[merged->count++] = input->reader;
        if (r < 0)
            return r;
        run_reader_select(input->reader, list->types);
    }
    return 0;
}

static int merge_lists(const struct local *local, const struct run_list *lists, size_t list_count,
                       bool drop_removed, int (*fn)(const struct run_row *row, void *arg),
                       void *arg)
{
    size_t count = count_unknown(lists, list_count);
    struct merged_runs merged = {.inputs = xcalloc(count + 1, sizeof *merged.inputs),
                                 .readers = xcalloc(count + 1, sizeof(struct run_reader *))};
    int r = 0;
    if (count > FILES_USUAL)
        process_raise_limits();
    for (size_t i = 0; i < list_count && r == 0; i++)
        r = begin_list(local, &lists[i], &merged);
    if (r == 0)
        r = run_merge(merged.readers, count, drop_removed, fn, arg);
    for (size_t i = 0; i < merged.count; i++)
        run_input_done(&merged.inputs[i]);
    free(merged.inputs);
    free(merged.readers);
    return r;
}

int runs_merge(const struct local *local, const struct run_info *runs, size_t count,
               bool drop_removed, int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    const struct run_list list = {.count = count, .runs = runs};
    return merge_lists(local, &list, 1, drop_removed, fn, arg);
}

int run_lists_read(const struct local *local, const struct run_lists *lists,
                   int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    return merge_lists(local, lists->lists.at, lists->lists.count, run_lists_are_new(lists), fn,
                       arg);
}

int runs_read(const struct local *local, const struct head *head,
              int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    _cleanup_(run_lists_done) struct run_lists lists = {0};
    TRY(run_lists_of(local, head, &lists));
    return run_lists_read(local, &lists, fn, arg);
}

/* --- files ------------------------------------------------------------------------------------ */

int runs_verify(const struct local *local, const struct head *head)
{
    _cleanup_(run_lists_done) struct run_lists lists = {0};
    TRY(run_lists_of(local, head, &lists));
    for (size_t i = 0; i < lists.lists.count; i++)
        for (size_t k = 0; k < lists.lists.at[i].count; k++)
            TRY(run_look(local, &lists.lists.at[i].runs[k]));
    return 0;
}

static bool is_local_head(const struct local *local, const struct head *head)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    return local_head_read(local, known) == 0 &&
           memcmp(known->nonce, head->nonce, sizeof known->nonce) == 0;
}

#define NODE_DIGITS 8u

/* Parses a file name "ID" or "NODE-ID". *ret_rest: the text after it. Other files there must not be
 * removed. */
static bool is_run_file(const char *file, struct run_info *ret_info, const char **ret_rest)
{
    char digits[17] = {0};
    const char *id = file;
    *ret_info = (struct run_info){0};
    if (strspn(file, "0123456789abcdef") == NODE_DIGITS && file[NODE_DIGITS] == '-') {
        ret_info->node = (uint32_t)strtoul(file, NULL, 16);
        id += NODE_DIGITS + 1;
    }
    if (strspn(id, "0123456789abcdef") != sizeof digits - 1)
        return false;
    memcpy(digits, id, sizeof digits - 1);
    *ret_rest = id + sizeof digits - 1;
    return object_digits(digits, &ret_info->id);
}

static bool lists_name_run(const struct run_lists *lists, const struct run_info *info)
{
    for (size_t i = 0; i < lists->lists.count; i++) {
        const struct run_list *list = &lists->lists.at[i];
        for (size_t k = 0; k < list->count && list->node == info->node; k++)
            if (list->runs[k].id == info->id)
                return true;
    }
    return false;
}

static void tidy_run_file(int dir, const char *file, const struct run_lists *lists)
{
    struct run_info info;
    const char *rest;
    if (!is_run_file(file, &info, &rest))
        return;
    bool is_unfinished = strcmp(rest, ".new") == 0;
    if (is_unfinished || (*rest == '\0' && !lists_name_run(lists, &info)))
        (void)unlinkat(dir, file, 0);
}

static void tidy_run_files(const struct local *local, const struct run_lists *lists)
{
    _cleanup_free_ char *directory = xasprintf("%s/runs", local->path);
    DIR *dir = opendir(directory);
    struct dirent *entry;
    if (!dir)
        return;
    while ((entry = readdir(dir)))
        tidy_run_file(dirfd(dir), entry->d_name, lists);
    (void)closedir(dir);
}

void runs_tidy(const struct local *local, struct room *room, const struct head *head)
{
    _cleanup_(run_lists_done) struct run_lists lists = {0};
    if (!is_local_head(local, head) || run_lists_of(local, head, &lists) < 0)
        return;
    tidy_run_files(local, &lists);
    feeds_tidy(local, head);
    room_account_runs(room);
}

void runs_tidy_own(const struct local *local, struct room *room, const struct head *head)
{
    _cleanup_(run_lists_done) struct run_lists lists = {0};
    if (!is_local_head(local, head))
        return;
    add_list(&lists, 0, NULL, head->runs, head->run_count);
    tidy_run_files(local, &lists);
    room_account_runs(room);
}
