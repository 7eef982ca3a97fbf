// SPDX-License-Identifier: Apache-2.0
/* Heads, and other small objects of a remote, are read. */
#include "remote/prefix.h"

#include "base/log.h"

/* We may have to count on from numbers up to this: no head of ours gets there. */
#define NUMBER_MAX (1ull << 62)
#define READ_TRIES 4 /* of a small object that looks damaged: the damage may be of the way here */
#define READ_PAUSE_MS 50

void head_object_name(uint64_t number, char buf[OBJECT_NAME_LEN])
{
    object_name("heads", number, buf);
}

static int note_number(const struct tier_object *object, void *arg)
{
    uint64_t *newest = arg;
    uint64_t number;
    if (object_number(object->name, "heads", &number))
        *newest = max_u64(*newest, number);
    return 0;
}

static int read_object_once(struct remote *remote, const char *object, size_t max,
                            int (*decode)(const void *buf, size_t len, void *arg), void *arg)
{
    uint64_t len;
    TRY(remote->tier->ops->stat(remote->tier, object, &len));
    if (len == 0 || len > max)
        return -EUCLEAN;
    _cleanup_free_ uint8_t *bytes = xmalloc(len);
    int r = remote->tier->ops->get_range(remote->tier, object, 0, bytes, len);
    return r < 0 ? r : decode(bytes, len, arg);
}

int remote_read_object(struct remote *remote, const char *object, size_t max,
                       int (*decode)(const void *buf, size_t len, void *arg), void *arg)
{
    int r = 0;
    for (int i = 0; i < READ_TRIES; i++) {
        r = read_object_once(remote, object, max, decode, arg);
        bool looks_damaged = r == -EUCLEAN || r == -EBADMSG || r == -EPROTONOSUPPORT;
        if (!looks_damaged || !remote_pause(remote, READ_PAUSE_MS << i))
            break;
    }
    return r;
}

static int decode_head(const void *buf, size_t len, void *arg)
{
    return head_decode(buf, len, arg);
}

/* Numbers of a later epoch than the head's were never given out: a store that goes on from them
 * would give them out again, or have none left. */
static bool numbers_fit(const struct head *head)
{
    bool fit = head->number < NUMBER_MAX && head->epoch < EPOCH_LAST &&
               head->cut >> SEQ_EPOCH_SHIFT <= head->epoch &&
               ID_EPOCH(head->max_ino) < EPOCH_LAST && ID_EPOCH(head->max_id) <= head->epoch;
    for (uint32_t i = 0; i < head->run_count; i++)
        fit = fit && ID_EPOCH(head->runs[i].id) <= head->epoch;
    return fit;
}

int remote_read_head(struct remote *remote, uint64_t number, struct head *ret_head)
{
    char object[32];
    head_object_name(number, object);
    int r = remote_read_object(remote, object, HEAD_LEN_MAX, decode_head, ret_head);
    if (r == 0 &&
        (ret_head->number != number || !numbers_fit(ret_head) ||
         memcmp(ret_head->history, remote->store->local.sb.history, sizeof ret_head->history) != 0))
        r = -EUCLEAN;
    if (r < 0)
        *ret_head = (struct head){0};
    return r;
}

int remote_newest_number(struct remote *remote, uint64_t after, uint64_t *ret_newest)
{
    char object[32];
    *ret_newest = 0;
    head_object_name(after, object);
    return remote->tier->ops->list(remote->tier, "heads", after ? object : NULL, note_number,
                                   ret_newest);
}

/* A head that was listed, and cannot be found, was deleted meanwhile: then there is a newer one. Or
 * the server does not say all, and nothing follows from it. */
int remote_newest_head(struct remote *remote, uint64_t after, struct head *ret_head)
{
    uint64_t newest = 0;
    int r = 0;
    for (int i = 0; i < READ_TRIES; i++) {
        TRY(remote_newest_number(remote, after, &newest));
        if (newest <= after)
            return -ENOENT;
        r = remote_read_head(remote, newest, ret_head);
        if (r != -ENOENT || !remote_pause(remote, READ_PAUSE_MS << i))
            break;
    }
    char object[32];
    head_object_name(newest, object);
    if (r == -EUCLEAN || r == -EBADMSG)
        log_error("remote: %s: its newest head, %s, is damaged", remote->name, object);
    return r == -ENOENT ? -EAGAIN : r;
}
