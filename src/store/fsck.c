// SPDX-License-Identifier: Apache-2.0
/* Checks a store that nothing uses: every reference is counted again, every chunk is read and
 * verified. */
#include <stdio.h>

#include "base/hex.h"
#include "store/fsck_snapshots.h"
#include "view/remote.h"

struct fsck {
    struct store *store;
    void (*report)(const char *line, bool is_problem, void *arg);
    void *arg;
    int problems;
    uint64_t chunks, bytes, remote_only_chunks; /* on NVMe; in the remote only */
    struct chunk_names bad;
    uint8_t *buf;
};

static void report_problem(struct fsck *fsck, const char *line)
{
    fsck->problems++;
    fsck->report(line, true, fsck->arg);
}

static void report_difference(const char *line, void *arg)
{
    report_problem(arg, line);
}

static void report_of_snapshot(const char *line, bool is_problem, void *arg)
{
    struct fsck *fsck = arg;
    fsck->problems += is_problem;
    fsck->report(line, is_problem, fsck->arg);
}

struct user {
    struct fsck *fsck;
    const char *what;
};

static int report_user(uint64_t ino, uint64_t offset, void *arg)
{
    struct user *user = arg;
    _cleanup_free_ char *path = view_path(user->fsck->store->local.view, ino);
    _cleanup_free_ char *line = xasprintf("%s: bytes from %llu on are damaged (%s)", path,
                                          (unsigned long long)offset, user->what);
    report_problem(user->fsck, line);
    return 0;
}

/* A chunk that is only in the remote can be decoded only with all chunks there that it refers
 * to. */
static int check_bases(struct fsck *fsck, const struct chunk_name *name)
{
    struct chunk_name base;
    char hex[2 * sizeof base.bytes + 1] = {0}, what[96];
    int r = view_remote_lacks(fsck->store->local.view, name, &base);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    hex_print(hex, base.bytes, sizeof base.bytes);
    (void)snprintf(what, sizeof what, "their base %s is missing in the remote", hex);
    struct user user = {.fsck = fsck, .what = what};
    return view_chunk_users(fsck->store->local.view, name, report_user, &user);
}

static int check_chunk(const struct view_local_chunk *chunk, void *arg)
{
    struct fsck *fsck = arg;
    const struct chunk_entry *entry = &chunk->entry;
    uint32_t len;
    struct chunk_entry remote;
    bool published;
    if (entry->pack == 0 &&
        view_remote_chunk(fsck->store->local.view, &entry->name, &remote, &published) == 0) {
        fsck->remote_only_chunks++;
        return check_bases(fsck, &entry->name);
    }
    fsck->chunks++;
    fsck->bytes += entry->stored_len;
    int r = packs_read_chunk(fsck->store->commit.packs, &entry->name, fsck->buf, &len);
    if (r == 0)
        return 0;
    if (fsck->bad.count < FSCK_BAD_MAX)
        vector_add(&fsck->bad, entry->name);
    char what[96];
    (void)snprintf(what, sizeof what, "pack %016llx: %s", (unsigned long long)entry->pack,
                   r == -EBADMSG                   ? "a chunk does not match its hash"
                   : r == -ENOENT || r == -ENODATA ? "a chunk is missing"
                                                   : damage_describe(r));
    struct user user = {.fsck = fsck, .what = what};
    return view_chunk_users(fsck->store->local.view, &entry->name, report_user, &user);
}

static int ignore_entry(const struct chunk_entry *entry, void *arg)
{
    (void)entry;
    (void)arg;
    return 0;
}

static int check_pack(const struct view_pack *pack, void *arg)
{
    struct fsck *fsck = arg;
    char object[32];
    uint64_t len;
    pack_object_name(pack->pack, object);
    int r = fsck->store->local.tier->ops->stat(fsck->store->local.tier, object, &len);
    const char *what = r < 0                 ? strerror(-r)
                       : len != pack->length ? "has another length than it had"
                                             : NULL;
    if (!what && packs_read_index(fsck->store->commit.packs, pack->pack, ignore_entry, NULL) < 0)
        what =
            "its index is damaged; its chunks are looked at without it; 'cairn scrub' moves them";
    _cleanup_free_ char *line = xasprintf("%s: %s", object, what ? what : "");
    if (what)
        report_problem(fsck, line);
    return 0;
}

/* A view that was set aside is no problem of the store, but uses room. */
static void report_aside(struct fsck *fsck)
{
    _cleanup_free_ char *path = xasprintf("%s/" ASIDE_DIRECTORY, fsck->store->local.path);
    _cleanup_free_ char *line = xasprintf(
        "%s has what was set aside; nothing reads it: remove it when you need it no more", path);
    if (access(path, F_OK) == 0)
        fsck->report(line, false, fsck->arg);
}

