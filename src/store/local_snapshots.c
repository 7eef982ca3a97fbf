// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "commit/horizon.h"
#include "commit/packs.h"
#include "commit/room.h"
#include "store/local_snapshots_internal.h"
#include "view/view.h"

#define FILE_NAME "snapshot"
#define SPACE_SHARE 10u
#define MANY 4096u /* packs that are copied before each is left once */
#define SHARED SIZE_MAX

static char *path_of(const struct local_snapshots *snapshots, uint64_t number, const char *suffix,
                     const char *below)
{
    return xasprintf("%s/%llu%s%s%s", snapshots->path, (unsigned long long)number, suffix,
                     *below ? "/" : "", below);
}

/* --- pins ------------------------------------------------------------------------------------- */

static void unpin(struct local_snapshots *snapshots, const struct pack_ids *packs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        packs_unpin(snapshots->store->commit.packs, packs->at[i]);
}

/* -EBUSY: one of the packs is about to be dropped. */
static int pin(struct local_snapshots *snapshots, const struct pack_ids *packs)
{
    for (size_t i = 0; i < packs->count; i++)
        if (!packs_pin(snapshots->store->commit.packs, packs->at[i])) {
            unpin(snapshots, packs, i);
            return -EBUSY;
        }
    return 0;
}

/* --- opening ---------------------------------------------------------------------------------- */

static void set_aside_snapshot(struct local_snapshots *snapshots, uint64_t number, int error)
{
    _cleanup_free_ char *name = xasprintf(LOCAL_SNAPSHOTS "/%llu", (unsigned long long)number);
    int r = aside_begin(snapshots->store);
    if (r == 0)
        r = set_aside(snapshots->store, name);
    if (r == 0)
        r = aside_sync(snapshots->store);
    log_warn("the snapshot %s/%llu is damaged (%s), and is %s", snapshots->path,
             (unsigned long long)number, strerror(-error),
             r == 0 ? "set aside in lost+found" : "left out: it cannot be set aside");
}

static int add_known(const struct view_pack *pack, void *arg)
{
    vector_add((struct pack_ids *)arg, pack->pack);
    return 0;
}

/* A pack that the view does not have is gone, and with it content of the snapshot. */
static int check_packs(const struct pack_ids *packs, const struct pack_ids *known)
{
    for (size_t i = 0; i < packs->count; i++)
        if (!vector_search(known, &packs->at[i], compare_u64))
            return -EUCLEAN;
    return 0;
}

/* A snapshot that cannot be read just now is not given up. */
static int load_state(struct local_snapshots *snapshots, uint64_t number,
                      const struct pack_ids *known)
{
    struct local_state state = {0};
    int r = local_snapshots_read_file(snapshots->path, number, &state.snapshot);
    if (r == 0)
        r = check_packs(&state.snapshot.packs, known);
    if (r == 0)
        r = pin(snapshots, &state.snapshot.packs);
    if (r == 0) {
        vector_add(&snapshots->states, state);
        return 0;
    }
    vector_free(&state.snapshot.packs);
    if (r != -EUCLEAN && r != -EBADMSG && r != -ENOENT)
        return r;
    set_aside_snapshot(snapshots, number, r);
    return 0;
}

/* Removes snapshots that were not complete yet, were being given up or were deleted. */
static void remove_leftovers(struct local_snapshots *snapshots, struct names *names)
{
    for (size_t i = names->count; i-- > 0;) {
        _cleanup_free_ char *path = xasprintf("%s/%s", snapshots->path, names->at[i]);
        if (io_remove_tree(path) < 0)
            log_warn("%s cannot be removed", path);
        free(names->at[i]);
    }
    vector_free(names);
}

static int load_states(struct local_snapshots *snapshots)
{
    _cleanup_vector_ struct pack_ids numbers = {0}, known = {0};
    struct names leftovers = {0};
    int r = local_snapshots_numbers(snapshots->path, &numbers, &leftovers);
    remove_leftovers(snapshots, &leftovers);
    if (r == 0 && numbers.count)
        r = view_packs(snapshots->store->local.view, add_known, &known);
    vector_sort(&known, compare_u64);
    for (size_t i = 0; i < numbers.count && r == 0; i++)
        r = load_state(snapshots, numbers.at[i], &known);
    return r;
}

