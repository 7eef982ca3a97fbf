// SPDX-License-Identifier: Apache-2.0
/* The content of heads and names: read once, and kept from one pass of gc to the next. */
#include "snapshots/internal.h"

#include "base/log.h"
#include "base/pool.h"
#include "prefix/heads.h"
#include "prefix/named.h"

#define READS_MAX 256u /* heads that are read in one pass; the next pass continues */
#define READ_THREADS 8u

static struct known_head know(const struct head *head)
{
    struct known_head known = {.number = head->number,
                               .was_read = true,
                               .epoch = head->epoch,
                               .cut = head->cut,
                               .max_id = head->max_id,
                               .published = head->published,
                               .run_count = head->run_count,
                               .runs = xcalloc(head->run_count + 1, sizeof(uint64_t))};
    for (uint32_t i = 0; i < head->run_count; i++)
        known.runs[i] = head->runs[i].id;
    return known;
}

static void forget_heads(struct known_heads *heads)
{
    for (size_t i = 0; i < heads->count; i++)
        free(heads->at[i].runs);
    vector_free(heads);
}

static void forget_names(struct known_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->at[i].head.runs);
    vector_free(names);
}

void known_done(struct snapshots *snapshots)
{
    forget_heads(&snapshots->heads);
    forget_names(&snapshots->names);
}

void known_forget_names(struct snapshots *snapshots)
{
    forget_names(&snapshots->names);
}

void snapshots_note_head(struct snapshots *snapshots, const struct head *head)
{
    size_t count = snapshots->heads.count;
    if (count == 0 || snapshots->heads.at[count - 1].number < head->number)
        vector_add(&snapshots->heads, know(head));
}

/* --- heads that are there --------------------------------------------------------------------- */

struct reading {
    struct prefix *prefix;
    struct known_head *into;
    int error;
};
DEFINE_VECTOR(readings, struct reading);

/* A damaged head counts as read, without content. */
static void read_known(void *arg)
{
    struct reading *reading = arg;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    int r = head_read(reading->prefix, reading->into->number, head);
    if (r == 0)
        *reading->into = know(head);
    if (prefix_object_is_lost(r)) {
        log_warn("remote: head %llu cannot be read: no policy keeps its state",
                 (unsigned long long)reading->into->number);
        reading->into->was_read = true;
        r = 0;
    }
    reading->error = r;
}

static int read_heads(struct readings *readings)
{
    struct pool *pool = NULL;
    if (readings->count == 0)
        return 0;
    TRY(pool_new("cairn-heads", READ_THREADS, 64, NULL, NULL, &pool));
    for (size_t i = 0; i < readings->count; i++)
        pool_submit(pool, read_known, &readings->at[i]);
    pool_free(pool);
    int r = 0;
    for (size_t i = 0; i < readings->count && r == 0; i++)
        r = readings->at[i].error;
    return r;
}

int known_learn_heads(struct snapshots *snapshots, const struct kept_head *heads, size_t count,
                      bool *ret_all)
{
    struct known_heads *known = &snapshots->heads;
    struct known_heads old = *known;
    struct readings readings = {0};
    *known = (struct known_heads){0};
    vector_reserve(known, count); /* so that the elements do not move */
    *ret_all = true;
    for (size_t i = 0; i < count; i++) {
        struct known_head *found = vector_search(&old, &heads[i].number, compare_u64);
        if (found && found->was_read) {
            vector_add(known, *found);
            found->runs = NULL;
        } else if (readings.count < READS_MAX) {
            vector_add(known, (struct known_head){.number = heads[i].number});
            vector_add(&readings,
                       (struct reading){snapshots->prefix, &known->at[known->count - 1], 0});
        } else {
            *ret_all = false;
        }
    }
    int r = read_heads(&readings);
    forget_heads(&old);
    vector_free(&readings);
    return r;
}

/* --- names ------------------------------------------------------------------------------------ */

/* The content of a damaged name is not known, so no head may be deleted. */
static int learn_name(struct snapshots *snapshots, const char *name, struct known_name *ret,
                      bool *ret_is_known)
{
    _cleanup_free_ struct named_snapshot *snapshot = xmalloc(sizeof *snapshot);
    int r = named_read(snapshots->prefix, name, snapshot);
    *ret_is_known = r == 0;
    if (r == 0) {
        *ret = (struct known_name){.head = know(&snapshot->head)};
        memcpy(ret->name, snapshot->name, sizeof ret->name);
    }
    if (r != -EUCLEAN && r != -EBADMSG)
        return r;
    prefix_error(snapshots->prefix, 0,
                 "snapshots/%s is damaged: no head is deleted before the object is restored, or "
                 "'cairn snapshot delete' removes the name",
                 name);
    return 0;
}

static int compare_name(const void *name, const void *known)
{
    return strcmp(name, ((const struct known_name *)known)->name);
}

int known_learn_names(struct snapshots *snapshots, bool *ret_any, bool *ret_all)
{
    struct known_names *known = &snapshots->names;
    struct known_names old = *known;
    struct named_list list = {0};
    int r = named_list(snapshots->prefix, &list);
    *known = (struct known_names){0};
    *ret_all = true;
    for (size_t i = 0; i < list.count && r == 0; i++) {
        struct known_name *found = vector_search(&old, list.at[i].name, compare_name);
        struct known_name one = found ? *found : (struct known_name){0};
        bool is_known = found;
        if (found)
            found->head.runs = NULL;
        else
            r = learn_name(snapshots, list.at[i].name, &one, &is_known);
        if (is_known)
            vector_add(known, one);
        *ret_all = *ret_all && is_known;
    }
    *ret_any = list.count > 0;
    forget_names(&old);
    vector_free(&list);
    return r;
}
