// SPDX-License-Identifier: Apache-2.0
/* Heads that lost a run, and heads that are gone. A reader goes back to the newest whole head if
 * the remote lost a run of the newest one, and so does a writer on request. The later states are
 * then given up, although except for the lost object all their objects exist: none of these may be
 * deleted before their heads are. */
#include "prefix/heads.h"

#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "base/log.h"
#include "prefix/runs.h"

/* --- finding a whole head --------------------------------------------------------------------- */

/* Removes a head that cannot be used from the candidates. */
static void drop_number(struct numbers *numbers, size_t at)
{
    check(at < numbers->count);
    memmove(numbers->at + at, numbers->at + at + 1,
            (numbers->count - at - 1) * sizeof *numbers->at);
    numbers->count--;
}

/* Finds the newest candidate that does not name the lost object, and removes later ones. The heads
 * that name an object are consecutive from the first one on, so binary search finds it. -ENOENT:
 * all candidates name it. */
static int find_head_without(struct prefix *prefix, struct numbers *numbers,
                             const struct lost_object *lost, struct head *head)
{
    /* candidates before it do not name the object; from numbers->count on, all do */
    size_t first = 0;
    bool names = false;
    while (first < numbers->count) {
        size_t middle = first + (numbers->count - first) / 2;
        int r = head_read(prefix, numbers->at[middle], head);
        if (r == 0)
            r = head_names_lost(prefix, head, lost, &names);
        if (prefix_object_is_lost(r))
            drop_number(numbers, middle);
        else if (r < 0)
            return r;
        else if (names)
            numbers->count = middle;
        else
            first = middle + 1;
    }
    check(first == numbers->count);
    while (numbers->count > 0) {
        int r = head_read(prefix, numbers->at[numbers->count - 1], head);
        if (!prefix_object_is_lost(r))
            return r < 0 || head->run_count > 0 ? r : -ENOENT;
        drop_number(numbers, numbers->count - 1);
    }
    return -ENOENT;
}

/* Removes heads that were given up. If the newest head cannot be read, the one before it lists
 * them. */
static void drop_given_up(struct numbers *numbers, const struct head *head)
{
    size_t kept = 0;
    for (size_t i = 0; i < numbers->count; i++)
        if (head_after_given_up(head, numbers->at[i]) == numbers->at[i])
            numbers->at[kept++] = numbers->at[i];
    numbers->count = kept;
}

int heads_find_whole(struct prefix *prefix, uint64_t after, uint64_t before,
                     const struct lost_object *lost, struct head *ret_head)
{
    struct lost_object next;
    struct numbers numbers = {0};
    int r = prefix_list_numbers(prefix, "heads", after, &numbers);
    drop_given_up(&numbers, &prefix->head);
    while (numbers.count > 0 && numbers.at[numbers.count - 1] >= before)
        numbers.count--;
    if (r == 0)
        r = find_head_without(prefix, &numbers, lost, ret_head);
    while (r == 0) {
        r = runs_fetch_head(prefix, ret_head, &next);
        if (!prefix_object_is_lost(r))
            break;
        numbers.count--;
        drop_given_up(&numbers, ret_head);
        r = find_head_without(prefix, &numbers, &next, ret_head);
    }
    vector_free(&numbers);
    return r;
}

/* --- going back ------------------------------------------------------------------------------- */