/* -o history_space, or a tenth of the largest size of the store. */
static uint64_t find_space(const struct store *store)
{
    const struct store_options *options = &store->local.options;
    struct statvfs disk;
    if (options->local_history.space_bytes)
        return options->local_history.space_bytes;
    if (options->cap_bytes)
        return options->cap_bytes / SPACE_SHARE;
    return statvfs(store->local.path, &disk) < 0
               ? 0
               : (uint64_t)disk.f_blocks * disk.f_frsize / SPACE_SHARE;
}

int local_snapshots_open(struct store *store, struct local_snapshots **ret)
{
    struct local_snapshots *snapshots = xcalloc(1, sizeof *snapshots);
    snapshots->store = store;
    snapshots->path = xasprintf("%s/" LOCAL_SNAPSHOTS, store->local.path);
    snapshots->space = find_space(store);
    mutex_init(&snapshots->lock, LOCK_LEAF);
    *ret = snapshots;
    return load_states(snapshots);
}

void local_snapshots_close(struct local_snapshots *snapshots)
{
    if (!snapshots)
        return;
    for (size_t i = 0; i < snapshots->states.count; i++) {
        struct local_state *state = &snapshots->states.at[i];
        check(state->readers == 0);
        unpin(snapshots, &state->snapshot.packs, state->snapshot.packs.count);
        vector_free(&state->snapshot.packs);
    }
    vector_free(&snapshots->states);
    mutex_done(&snapshots->lock);
    free(snapshots->path);
    free(snapshots);
}

/* --- reading ---------------------------------------------------------------------------------- */

void local_snapshots_list(struct local_snapshots *snapshots, struct local_snapshot_list *ret)
{
    LOCK_SCOPE(&snapshots->lock);
    for (size_t i = 0; i < snapshots->states.count; i++)
        if (!snapshots->states.at[i].is_deleted)
            vector_add(ret, local_snapshot_info(&snapshots->states.at[i].snapshot));
}

/* The packs of the first snapshot after number `after` take the place of those in *ret. Returns its
 * number; 0: there is none. The lock is held for one snapshot at a time: the writeback thread waits
 * for it. */
static uint64_t copy_next(struct local_snapshots *snapshots, uint64_t after, struct pack_ids *ret)
{
    LOCK_SCOPE(&snapshots->lock);
    ret->count = 0;
    for (size_t i = 0; i < snapshots->states.count; i++) {
        const struct local_snapshot *one = &snapshots->states.at[i].snapshot;
        if (one->number <= after)
            continue;
        vector_add_all(ret, one->packs.at, one->packs.count);
        return one->number;
    }
    return 0;
}

void local_snapshots_packs(struct local_snapshots *snapshots, struct pack_ids *ret)
{
    _cleanup_vector_ struct pack_ids packs = {0};
    size_t unique = 0;
    for (uint64_t number = 0; (number = copy_next(snapshots, number, &packs));) {
        vector_add_all(ret, packs.at, packs.count);
        if (ret->count <= 2 * unique + MANY)
            continue;
        vector_sort_unique(ret);
        unique = ret->count;
    }
    vector_sort_unique(ret);
}

bool local_snapshots_have(struct local_snapshots *snapshots, const char *name)
{
    bool has = false;
    LOCK_SCOPE(&snapshots->lock);
    for (size_t i = 0; i < snapshots->states.count; i++)
        has = has || (!snapshots->states.at[i].is_deleted &&
                      strcmp(snapshots->states.at[i].snapshot.name, name) == 0);
    return has;
}

struct pack_need {
    uint64_t pack;
    size_t state; /* the only one that needs it, or SHARED */
};
DEFINE_VECTOR(pack_needs, struct pack_need);

/* Sorts them, and leaves each pack once. */
static void leave_each_once(struct pack_needs *needs)
{
    size_t count = 0;
    vector_sort(needs, compare_u64);
    for (size_t i = 0; i < needs->count; i++)
        if (count > 0 && needs->at[count - 1].pack == needs->at[i].pack)
            needs->at[count - 1].state = SHARED;
        else
            needs->at[count++] = needs->at[i];
    needs->count = count;
}

