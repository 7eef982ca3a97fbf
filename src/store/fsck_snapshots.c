// SPDX-License-Identifier: Apache-2.0
/* The part of a check for the snapshots of the store: chunks that files of a snapshot need, and no
 * later state does, are read and verified, and files with damaged chunks are reported. */
#include "store/fsck_snapshots.h"

#include "base/cause.h"
#include "store/chunk_users.h"
#include "store/local_snapshots_internal.h"

#define SLOT 1u

struct snapshot_check {
    struct store *store;
    struct chunk_names *bad; /* of this state, or a later one */
    void (*report)(const char *line, bool is_problem, void *arg);
    void *arg;
    int checked;        /* snapshots; also those that cannot be read */
    struct view *view;  /* of the snapshot that is being checked */
    struct view *later; /* of the state after it, whose chunks are verified */
    char *name;
    uint8_t *buf;
};

static int check_chunk(const struct view_local_chunk *chunk, void *arg)
{
    struct snapshot_check *c = arg;
    const struct chunk_name *name = &chunk->entry.name;
    struct view_local_chunk later;
    uint32_t len;
    int r = view_local_chunk(c->later, name, &later);
    if (r < 0 && r != -ENOENT)
        return r;
    if (chunk->entry.pack == 0 || (r == 0 && view_is_live(&later)))
        return 0;
    if (packs_read_chunk(c->store->commit.packs, name, c->buf, &len) < 0 &&
        c->bad->count < FSCK_BAD_MAX)
        vector_add(c->bad, *name);
    return 0;
}

static void report_file(uint64_t ino, void *arg)
{
    struct snapshot_check *c = arg;
    _cleanup_free_ char *path = view_path(c->view, ino);
    _cleanup_free_ char *line =
        xasprintf("snapshot %s: %s: bytes of it are damaged or missing", c->name, path);
    c->report(line, true, c->arg);
}

static int check_chunks(struct snapshot_check *c)
{
    const struct chunk_users want = {c->view, c->bad, NULL, report_file, c};
    TRY(view_chunks(c->view, check_chunk, c));
    return chunk_users_find(&want);
}

/* Chunks that have no place in the newest state are found through the snapshot's own view. */
static int check_view(struct snapshot_check *c)
{
    unsigned slot;
    past_views_add(c->store->past, SLOT, c->view, true);
    int r = check_chunks(c);
    past_views_leave(c->store->past, SLOT);
    check(past_views_take_any(c->store->past, &slot) == c->view);
    return r;
}

static void close_later(struct snapshot_check *c)
{
    if (c->later != c->store->local.view)
        view_close(c->later);
}

/* If a check failed, not all chunks of the snapshot were verified, so earlier ones are not compared
 * with it. */
static int check_opened(struct snapshot_check *c)
{
    int r = check_view(c);
    if (r < 0) {
        view_close(c->view);
        return r;
    }
    close_later(c);
    c->later = c->view;
    return 0;
}

static void report_unreadable(struct snapshot_check *c, int error)
{
    _cleanup_free_ char *line = xasprintf("snapshot %s cannot be read: %s", c->name,
                                          *cause_text() ? cause_text() : strerror(-error));
    c->report(line, true, c->arg);
}

static void report_older(struct snapshot_check *c)
{
    _cleanup_free_ char *line = xasprintf("snapshot %s is of an earlier version of CairnFS, and "
                                          "was not checked: read it with that version, or delete "
                                          "it",
                                          c->name);
    c->report(line, false, c->arg);
}

static void check_snapshot(struct snapshot_check *c, const char *path,
                           const struct local_snapshot_info *info)
{
    cause_clear();
    c->name =
        *info->name ? xstrdup(info->name) : xasprintf("%llu", (unsigned long long)info->number);
    int r = info->error ? info->error : local_snapshots_open_view(path, info->number, &c->view);
    bool is_older = r == -ESTALE;
    r = r == 0 ? check_opened(c) : r;
    if (is_older)
        report_older(c);
    else if (r < 0)
        report_unreadable(c, r);
    c->checked += !is_older;
    free(c->name);
}

int fsck_snapshots(struct store *store, struct chunk_names *bad,
                   void (*report)(const char *line, bool is_problem, void *arg), void *arg)
{
    _cleanup_free_ char *path = xasprintf("%s/" LOCAL_SNAPSHOTS, store->local.path);
    struct local_snapshot_list list = {0};
    struct snapshot_check c = {.store = store,
                               .bad = bad,
                               .report = report,
                               .arg = arg,
                               .later = store->local.view,
                               .buf = xmalloc(CHUNK_SIZE_MAX)};
    int r = local_snapshots_read(store->local.path, &list);
    for (size_t i = list.count; i-- > 0 && r == 0;)
        check_snapshot(&c, path, &list.at[i]);
    close_later(&c);
    vector_free(&list);
    free(c.buf);
    return r < 0 ? r : c.checked;
}