void head_time_text(int64_t published, char buf[HEAD_TIME_LEN])
{
    time_t seconds = (time_t)(published / 1000000000);
    struct tm tm;
    if (published == 0)
        (void)snprintf(buf, HEAD_TIME_LEN, "an unknown time");
    else if (!localtime_r(&seconds, &tm) ||
             strftime(buf, HEAD_TIME_LEN, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        (void)snprintf(buf, HEAD_TIME_LEN, "%lld", (long long)seconds);
}

/* For a writer, later heads keep their numbers, and no number is assigned twice: of epochs, inodes,
 * and packs. No store published this head. */
int heads_rest_on(struct prefix *prefix, const struct head *whole)
{
    struct head newest = prefix->head;
    prefix->head = *whole;
    if (prefix->options->read_only)
        return 0;
    /* No store counts that far: no writer assigned this number. */
    if (!newest.epoch && newest.number - whole->number >= EPOCH_LAST - whole->epoch)
        return -EUCLEAN;
    prefix->head.number = newest.number;
    /* The newest head cannot be read: each head in between began one epoch at most. */
    prefix->head.epoch = newest.epoch ? max_u64(whole->epoch, newest.epoch)
                                      : whole->epoch + (newest.number - whole->number);
    prefix->head.max_ino = max_u64(whole->max_ino, newest.max_ino);
    prefix->head.max_id = max_u64(whole->max_id, newest.max_id);
    TRY(heads_give_up(prefix, &(struct head_given_up){.cut = whole->cut,
                                                      .epoch = prefix->head.epoch,
                                                      .first = whole->number + 1,
                                                      .last = newest.number}));
    ssize_t got = getrandom(prefix->head.nonce, sizeof prefix->head.nonce, 0);
    return got == (ssize_t)sizeof prefix->head.nonce ? 0 : -EIO;
}

static const char *what_was_asked(const struct prefix *prefix)
{
    return head_choice_is_made(&prefix->options->at) ? "the state that was asked for"
                                                     : "the newest state";
}

int heads_go_back(struct prefix *prefix, uint64_t after, const struct lost_object *lost,
                  const char *why, char **ret_text)
{
    _cleanup_free_ struct head *whole = xmalloc(sizeof *whole);
    unsigned long long newest = prefix->head.number;
    char since[HEAD_TIME_LEN], of[HEAD_TIME_LEN];
    int r = heads_find_whole(prefix, after, prefix->head.number, lost, whole);
    head_time_text(prefix->head.published, of);
    head_time_text(r == 0 ? whole->published : 0, since);
    if (r == -ENOENT) {
        *ret_text = xasprintf("%s: %s (head %llu of %s) cannot be read: %s; no older head is "
                              "whole; 'cairn fsck %s' tells what is left",
                              prefix->name, what_was_asked(prefix), newest, of, why, prefix->name);
        return -EUCLEAN;
    }
    if (r < 0) {
        *ret_text =
            xasprintf("%s: %s (head %llu of %s) cannot be read: %s; looking for an older one "
                      "failed: %s",
                      prefix->name, what_was_asked(prefix), newest, of, why, strerror(-r));
        return r;
    }
    if (!prefix->options->read_only && !prefix->options->rollback) {
        *ret_text = xasprintf(
            "%s: the newest state (head %llu of %s) cannot be read: %s; head %llu of %s is whole: "
            "'cairn ls', 'cairn cp' and a mount with -o ro show it; to go on from there, and give "
            "up what came later, mount with --rollback",
            prefix->name, newest, of, why, (unsigned long long)whole->number, since);
        return -EUCLEAN;
    }
    free(prefix->shown_instead);
    prefix->shown_instead =
        xasprintf("head %llu of %s cannot be read: %s; %s head %llu of %s", newest, of, why,
                  prefix->options->read_only ? "showing" : "going on from",
                  (unsigned long long)whole->number, since);
    prefix_error(prefix, 0, "%s", prefix->shown_instead);
    return heads_rest_on(prefix, whole);
}

int heads_go_back_from_damaged(struct prefix *prefix, char **ret_text)
{
    uint64_t newest;
    char why[64];
    TRY(heads_newest_number(prefix, 0, &newest));
    (void)snprintf(why, sizeof why, "heads/%016llx is damaged", (unsigned long long)newest);
    prefix->head = (struct head){.number = newest};
    int r = heads_go_back(prefix, 0, &(struct lost_object){0}, why, ret_text);
    if (r < 0)
        prefix->head = (struct head){0};
    return r;
}

/* --- a head that is gone ---------------------------------------------------------------------- */

#define LATER_AGE_NS (60ll * 1000000000) /* a writer may be about to publish younger runs */

struct later_run {
    uint64_t id;
    int64_t modified, until;
};

static int note_later_run(uint64_t id, const struct tier_object *object, void *arg)
{
    struct later_run *later = arg;
    if (id > later->id && object->modified_ns < later->until)
        *later = (struct later_run){id, object->modified_ns, later->until};
    return 0;
}

void heads_look_for_later_run(struct prefix *prefix)
{
    const struct head *head = &prefix->head;
    struct later_run later = {0};
    char of[HEAD_TIME_LEN], since[HEAD_TIME_LEN];
    uint64_t newest = 0;
    for (uint32_t i = 0; i < head->run_count; i++)
        newest = max_u64(newest, head->runs[i].id);
    /* Ids of several nodes do not ascend. */
    if (newest == 0 || head_has_nodes(head) || head_choice_is_made(&prefix->options->at) ||
        prefix->shown_instead || !prefix->is_attached ||
        prefix->tier->ops->now(prefix->tier, &later.until) < 0)
        return;
    later.id = newest;
    later.until -= LATER_AGE_NS;
    if (prefix_list(prefix, run_directories[RUN_FIRST], newest, note_later_run, &later) < 0 ||
        later.id == newest)
        return;
    head_time_text(head->published, of);
    head_time_text(later.modified, since);
    prefix->shown_instead =
        xasprintf("head %llu of %s is the newest one, but runs/%016llx of %s came after it: a "
                  "later head is lost, or its writer died before it published",
                  (unsigned long long)head->number, of, (unsigned long long)later.id, since);
    log_warn("remote: %s", prefix->shown_instead);
}
