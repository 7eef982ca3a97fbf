// SPDX-License-Identifier: Apache-2.0
/* Reading and creating heads. */
#include "prefix/heads.h"

#include <stdio.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"

/* We may have to continue from numbers up to this one: none of our heads reaches it. */
#define NUMBER_MAX (1ull << 62)
#define READ_TRIES 4
#define READ_PAUSE_MS 50
#define SETTLE_TRIES 4
#define SETTLE_PAUSE_MS 50
#define HEAD_RETRY_MS 1000
#define HEAD_REFUSED_MS 10000

/* --- reading them ----------------------------------------------------------------------------- */

static void head_object_name(uint64_t number, char buf[OBJECT_NAME_LEN])
{
    object_name("heads", number, buf);
}

static int decode_head(const void *buf, size_t len, void *arg)
{
    return head_decode(buf, len, arg);
}

/* Numbers of a later epoch than the head's were never assigned: a store that continued from them
 * would assign them again, or have none left. Each of several nodes has epochs of its own. */
static bool numbers_fit(const struct head *head)
{
    uint64_t last = head_has_nodes(head) ? EPOCH_LAST - 1 : head->epoch;
    bool fit = head->number < NUMBER_MAX && head->epoch < EPOCH_LAST &&
               head->cut >> SEQ_EPOCH_SHIFT <= last && ID_EPOCH(head->max_ino) < EPOCH_LAST &&
               ID_EPOCH(head->max_id) <= last;
    for (uint32_t i = 0; i < head->run_count; i++)
        fit = fit && ID_EPOCH(head->runs[i].id) <= last;
    return fit;
}

int head_read(struct prefix *prefix, uint64_t number, struct head *ret_head)
{
    char object[32];
    head_object_name(number, object);
    int r = prefix_read_object(prefix, object, HEAD_LEN_MAX, decode_head, ret_head);
    if (r == 0 &&
        (ret_head->number != number || !numbers_fit(ret_head) ||
         memcmp(ret_head->history, prefix->local->sb.history, sizeof ret_head->history) != 0))
        r = -EUCLEAN;
    if (r < 0)
        *ret_head = (struct head){0};
    return r;
}

int heads_newest_number(struct prefix *prefix, uint64_t after, uint64_t *ret_newest)
{
    struct numbers numbers = {0};
    int r = prefix_list_numbers(prefix, "heads", after, &numbers);
    *ret_newest = numbers.count > 0 ? numbers.at[numbers.count - 1] : 0;
    vector_free(&numbers);
    return r;
}

/* A head that was listed, and cannot be found, was deleted meanwhile: then there is a newer one. Or
 * the server's listing is not up to date, and nothing follows from it. */
int heads_newest(struct prefix *prefix, uint64_t after, struct head *ret_head)
{
    uint64_t newest = 0;
    int r = 0;
    for (int i = 0; i < READ_TRIES; i++) {
        TRY(heads_newest_number(prefix, after, &newest));
        if (newest <= after)
            return -ENOENT;
        r = head_read(prefix, newest, ret_head);
        if (r != -ENOENT || !prefix_pause(prefix, READ_PAUSE_MS << i))
            break;
    }
    char object[32];
    head_object_name(newest, object);
    if (r == -EUCLEAN || r == -EBADMSG)
        log_error("remote: %s: its newest head, %s, is damaged", prefix->name, object);
    return r == -ENOENT ? -EAGAIN : r;
}

/* --- creating them ---------------------------------------------------------------------------- */

/* Checks that there is no head above number `after`. -ESTALE: there is, and *head is the newest. */
static int check_none_above(struct prefix *prefix, uint64_t after, struct head *head)
{
    _cleanup_free_ struct head *newest = xmalloc(sizeof *newest);
    int r = heads_newest(prefix, after, newest);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    *head = *newest;
    return -ESTALE;
}

/* Called after our head was created. A store that was suspended for longer than the grace may have
 * been replaced by another one, whose first heads, including this number, were deleted since, and
 * all before them. And the first head of a session may follow a listing that lacked newer ones.
 * -ESTALE: there are newer heads, and *head is the newest. */
static int check_newest(struct prefix *prefix, struct head *head)
{
    char before[32];
    uint64_t len;
    int r = -ENOENT;
    head_object_name(head->number - 1, before);
    if (prefix->has_published)
        r = prefix->tier->ops->stat(prefix->tier, before, &len);
    if (r != -ENOENT)
        return r;
    r = check_none_above(prefix, head->number, head);
    prefix->has_lost_head = prefix->has_lost_head || (r == 0 && prefix->has_published);
    return r;
}

