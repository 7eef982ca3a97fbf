// SPDX-License-Identifier: Apache-2.0
/* A prefix, and its small objects. */
#include "prefix/prefix.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/cause.h"

/* For a small object that looks damaged: it may be damaged only in transfer. */
#define READ_TRIES 4
#define READ_PAUSE_MS 50

const char *const run_directories[RUN_PLACES] = {"runs", "copies"};

void prefix_init(struct prefix *prefix, struct local *local, struct room *room,
                 const struct remote_options *options, const struct prefix_user *user)
{
    check(options->tier);
    prefix->local = local;
    prefix->room = room;
    prefix->options = options;
    prefix->user = *user;
    prefix->tier = options->tier;
    prefix->name = xstrdup(options->name);
    prefix->holder = xstrdup(options->holder ? options->holder : "unknown");
}

void prefix_done(struct prefix *prefix)
{
    explicit_bzero(&prefix->marker.key, sizeof prefix->marker.key);
    free(prefix->shown_instead);
    free(prefix->name);
    free(prefix->holder);
}

void prefix_error(struct prefix *prefix, int error, const char *fmt, ...)
{
    char text[CAUSE_MAX];
    va_list ap;
    va_start(ap, fmt);
    cause_vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    if (prefix->user.trouble)
        prefix->user.trouble(prefix->user.arg, error, text);
}

uint32_t prefix_features(const struct prefix *prefix)
{
    _Static_assert(SUPERBLOCK_INCOMPAT_ENCODINGS <= UINT32_MAX, "they fit a head");
    uint64_t all = prefix->local->sb.incompat | prefix->marker.incompat;
    return (uint32_t)(all & SUPERBLOCK_INCOMPAT_ENCODINGS);
}

bool prefix_object_is_lost(int error)
{
    return error == -ENOENT || error == -EUCLEAN || error == -EBADMSG;
}

static int read_object_once(struct prefix *prefix, const char *object, size_t max,
                            int (*decode)(const void *buf, size_t len, void *arg), void *arg)
{
    uint64_t len;
    TRY(prefix->tier->ops->stat(prefix->tier, object, &len));
    if (len == 0 || len > max)
        return -EUCLEAN;
    _cleanup_free_ uint8_t *bytes = xmalloc(len);
    int r = prefix->tier->ops->get_range(prefix->tier, object, 0, bytes, len);
    return r < 0 ? r : decode(bytes, len, arg);
}

int prefix_read_object(struct prefix *prefix, const char *object, size_t max,
                       int (*decode)(const void *buf, size_t len, void *arg), void *arg)
{
    int r = 0;
    for (int i = 0; i < READ_TRIES; i++) {
        r = read_object_once(prefix, object, max, decode, arg);
        bool looks_damaged = r == -EUCLEAN || r == -EBADMSG || r == -EPROTONOSUPPORT;
        if (!looks_damaged || !prefix_pause(prefix, READ_PAUSE_MS << i))
            break;
    }
    return r;
}

int prefix_put_object(struct prefix *prefix, const char *object, const void *bytes, size_t len,
                      bool is_new)
{
    const struct tier_ops *ops = prefix->tier->ops;
    size_t room = align_up(len, 4096);
    uint8_t *aligned = aligned_alloc(4096, room);
    check(aligned != NULL);
    memcpy(aligned, bytes, len);
    memset(aligned + len, 0, room - len);
    int r = is_new ? ops->put_new(prefix->tier, object, aligned, len)
                   : ops->put(prefix->tier, object, aligned, len);
    explicit_bzero(aligned, len); /* a marker contains a key */
    free(aligned);
    return r;
}

struct listing {
    const char *directory;
    prefix_object_fn *fn;
    void *arg;
};

static int give_object(const struct tier_object *object, void *arg)
{
    const struct listing *listing = arg;
    uint64_t number;
    bool has_number = object_number(object->name, listing->directory, &number);
    return has_number ? listing->fn(number, object, listing->arg) : 0;
}

int prefix_list(struct prefix *prefix, const char *directory, uint64_t after, prefix_object_fn *fn,
                void *arg)
{
    char object[OBJECT_NAME_LEN];
    struct listing listing = {directory, fn, arg};
    object_name(directory, after, object);
    return prefix->tier->ops->list(prefix->tier, directory, after ? object : NULL, give_object,
                                   &listing);
}

static int add_number(uint64_t number, const struct tier_object *object, void *arg)
{
    struct numbers *numbers = arg;
    (void)object;
    vector_add(numbers, number);
    return 0;
}

int prefix_list_numbers(struct prefix *prefix, const char *directory, uint64_t after,
                        struct numbers *numbers)
{
    int r = prefix_list(prefix, directory, after, add_number, numbers);
    vector_sort(numbers, compare_u64);
    return r;
}

void run_object_name(const struct run_info *info, enum run_place place, char buf[RUN_OBJECT_LEN])
{
    unsigned long long id = info->id;
    if (info->node)
        (void)snprintf(buf, RUN_OBJECT_LEN, "nodes/%016llx/%s/%016llx",
                       (unsigned long long)info->node, run_directories[place], id);
    else
        (void)snprintf(buf, RUN_OBJECT_LEN, "%s/%016llx", run_directories[place], id);
}
