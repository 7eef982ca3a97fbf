// SPDX-License-Identifier: Apache-2.0
/* The head of an earlier state that a reader requests: options->at. A head exists until the grace
 * of the writer's gc is over, and so long also all objects that it names. */
#include "base/pool.h"
#include "base/text.h"
#include "prefix/heads.h"
#include "prefix/named.h"

struct choosing {
    struct prefix *prefix;
    struct numbers numbers; /* of the heads that can be read, as far as is known; ascending */
    struct numbers damaged;
    struct head *head; /* the last head that was read */
};

static void drop_candidate(struct choosing *c, size_t i)
{
    check(i < c->numbers.count);
    memmove(c->numbers.at + i, c->numbers.at + i + 1,
            (--c->numbers.count - i) * sizeof *c->numbers.at);
}

/* Removes candidate i, which cannot be read. An error that is not damage is returned. */
static int drop_lost(struct choosing *c, size_t i, int error)
{
    if (!prefix_object_is_lost(error))
        return error;
    if (error != -ENOENT)
        vector_add(&c->damaged, c->numbers.at[i]);
    drop_candidate(c, i);
    return 0;
}

/* Reads candidate i; if it cannot be read, it is removed (*ret_is_there is false). */
static int read_candidate(struct choosing *c, size_t i, bool *ret_is_there)
{
    int r = head_read(c->prefix, c->numbers.at[i], c->head);
    *ret_is_there = r == 0;
    return r < 0 ? drop_lost(c, i, r) : 0;
}

/* --- by time ---------------------------------------------------------------------------------- */

#define READ_THREADS 16u
#define BLOCK_MAX 256u

struct reading {
    struct prefix *prefix;
    uint64_t number;
    int64_t published;
    int error;
};

static void read_time(void *arg)
{
    struct reading *reading = arg;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    reading->error = head_read(reading->prefix, reading->number, head);
    reading->published = head->published;
}

/* Reads the candidates from `first` on. */
static int read_times(const struct choosing *c, size_t first, size_t count,
                      struct reading readings[static BLOCK_MAX])
{
    struct pool *pool;
    check(count <= BLOCK_MAX);
    TRY(pool_new("cairn-heads", READ_THREADS, BLOCK_MAX, NULL, NULL, &pool));
    for (size_t i = 0; i < count; i++) {
        readings[i] = (struct reading){.prefix = c->prefix, .number = c->numbers.at[first + i]};
        pool_submit(pool, read_time, &readings[i]);
    }
    pool_free(pool);
    return 0;
}

/* *ret: the head is not later than `time`. A head that cannot be read is removed from the
 * candidates. */
static int judge(struct choosing *c, size_t i, const struct reading *reading, int64_t time,
                 bool *ret)
{
    *ret = reading->error == 0 && reading->published <= time;
    return reading->error < 0 ? drop_lost(c, i, reading->error) : 0;
}

/* Counts the candidates up to the newest one that is not later than `time`. The writer's clock may
 * have gone back, so times need not ascend: all heads are read from the newest on, in blocks that
 * grow. */
static int count_until(struct choosing *c, int64_t time, size_t *ret_count)
{
    _cleanup_free_ struct reading *readings = xcalloc(BLOCK_MAX, sizeof *readings);
    size_t end = c->numbers.count;
    for (size_t block = 1; end > 0; block = min_u64(2 * block, BLOCK_MAX)) {
        size_t first = end - min_u64(end, block);
        TRY(read_times(c, first, end - first, readings));
        for (; end > first; end--) {
            bool is_it;
            TRY(judge(c, end - 1, &readings[end - 1 - first], time, &is_it));
            *ret_count = end;
            if (is_it)
                return 0;
        }
    }
    *ret_count = 0;
    return 0;
}

/* --- the choice ------------------------------------------------------------------------------- */

static size_t count_up_to(const struct choosing *c, uint64_t number)
{
    size_t count = 0;
    while (count < c->numbers.count && c->numbers.at[count] <= number)
        count++;
    return count;
}

/* "head 12 of 2026-11-28T20:59:08Z". Caller frees. */
static char *describe_head(struct choosing *c, size_t i)
{
    char when[TEXT_TIME_LEN];
    unsigned long long number = c->numbers.at[i];
    if (head_read(c->prefix, number, c->head) < 0)
        return xasprintf("head %llu", number);
    text_time(c->head->published, when);
    return xasprintf("head %llu of %s", number, when);
}