/* Takes memory for the packs that there are, and not for those of each snapshot. */
static void list_needs(struct local_snapshots *snapshots, struct pack_ids *ret_numbers,
                       struct pack_needs *ret)
{
    _cleanup_vector_ struct pack_ids packs = {0};
    size_t once = 0;
    for (uint64_t number = 0; (number = copy_next(snapshots, number, &packs));) {
        for (size_t i = 0; i < packs.count; i++)
            vector_add(ret, (struct pack_need){packs.at[i], ret_numbers->count});
        vector_add(ret_numbers, number);
        if (ret->count <= 2 * once + MANY)
            continue;
        leave_each_once(ret);
        once = ret->count;
    }
    leave_each_once(ret);
}

/* Adds to the sum of each state the packs that only this state needs. */
static void sum_needs(struct view *view, const struct pack_needs *needs, uint64_t *sums)
{
    for (size_t i = 0; i < needs->count; i++) {
        struct view_pack known;
        size_t state = needs->at[i].state;
        if (state != SHARED && view_pack(view, needs->at[i].pack, &known) == 0 &&
            known.live_count == 0)
            sums[state] += known.length;
    }
}

void local_snapshots_each(struct local_snapshots *snapshots,
                          void (*fn)(uint64_t number, uint64_t bytes, void *arg), void *arg)
{
    _cleanup_vector_ struct pack_ids numbers = {0};
    _cleanup_vector_ struct pack_needs needs = {0};
    list_needs(snapshots, &numbers, &needs);
    _cleanup_free_ uint64_t *sums = xcalloc(numbers.count + 1, sizeof *sums);
    sum_needs(snapshots->store->local.view, &needs, sums);
    for (size_t i = 0; i < numbers.count; i++)
        fn(numbers.at[i], sums[i], arg);
}

void local_snapshots_add_text(struct text_list *list, const char *name, uint64_t number)
{
    _cleanup_free_ char *text = xasprintf("%llu", (unsigned long long)number);
    text_list_add(list, *name ? name : text);
}

char *local_snapshots_that_need(struct local_snapshots *snapshots, uint64_t pack)
{
    struct text_list list = {0};
    LOCK_SCOPE(&snapshots->lock);
    for (size_t i = 0; i < snapshots->states.count; i++) {
        const struct local_snapshot *one = &snapshots->states.at[i].snapshot;
        if (vector_search(&one->packs, &pack, compare_u64))
            local_snapshots_add_text(&list, one->name, one->number);
    }
    return text_list_take(&list);
}

static bool count_reader(struct local_snapshots *snapshots, uint64_t number, int change)
{
    LOCK_SCOPE(&snapshots->lock);
    for (size_t i = 0; i < snapshots->states.count; i++) {
        struct local_state *state = &snapshots->states.at[i];
        if (state->snapshot.number != number || (change > 0 && state->is_deleted))
            continue;
        check(change > 0 || state->readers > 0);
        state->readers += (unsigned)change;
        return true;
    }
    return false;
}

int local_snapshots_enter(struct local_snapshots *snapshots, uint64_t number, struct view **ret)
{
    if (!count_reader(snapshots, number, 1))
        return -ENOENT;
    int r = local_snapshots_open_view(snapshots->path, number, ret);
    if (r < 0)
        local_snapshots_leave(snapshots, number);
    return r == -ESTALE ? -EIO : r; /* to who reads it, ESTALE is one that is not there any more */
}

void local_snapshots_leave(struct local_snapshots *snapshots, uint64_t number)
{
    check(count_reader(snapshots, number, -1));
    horizon_kick(snapshots->store->commit.horizon); /* it may have been deleted */
}

/* --- taking ----------------------------------------------------------------------------------- */

static int add_needed(const struct view_pack *pack, void *arg)
{
    if (pack->live_count)
        vector_add((struct pack_ids *)arg, pack->pack);
    return 0;
}

/* No number is used again, even if all snapshots were given up, and the clock goes back: the kernel
 * knows inodes that contain it. */
static int new_number(struct local_snapshots *snapshots, uint64_t *ret)
{
    _cleanup_free_ char *path = xasprintf("%s/last", snapshots->path), *text = NULL;
    uint64_t now = (uint64_t)(clock_realtime_ns() / SECOND_NS), last = 0;
    size_t count = snapshots->states.count;
    int r = io_read_file(path, 64, &text, NULL);
    if (r < 0 && r != -ENOENT)
        return r;
    if (r == 0)
        last = strtoull(text, NULL, 10);
    if (count)
        last = max_u64(last, snapshots->states.at[count - 1].snapshot.number);
    *ret = max_u64(now, last + 1);
    _cleanup_free_ char *line = xasprintf("%llu\n", (unsigned long long)*ret);
    return io_write_file_durable(path, line, strlen(line));
}

