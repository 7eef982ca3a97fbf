// SPDX-License-Identifier: Apache-2.0
/* 'cairn fsck --repair': a journal that is damaged, and continues behind the damage, is truncated
 * at the damage on the operator's request. The removed part is kept in STORE/lost+found, and so
 * are, at the next mount, packs that only this part named.
 *
 *   mark "repaired"  ->  later segments aside, newest first
 *                    ->  the damaged segment aside, replaced by its whole part
 *
 * After a crash in between the journal ends sooner or later, without a gap, and the next repair
 * continues. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/io.h"
#include "base/vector.h"
#include "store/internal.h"

#define COPY_STEP MIB

struct repair {
    struct store *store;
    struct journal_damage damage;
    VECTOR(uint64_t) later; /* segments behind the damaged one */
    void (*report)(const char *line, bool is_problem, void *arg);
    void *arg;
};

bool repair_was_made(const struct store *store)
{
    _cleanup_free_ char *path = xasprintf("%s/repaired", store->local.path);
    return access(path, F_OK) == 0;
}

int repair_settled(const struct store *store)
{
    _cleanup_free_ char *path = xasprintf("%s/repaired", store->local.path);
    if (unlink(path) < 0)
        return errno == ENOENT ? 0 : -errno;
    return io_fsync_dir(store->local.path);
}

static void say_done(const struct repair *rep, const char *what, const char *object)
{
    _cleanup_free_ char *line = xasprintf("%s: %s", object, what);
    rep->report(line, false, rep->arg);
}

static int note_later(const struct tier_object *object, void *arg)
{
    struct repair *rep = arg;
    uint64_t number;
    if (!object_number(object->name, "journal", &number) || number <= rep->damage.segment)
        return 0;
    vector_add(&rep->later, number);
    return 0;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static int sync_journal(const struct store *store)
{
    _cleanup_free_ char *directory = xasprintf("%s/journal", store->local.path);
    int r = aside_sync(store);
    return r < 0 ? r : io_fsync_dir(directory);
}

static int set_later_aside(struct repair *rep)
{
    struct tier *tier = rep->store->local.tier;
    TRY(tier->ops->list(tier, "journal", NULL, note_later, rep));
    vector_sort(&rep->later, newest_first);
    for (size_t i = 0; i < rep->later.count; i++) {
        char object[32];
        object_name("journal", rep->later.at[i], object);
        TRY(set_aside(rep->store, object));
        TRY(sync_journal(rep->store));
        say_done(rep, "set aside in lost+found: it comes after the damage", object);
    }
    return 0;
}

/* Returns the length that the segment's file had when it was allocated. */
static uint64_t whole_length(struct store *store, const char *object, uint64_t len)
{
    uint8_t bytes[SEGMENT_HEADER_LEN];
    struct segment_header header;
    if (store->local.tier->ops->get_range(store->local.tier, object, 0, bytes, sizeof bytes) < 0 ||
        segment_decode_header(bytes, sizeof bytes, &header) < 0)
        return len;
    return max_u64(len, header.length);
}

/* Writes the first `keep` bytes of a segment, and zeros behind them. */
static int write_head(const struct repair *rep, const char *object, uint64_t keep, uint64_t len,
                      const char *to)
{
    const struct tier_ops *ops = rep->store->local.tier->ops;
    _cleanup_close_ int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    _cleanup_free_ uint8_t *bytes = xmalloc(COPY_STEP);
    for (uint64_t at = 0; at < keep; at += COPY_STEP) {
        size_t part = min_u64(keep - at, COPY_STEP);
        TRY(ops->get_range(rep->store->local.tier, object, at, bytes, part));
        TRY(io_pwrite_full(fd, bytes, part, at));
    }
    return ftruncate(fd, (off_t)len) < 0 || fsync(fd) < 0 ? -errno : 0;
}

/* The old segment has both names at first, then the new one replaces it under one of them: at no
 * moment is there no segment. */
static int replace_segment(struct repair *rep, const char *object, uint64_t len)
{
    struct store *store = rep->store;
    _cleanup_free_ char *path = xasprintf("%s/%s", store->local.path, object);
    _cleanup_free_ char *made = xasprintf("%s/room/%016llx", store->local.path, ~0ull);
    _cleanup_free_ char *kept = aside_path(store, object);
    TRY(write_head(rep, object, rep->damage.offset, whole_length(store, object, len), made));
    for (unsigned i = 1; link(path, kept) < 0; i++) {
        if (errno != EEXIST)
            return -errno;
        free(kept);
        _cleanup_free_ char *first = aside_path(store, object);
        kept = xasprintf("%s.%u", first, i);
    }
    TRY(aside_sync(store));
    if (rename(made, path) < 0)
        return -errno;
    return sync_journal(store);
}

static int truncate_journal(struct repair *rep)
{
    struct store *store = rep->store;
    char object[32];
    uint64_t len = 0;
    object_name("journal", rep->damage.segment, object);
    _cleanup_free_ char *mark = xasprintf("%s/repaired", store->local.path);
    TRY(aside_begin(store));
    TRY(io_write_file_durable(mark, "", 0));
    TRY(set_later_aside(rep));
    TRY(store->local.tier->ops->stat(store->local.tier, object, &len));
    bool is_whole = rep->damage.offset < SEGMENT_HEADER_LEN;
    TRY(is_whole ? set_aside(store, object) : replace_segment(rep, object, len));
    if (is_whole)
        TRY(sync_journal(store));
    _cleanup_free_ char *what =
        xasprintf("truncated at byte %llu; as it was, it is in lost+found, with %llu whole batches "
                  "behind the damage",
                  (unsigned long long)rep->damage.offset, (unsigned long long)rep->damage.behind);
    say_done(rep, what, object);
    return 0;
}

static int repair_journal(struct repair *rep, bool *ret_truncated, char **ret_text)
{
    int r = recover_view(rep->store, ret_text);
    rep->damage = journal_found(rep->store->commit.journal).damage;
    if (r == 0 || !rep->damage.found)
        return r;
    free(*ret_text);
    *ret_text = NULL;
    r = truncate_journal(rep);
    vector_free(&rep->later);
    *ret_truncated = r == 0;
    if (r < 0)
        *ret_text = xasprintf("%s: the journal cannot be truncated: %s", rep->store->local.path,
                              strerror(-r));
    return r;
}

int store_repair(const char *path, void (*report)(const char *line, bool is_problem, void *arg),
                 void *arg, bool *ret_truncated)
{
    struct store_options options = {.path = path, .writeback_threads = 1};
    struct repair rep = {.report = report, .arg = arg};
    char *text = NULL;
    *ret_truncated = false;
    int r = store_open_bare(&options, &rep.store, &text);
    if (r == 0) {
        r = repair_journal(&rep, ret_truncated, &text);
        store_discard(rep.store);
    }
    if (text)
        report(text, true, arg);
    free(text);
    return r;
}