static int explain_none(struct choosing *c, const struct head_choice *at, char **ret_text)
{
    const char *name = c->prefix->name;
    if (c->numbers.count == 0)
        return text_fail(ret_text, -ENODATA, "%s has no head that can be read", name);
    _cleanup_free_ char *oldest = describe_head(c, 0);
    _cleanup_free_ char *newest = describe_head(c, c->numbers.count - 1);
    if (at->number)
        return text_fail(ret_text, -ENODATA,
                         "%s: head %llu is not there: the oldest is %s, the newest %s; the writer "
                         "keeps heads for its gc_grace, and those of -o keep",
                         name, (unsigned long long)at->number, oldest, newest);
    char when[TEXT_TIME_LEN];
    text_time(at->time, when);
    return text_fail(ret_text, -ENODATA,
                     "%s: no head is as old as %s: the oldest is %s, the newest %s; the writer "
                     "keeps heads for its gc_grace, and those of -o keep",
                     name, when, oldest, newest);
}

/* Returns the newest damaged head after the chosen one and before the next. */
static uint64_t find_damaged(const struct choosing *c, size_t count)
{
    uint64_t found = 0, next = count < c->numbers.count ? c->numbers.at[count] : UINT64_MAX;
    for (size_t i = 0; i < c->damaged.count; i++) {
        uint64_t number = c->damaged.at[i];
        if (number > c->numbers.at[count - 1] && number < next)
            found = max_u64(found, number);
    }
    return found;
}

static void say_damaged(struct prefix *prefix, uint64_t damaged, const struct head *head)
{
    char when[TEXT_TIME_LEN];
    if (damaged == 0)
        return;
    text_time(head->published, when);
    free(prefix->shown_instead);
    prefix->shown_instead =
        xasprintf("head %llu is damaged; showing the one before, head %llu of %s",
                  (unsigned long long)damaged, (unsigned long long)head->number, when);
    prefix_error(prefix, 0, "%s", prefix->shown_instead);
}

/* Sets prefix->head to the last of `count` candidates. */
static int take_last(struct choosing *c, const struct head_choice *at, size_t count,
                     char **ret_text)
{
    bool is_there = false;
    while (count > 0 && !is_there) {
        TRY(read_candidate(c, count - 1, &is_there));
        count -= !is_there;
    }
    bool is_gone =
        at->number && c->damaged.count == 0 && count && c->numbers.at[count - 1] != at->number;
    if (count == 0 || is_gone)
        return explain_none(c, at, ret_text);
    if (c->head->run_count == 0)
        return text_fail(ret_text, -ENODATA, "%s: nothing was published there before head %llu",
                         c->prefix->name, (unsigned long long)c->head->number + 1);
    say_damaged(c->prefix, find_damaged(c, count), c->head);
    c->prefix->head = *c->head;
    return 0;
}

static int choose(struct choosing *c, const struct head_choice *at, char **ret_text)
{
    size_t count = 0;
    TRY(prefix_list_numbers(c->prefix, "heads", 0, &c->numbers));
    if (at->number)
        count = count_up_to(c, at->number);
    else
        TRY(count_until(c, at->time, &count));
    /* No other head replaces a head that does not exist. */
    if (at->number && (count == 0 || c->numbers.at[count - 1] != at->number))
        return explain_none(c, at, ret_text);
    return take_last(c, at, count, ret_text);
}

/* Independent of whether heads/NUMBER exists: the object with the name contains the head itself. */
static int choose_named(struct prefix *prefix, const char *name, char **ret_text)
{
    _cleanup_free_ struct named_snapshot *snapshot = xmalloc(sizeof *snapshot);
    int r = named_read(prefix, name, snapshot);
    if (r == -ENOENT)
        return text_fail(ret_text, -ENODATA,
                         "%s: there is no snapshot '%s'; 'cairn snapshot list' lists them",
                         prefix->name, name);
    if (prefix_object_is_lost(r))
        return text_fail(ret_text, -EUCLEAN, "%s: snapshots/%s is damaged", prefix->name, name);
    if (r == 0)
        prefix->head = snapshot->head;
    return r;
}

int heads_choose(struct prefix *prefix, char **ret_text)
{
    if (prefix->options->at.name[0])
        return choose_named(prefix, prefix->options->at.name, ret_text);
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    struct choosing c = {.prefix = prefix, .head = head};
    int r = choose(&c, &prefix->options->at, ret_text);
    vector_free(&c.numbers);
    vector_free(&c.damaged);
    return r;
}