/* No problem of the store, but the last acknowledged data was not checked. */
static void report_staged(struct fsck *fsck)
{
    uint64_t bytes;
    _cleanup_free_ char *ctl =
        session_staged(fsck->store->local.path, fsck->store->local.sb.store, &bytes);
    if (!ctl)
        return;
    _cleanup_free_ char *line =
        xasprintf("up to %llu bytes that were written, and changes of names, are staged in %s and "
                  "not in the store yet: the next mount brings them in",
                  (unsigned long long)bytes, ctl);
    fsck->report(line, false, fsck->arg);
}

/* No problem either: it is removed when no chunk refers to it any more. */
static void report_held(struct fsck *fsck)
{
    uint64_t local = view_state(fsck->store->local.view).held_bytes,
             remote = view_remote(fsck->store->local.view).held_bytes;
    _cleanup_free_ char *line =
        xasprintf("%.1f MiB on NVMe and %.1f MiB in the remote are of no file any more, and kept "
                  "because files are stored by them",
                  (double)local / MIB, (double)remote / MIB);
    if (local || remote)
        fsck->report(line, false, fsck->arg);
}

static int check_store(struct fsck *fsck)
{
    struct view *view = fsck->store->local.view;
    int snapshots = 0, r = view_check(view, report_difference, fsck);
    if (r >= 0)
        r = view_packs(view, check_pack, fsck);
    if (r >= 0)
        r = view_chunks(view, check_chunk, fsck);
    if (r >= 0)
        r = snapshots = fsck_snapshots(fsck->store, &fsck->bad, report_of_snapshot, fsck);
    report_aside(fsck);
    report_staged(fsck);
    report_held(fsck);
    struct view_state state = view_state(view);
    _cleanup_free_ char *line =
        xasprintf("%llu files, %llu packs; %llu chunks of %.1f MiB verified; operation %llu",
                  (unsigned long long)state.files, (unsigned long long)state.packs,
                  (unsigned long long)fsck->chunks, (double)fsck->bytes / MIB,
                  (unsigned long long)state.applied_seq);
    _cleanup_free_ char *more = xasprintf("%d %s checked, with the chunks that only %s", snapshots,
                                          snapshots == 1 ? "snapshot was" : "snapshots were",
                                          snapshots == 1 ? "it needs" : "they need");
    fsck->report(line, false, fsck->arg);
    if (snapshots > 0)
        fsck->report(more, false, fsck->arg);
    return r < 0 ? r : 0;
}

static int check_opened(struct fsck *fsck, char **ret_text)
{
    fsck->store->own->whole_journal = true;
    int r = recover_view(fsck->store, ret_text);
    /* without the journal the rest cannot be checked */
    if (r < 0 && journal_found(fsck->store->commit.journal).damage.found) {
        report_problem(fsck, *ret_text);
        free(*ret_text);
        *ret_text = NULL;
        return 0;
    }
    if (r < 0)
        return r;
    if (fsck->store->own->view_is_kept)
        report_problem(fsck, "the view is damaged, and cannot be made anew now; see the log");
    fsck->store->local.ns = ns_new(fsck->store->local.view);
    fsck->buf = xmalloc(CHUNK_SIZE_MAX);
    r = check_store(fsck);
    vector_free(&fsck->bad);
    free(fsck->buf);
    return r;
}

/* Returns the number of problems. *ret_again: the view is damaged, and another opening makes it
 * anew. */
static int open_and_check(struct fsck *fsck, const char *path, char **ret_text, bool *ret_again)
{
    struct store_options options = {.path = path, .writeback_threads = 1};
    fsck->problems = 0;
    fsck->chunks = fsck->bytes = fsck->remote_only_chunks = 0;
    *ret_again = false;
    TRY(store_open_bare(&options, &fsck->store, ret_text));
    int r = check_opened(fsck, ret_text);
    *ret_again = store_must_open_again(fsck->store);
    store_discard(fsck->store);
    return r < 0 ? r : fsck->problems;
}

int store_fsck(const char *path, void (*report)(const char *line, bool is_problem, void *arg),
               void *arg)
{
    struct fsck fsck = {.report = report, .arg = arg};
    _cleanup_free_ char *text = NULL;
    bool again;
    int r = open_and_check(&fsck, path, &text, &again);
    if (again) {
        free(text);
        text = NULL;
        report("the view is damaged: it is made anew from the journal, and the check begins again",
               false, arg);
        r = open_and_check(&fsck, path, &text, &again);
    }
    if (text)
        report(text, true, arg);
    return again ? -EUCLEAN : r;
}