static int describe(struct local_snapshots *snapshots, const char *name, struct local_snapshot *ret)
{
    struct view *view = snapshots->store->local.view;
    struct view_state now = view_state(view);
    uint64_t number;
    TRY(new_number(snapshots, &number));
    *ret = (struct local_snapshot){.number = number,
                                   .taken = clock_realtime_ns(),
                                   .cut = now.applied_seq,
                                   .files = now.files,
                                   .logical_bytes = now.logical_bytes};
    if (name)
        memcpy(ret->name, name, strlen(name) + 1);
    return view_packs(view, add_needed, &ret->packs);
}

static int write_file(const char *path, const struct local_snapshot *snapshot)
{
    struct bytes bytes = {0};
    local_snapshot_encode(snapshot, &bytes);
    int r = io_write_file_durable(path, bytes.at, bytes.count);
    vector_free(&bytes);
    return r;
}

static int make_directory(struct local_snapshots *snapshots)
{
    if (mkdir(snapshots->path, 0700) < 0)
        return errno == EEXIST ? 0 : -errno;
    return io_fsync_dir(snapshots->store->local.path);
}

static int write_state(struct local_snapshots *snapshots, const struct local_snapshot *snapshot)
{
    _cleanup_free_ char *new = path_of(snapshots, snapshot->number, ".new", ""),
                        *view = path_of(snapshots, snapshot->number, ".new", "view"),
                        *file = path_of(snapshots, snapshot->number, ".new", FILE_NAME),
                        *path = path_of(snapshots, snapshot->number, "", "");
    if (mkdir(new, 0700) < 0)
        return -errno;
    int r = view_copy(snapshots->store->local.view, view);
    if (r == 0)
        r = write_file(file, snapshot);
    if (r == 0 && rename(new, path) < 0)
        r = -errno;
    if (r < 0 && io_remove_tree(new) < 0)
        log_warn("%s cannot be removed; the next mount removes it", new);
    return r < 0 ? r : io_fsync_dir(snapshots->path);
}

int local_snapshots_take(struct local_snapshots *snapshots, const char *name)
{
    struct local_state state = {0};
    int64_t began = clock_monotonic_ns();
    TRY(room_for_view(snapshots->store->commit.room));
    TRY(local_allow_snapshots(&snapshots->store->local));
    TRY(make_directory(snapshots));
    int r = describe(snapshots, name, &state.snapshot);
    if (r == 0)
        r = pin(snapshots, &state.snapshot.packs);
    if (r == 0) {
        r = write_state(snapshots, &state.snapshot);
        if (r < 0)
            unpin(snapshots, &state.snapshot.packs, state.snapshot.packs.count);
    }
    if (r < 0) {
        vector_free(&state.snapshot.packs);
        return r;
    }
    log_debug("the snapshot %llu was taken in %lld ms, of %zu packs",
              (unsigned long long)state.snapshot.number,
              (long long)((clock_monotonic_ns() - began) / MS_NS), state.snapshot.packs.count);
    LOCK_SCOPE(&snapshots->lock);
    vector_add(&snapshots->states, state);
    return 0;
}

int local_snapshots_rename(struct local_snapshots *snapshots, size_t i, const char *name)
{
    struct local_snapshot snapshot = snapshots->states.at[i].snapshot;
    _cleanup_free_ char *path = path_of(snapshots, snapshot.number, "", FILE_NAME);
    memset(snapshot.name, 0, sizeof snapshot.name);
    memcpy(snapshot.name, name, strlen(name));
    TRY(write_file(path, &snapshot));
    LOCK_SCOPE(&snapshots->lock);
    memcpy(snapshots->states.at[i].snapshot.name, snapshot.name, sizeof snapshot.name);
    return 0;
}

static void add_pack(struct local_snapshots *snapshots, struct local_snapshot *snapshot,
                     uint64_t pack)
{
    LOCK_SCOPE(&snapshots->lock);
    vector_add(&snapshot->packs, pack);
    vector_sort(&snapshot->packs, compare_u64);
}

