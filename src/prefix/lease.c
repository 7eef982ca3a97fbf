// SPDX-License-Identifier: Apache-2.0
#include "prefix/lease.h"

#include <stdio.h>

#include "base/log.h"

#define LEASE_OBJECT "lease/holder"
#define LOOK_MS 500

static int note_lease(const struct tier_object *object, void *arg)
{
    struct lease_seen *seen = arg;
    if (strcmp(object->name, LEASE_OBJECT) == 0) {
        seen->exists = true;
        seen->modified = object->modified_ns;
    }
    return 0;
}

static int decode_lease(const void *buf, size_t len, void *arg)
{
    return lease_decode(buf, len, arg);
}

int lease_look(struct prefix *prefix, struct lease_seen *seen)
{
    *seen = (struct lease_seen){0};
    int r = prefix->tier->ops->list(prefix->tier, "lease", NULL, note_lease, seen);
    if (r < 0 || !seen->exists)
        return r;
    r = prefix_read_object(prefix, LEASE_OBJECT, LEASE_LEN, decode_lease, &seen->lease);
    if (prefix_object_is_lost(r)) {
        seen->exists = false;
        r = 0;
    }
    return r;
}

/* A living holder is usually noticed by the second node of a job, or is a mount that was
 * forgotten. */
char *lease_explain_holder(const struct prefix *prefix, const char *what, const char *holder)
{
    return xasprintf("%s %s by %s, and has one writer at a time: give each node that writes a "
                     "prefix of its own, and mount with -o ro to "
                     "read what is published; to go on from here instead, unmount it there "
                     "(--takeover does not ask it: what it has not "
                     "published stays there)",
                     prefix->name, what, holder);
}

static void say_progress(struct prefix *prefix, const char *line)
{
    log_info("remote: %s", line);
    if (prefix->options->progress)
        prefix->options->progress(line, prefix->options->progress_arg);
}

/* "host:/path pid 123" without the process. */
static size_t place_len(const char *holder)
{
    const char *end = strstr(holder, " pid ");
    return end ? (size_t)(end - holder) : strlen(holder);
}

/* A copy of a store has its id. Where several nodes write, a copy that lives may acknowledge what
 * others rely on, so its place tells it apart. */
static bool is_own(const struct prefix *prefix, const struct lease *lease)
{
    size_t len = place_len(prefix->holder);
    bool is_same_store = memcmp(lease->store, prefix->local->sb.store, sizeof lease->store) == 0;
    bool is_same_place =
        place_len(lease->holder) == len && memcmp(lease->holder, prefix->holder, len) == 0;
    return is_same_store &&
           (is_same_place || !(prefix->local->sb.incompat & SUPERBLOCK_INCOMPAT_NODES));
}

int lease_await(struct prefix *prefix, char **ret_text)
{
    struct lease_seen first, seen;
    int r = lease_look(prefix, &first);
    bool said = false;
    for (seen = first; r == 0; r = lease_look(prefix, &seen)) {
        if (!seen.exists || is_own(prefix, &seen.lease))
            return 0;
        int64_t now = 0, age;
        if (prefix->options->takeover)
            return 0;
        r = prefix->tier->ops->now(prefix->tier, &now);
        if (r < 0)
            return r; /* by another clock it might have expired */
        age = now - seen.modified;
        if (age > prefix->options->lease_ns)
            return 0;
        if (seen.modified != first.modified) {
            *ret_text = lease_explain_holder(prefix, "is in use", seen.lease.holder);
            return -EBUSY;
        }
        if (!said) {
            _cleanup_free_ char *line =
                xasprintf("%s was in use by %s %.0f s ago: going on from there if that renews "
                          "nothing for %.0f s, refused if it "
                          "lives",
                          prefix->name, seen.lease.holder, (double)age / 1e9,
                          (double)prefix->options->lease_ns / 1e9);
            say_progress(prefix, line);
        }
        said = true;
        bool given_up =
            prefix->options->cancelled && prefix->options->cancelled(prefix->options->progress_arg);
        if (given_up || !prefix_pause(prefix, LOOK_MS))
            return -ECANCELED;
    }
    return r;
}

int lease_renew(struct prefix *prefix)
{
    struct lease lease = {.epoch = prefix->local->epoch};
    uint8_t bytes[LEASE_LEN];
    memcpy(lease.history, prefix->local->sb.history, sizeof lease.history);
    memcpy(lease.store, prefix->local->sb.store, sizeof lease.store);
    (void)snprintf(lease.holder, sizeof lease.holder, "%s", prefix->holder);
    lease_encode(&lease, bytes);
    return prefix_put_object(prefix, LEASE_OBJECT, bytes, sizeof bytes, false);
}

void lease_give_back(struct prefix *prefix)
{
    const uint8_t *own = prefix->local->sb.store;
    struct lease_seen seen;
    int r = lease_look(prefix, &seen);
    if (r == 0 && seen.exists && memcmp(seen.lease.store, own, sizeof seen.lease.store) == 0)
        r = prefix->tier->ops->remove(prefix->tier, LEASE_OBJECT);
    if (r < 0)
        log_info("remote: the lease on %s could not be given back; it runs out by itself",
                 prefix->name);
}