/* Determines whose head has our number. 0: ours. -ESTALE: another store's, which is in *head. A
 * wrong answer may occur once: so another store's head is read twice. -EUCLEAN: the object is no
 * head of this number, so it is not known. */
static int settle_head(struct prefix *prefix, struct head *head)
{
    _cleanup_free_ struct head *there = xmalloc(sizeof *there),
                               *before = xcalloc(1, sizeof *before);
    int r = 0;
    for (int i = 0; i < SETTLE_TRIES; i++) {
        r = head_read(prefix, head->number, there);
        if (r == 0 && tried_is_own(prefix, there))
            return 0;
        if (r == 0) {
            bool is_same = memcmp(before->nonce, there->nonce, sizeof there->nonce) == 0;
            r = is_same ? -ESTALE : -EAGAIN;
            *before = *there;
        }
        if ((r != -EAGAIN && r != -EUCLEAN) || !prefix_pause(prefix, SETTLE_PAUSE_MS << i))
            break;
    }
    if (r == -ESTALE)
        *head = *there;
    return r;
}

/* Makes one attempt to create the head. If the answer was lost or is wrong, the nonce in the
 * existing head decides. */
static int try_head(struct prefix *prefix, struct head *head, const void *bytes, size_t len)
{
    char object[32];
    head_object_name(head->number, object);
    /* All objects that the head names are durable before it, also if the medium loses power. */
    int r = prefix->tier->ops->sync(prefix->tier);
    if (r == 0 && !prefix->has_published)
        r = check_none_above(prefix, head->number, head);
    if (r == 0)
        r = prefix_put_object(prefix, object, bytes, len, true);
    if (r == -EEXIST)
        r = settle_head(prefix, head);
    else if (r < 0 && r != -ECANCELED && r != -ESTALE && !tier_error_is_transient(r) &&
             settle_head(prefix, head) == 0)
        r = 0;
    if (r == 0)
        r = prefix->tier->ops->sync(prefix->tier);
    return r == 0 ? check_newest(prefix, head) : r;
}

void head_sign(const struct prefix *prefix, struct head *head)
{
    const struct superblock *sb = &prefix->local->sb;
    head->number = max_u64(head->number, prefix->beginning.number) + 1;
    head->incompat = prefix_features(prefix);
    head->epoch = prefix->local->epoch;
    head->writer = sb->writer;
    if (prefix->options->sets_keep)
        head->keep = prefix->options->keep;
    memcpy(head->store, sb->store, sizeof head->store);
    memcpy(head->history, sb->history, sizeof head->history);
    (void)snprintf(head->holder, sizeof head->holder, "%s", prefix->holder);
}

int head_put(struct prefix *prefix, struct head *head)
{
    _cleanup_free_ uint8_t *bytes = xcalloc(1, HEAD_LEN_MAX);
    if (getrandom(head->nonce, sizeof head->nonce, 0) != (ssize_t)sizeof head->nonce)
        return -EIO;
    tried_add(prefix, head);
    head->published = clock_realtime_ns();
    size_t len = head_encode(head, bytes);
    for (;;) {
        int r = try_head(prefix, head, bytes, len);
        if (r == 0)
            prefix_works(prefix);
        prefix->has_published = prefix->has_published || r == 0;
        if (r == 0 || r == -ESTALE)
            return r;
        prefix_error(prefix, r, "publishing head %llu failed (%s)",
                     (unsigned long long)head->number, strerror(-r));
        /* The head may exist, or be created later: another head of this store would find its number
         * taken by a head without an owner. A mount does not wait for the result: the uploader
         * continues. */
        bool goes_on = r != -ECANCELED && prefix->is_patient;
        if (!goes_on ||
            !prefix_pause(prefix, tier_error_is_transient(r) ? HEAD_RETRY_MS : HEAD_REFUSED_MS))
            return r;
    }
}

int heads_give_up(struct prefix *prefix, struct head_given_up *given_up)
{
    TRY(prefix->tier->ops->now(prefix->tier, &given_up->time));
    head_give_up(&prefix->head, given_up);
    log_warn("remote: heads %llu to %llu are given up: what they name stays in %s for %.1f hours "
             "(rollback_keep)",
             (unsigned long long)given_up->first, (unsigned long long)given_up->last, prefix->name,
             (double)prefix->options->rollback_keep_ns / 3.6e12);
    return 0;
}