void local_snapshots_follow(struct local_snapshots *snapshots, uint64_t pack, uint64_t other)
{
    for (size_t i = 0; i < snapshots->states.count; i++) {
        struct local_snapshot *snapshot = &snapshots->states.at[i].snapshot;
        if (!vector_search(&snapshot->packs, &pack, compare_u64) ||
            vector_search(&snapshot->packs, &other, compare_u64) ||
            !packs_pin(snapshots->store->commit.packs, other))
            continue;
        _cleanup_free_ char *path = path_of(snapshots, snapshot->number, "", FILE_NAME);
        add_pack(snapshots, snapshot, other);
        if (write_file(path, snapshot) < 0)
            log_warn("%s cannot be written: after the next mount the snapshot may lack what was "
                     "healed",
                     path);
    }
}

/* --- copies of the view --- */

struct table_file {
    uint64_t inode, bytes;
};
DEFINE_VECTOR(table_files, struct table_file);

static void add_files(const char *path, struct table_files *ret)
{
    struct dirent *entry;
    struct stat st;
    DIR *directory = opendir(path);
    while (directory && (entry = readdir(directory)))
        if (fstatat(dirfd(directory), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode))
            vector_add(ret, (struct table_file){st.st_ino, (uint64_t)st.st_blocks * 512});
    if (directory)
        (void)closedir(directory);
}

/* Each file counts once. */
uint64_t local_snapshots_copies(struct local_snapshots *snapshots)
{
    struct table_files files = {0}, live = {0};
    _cleanup_free_ char *view = xasprintf("%s/view", snapshots->store->local.path);
    uint64_t bytes = 0;
    add_files(view, &live);
    vector_sort(&live, compare_u64);
    for (size_t i = 0; i < snapshots->states.count; i++) {
        _cleanup_free_ char *path =
            path_of(snapshots, snapshots->states.at[i].snapshot.number, "", "view");
        add_files(path, &files);
    }
    vector_sort(&files, compare_u64);
    for (size_t i = 0; i < files.count; i++) {
        bool is_other = i == 0 || files.at[i].inode != files.at[i - 1].inode;
        if (is_other && !vector_search(&live, &files.at[i].inode, compare_u64))
            bytes += files.at[i].bytes;
    }
    vector_free(&files);
    vector_free(&live);
    return bytes;
}

/* --- giving up -------------------------------------------------------------------------------- */

/* Removes it from the list, unless it is read meanwhile. */
static bool forget(struct local_snapshots *snapshots, size_t i, struct local_state *ret)
{
    LOCK_SCOPE(&snapshots->lock);
    if (snapshots->states.at[i].readers > 0)
        return false;
    *ret = snapshots->states.at[i];
    struct local_state *at = snapshots->states.at;
    memmove(at + i, at + i + 1, (--snapshots->states.count - i) * sizeof *at);
    return true;
}

int local_snapshots_delete(struct local_snapshots *snapshots, size_t i)
{
    _cleanup_free_ char *file =
        path_of(snapshots, snapshots->states.at[i].snapshot.number, DELETED, "");
    TRY(io_write_file_durable(file, "", 0));
    LOCK_SCOPE(&snapshots->lock);
    snapshots->states.at[i].is_deleted = true;
    return 0;
}

static int remove_files(const struct local_snapshots *snapshots, const struct local_state *state)
{
    uint64_t number = state->snapshot.number;
    _cleanup_free_ char *path = path_of(snapshots, number, "", ""),
                        *away = path_of(snapshots, number, ".gone", ""),
                        *deleted = path_of(snapshots, number, DELETED, "");
    if (rename(path, away) < 0)
        return -errno;
    int r = io_fsync_dir(snapshots->path);
    if (io_remove_tree(away) < 0)
        log_warn("%s cannot be removed; the next mount removes it", away);
    else if (r == 0 && state->is_deleted && unlink(deleted) < 0)
        log_warn("%s cannot be removed; the next mount removes it", deleted);
    return r;
}

int local_snapshots_give_up(struct local_snapshots *snapshots, size_t i)
{
    struct local_state gone;
    if (!forget(snapshots, i, &gone))
        return -EBUSY;
    int r = remove_files(snapshots, &gone);
    /* If the rename is not on the disk, the next mount sets the snapshot aside: packs that it names
     * are lost. */
    unpin(snapshots, &gone.snapshot.packs, gone.snapshot.packs.count);
    vector_free(&gone.snapshot.packs);
    return r;
}
