// SPDX-License-Identifier: Apache-2.0
/* Reading from a remote, keeping on NVMe, evicting; with a remote in a folder. */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../expect.h"
#include "base/clock.h"
#include "base/log.h"
#include "fixture.h"

TestSuite(pull, .init = fetch_setup, .fini = fetch_teardown, .timeout = 600);

static uint64_t fetched(void)
{
    struct remote_status s;
    store_remote_status(shop.store, &s);
    return s.fetched_bytes_total;
}

Test(pull, fresh_node_reads_what_was_published)
{
    shop_put(&shop, "big", 1, 20 * MIB + 777);
    shop_put(&shop, "small", 2, 100000);
    wait_remote();
    move_node();
    assert_u64(view_now().packs, 0);
    shop_expect(&shop, "small", 2, 100000);
    shop_expect(&shop, "big", 1, 20 * MIB + 777);
}

Test(pull, part_of_a_file_costs_a_chunk)
{
    shop_put(&shop, "big", 1, 64 * MIB);
    wait_remote();
    move_node();
    uint64_t ino = shop_lookup(&shop, "big"), before = fetched();
    shop_expect_fill(&shop, ino, 30 * MIB + 5, 1, 4096);
    shop_expect_fill(&shop, ino, 30 * MIB + 10000, 1, 4096);
    cr_assert_leq(fetched() - before, 2 * MIB, "%llu", (unsigned long long)(fetched() - before));
}

Test(pull, sequential_reader_is_ahead_of)
{
    shop_put(&shop, "big", 1, 96 * MIB);
    wait_remote();
    move_node();
    uint64_t ino = shop_lookup(&shop, "big");
    for (uint64_t at = 0; at < 96 * MIB; at += MIB) {
        prefetch_note_miss(shop.store->fetch->pull, ino);
        shop_expect_fill(&shop, ino, at, 1, MIB);
    }
    cr_assert_lt(atomic_load(&gets), 60u, "%u requests", atomic_load(&gets));
    cr_assert_leq(fetched(), 110 * MIB, "%llu", (unsigned long long)fetched());
}

Test(pull, kept_without_the_remote)
{
    shop_put(&shop, "big", 1, 10 * MIB);
    wait_remote();
    move_node();
    shop_expect(&shop, "big", 1, 10 * MIB);
    await_kept(10 * MIB);
    shop_close(&shop);
    use_remote(false);
    shop_open(&shop);
    shop_expect(&shop, "big", 1, 10 * MIB);
    shop_close(&shop);
    assert_i64(shop_fsck(&shop), 0);
}

Test(pull, clean_end_keeps_what_was_fetched)
{
    shop_put(&shop, "big", 1, 3 * MIB);
    wait_remote();
    move_node();
    shop_expect(&shop, "big", 1, 3 * MIB);
    shop_close(&shop);
    use_remote(false);
    shop_open(&shop);
    shop_expect(&shop, "big", 1, 3 * MIB);
}

static void note(const char *path, const char *what, void *arg)
{
    (void)path;
    (void)snprintf(arg, 200, "%s", what);
}

Test(pull, without_the_remote_it_says_where_it_is)
{
    shop_put(&shop, "big", 1, 3 * MIB);
    wait_remote();
    move_node();
    shop_close(&shop);
    use_remote(false);
    shop_open(&shop);
    uint8_t buf[4096];
    char what[200] = "";
    size_t good;
    assert_u64(store_read(shop.store, shop_lookup(&shop, "big"), 0, buf, sizeof buf,
                          STORE_REACH_FAR, &good),
               -EIO);
    store_damage(shop.store, note, what);
    cr_assert_not_null(strstr(what, "in the remote only"), "%s", what);
}

Test(pull, error_of_the_remote_is_no_damage)
{
    shop_put(&shop, "big", 1, 3 * MIB);
    wait_remote();
    move_node();
    uint8_t buf[4096];
    char what[200] = "";
    size_t good;
    struct remote_status s;
    atomic_store(&get_error, -ETIMEDOUT);
    uint64_t ino = shop_lookup(&shop, "big");
    assert_u64(store_read(shop.store, ino, 0, buf, sizeof buf, STORE_REACH_FAR, &good), -EIO);
    store_damage(shop.store, note, what);
    assert_i64(what[0], 0, "%s", what);
    store_remote_status(shop.store, &s);
    cr_assert_neq(s.error[0], 0);
    atomic_store(&get_error, 0);
    shop_expect(&shop, "big", 1, 3 * MIB);
}

Test(pull, near_read_says_that_it_is_far)
{
    shop_put(&shop, "big", 1, 3 * MIB);
    wait_remote();
    move_node();
    uint8_t buf[4096];
    size_t good;
    uint64_t ino = shop_lookup(&shop, "big");
    assert_u64(store_read(shop.store, ino, 0, buf, sizeof buf, STORE_REACH_NEAR, &good), -EREMOTE);
}

/* --- readers who wait ------------------------------------------------------------------------- */

struct waiting {
    uint64_t ino;
    _Atomic int replies, error;
    size_t iov_count, length;
    uint8_t bytes[3000];
};

static void take_answer(const struct store_answer *answer, void *arg)
{
    struct waiting *w = arg;
    w->iov_count = answer->iov_count;
    w->length = answer->length;
    if (answer->error == 0 && answer->iov_count == 1)
        memcpy(w->bytes, answer->iov[0].iov_base, min_u64(answer->iov[0].iov_len, sizeof w->bytes));
    atomic_store(&w->error, answer->error);
    atomic_fetch_add(&w->replies, 1);
}

static void *read_far(void *arg)
{
    const struct waiting *w = arg;
    uint8_t buf[4096];
    size_t good;
    return (void *)(intptr_t)store_read(shop.store, w->ino, 0, buf, sizeof buf, STORE_REACH_FAR,
                                        &good);
}

static unsigned waiting_readers(void)
{
    struct pull *pull = shop.store->fetch->pull;
    LOCK_SCOPE(&pull->locked.lock);
    return pull->locked.waiting;
}

/* Asks for what another reader's GET is bringing; `error`: what becomes of that GET, and of those
 * after it. */
static void read_on_the_way(struct waiting *w, int error)
{
    pthread_t reader;
    void *read;
    struct store_read_request request = {
        .ino = w->ino, .offset = 5000, .length = 3000, .reply = take_answer, .arg = w};
    atomic_store(&gets_wait, true);
    atomic_store(&get_error, error);
    assert_i64(pthread_create(&reader, NULL, read_far, w), 0);
    while (atomic_load(&gets) == 0)
        (void)usleep(1000);
    store_start_read(shop.store, &request);
    assert_u64(waiting_readers(), 1, "it waits with the chunk, and in no thread");
    (void)usleep(20000);
    assert_i64(atomic_load(&w->replies), 0);
    atomic_store(&gets_wait, false);
    (void)pthread_join(reader, &read);
    assert_i64((int)(intptr_t)read, error ? -EIO : 0);
    store_end_reads(shop.store);
    assert_i64(atomic_load(&w->replies), 1, "it is waited for");
    assert_u64(waiting_readers(), 0);
}

Test(pull, what_is_on_its_way_is_waited_for)
{
    uint8_t bytes[8000];
    static struct waiting w;
    shop_put(&shop, "big", 1, 3 * MIB);
    wait_remote();
    shop_read(&shop, shop_lookup(&shop, "big"), 0, bytes, sizeof bytes);
    move_node();
    w.ino = shop_lookup(&shop, "big");
    read_on_the_way(&w, 0);
    assert_i64(w.error, 0);
    assert_u64(w.iov_count, 1);
    assert_u64(w.length, 3000);
    assert_i64(memcmp(w.bytes, bytes + 5000, 3000), 0);
    assert_u64(atomic_load(&gets), 1, "one GET for both");
}

Test(pull, what_does_not_arrive_is_an_error)
{
    static struct waiting w;
    shop_put(&shop, "big", 1, 3 * MIB);
    wait_remote();
    move_node();
    w.ino = shop_lookup(&shop, "big");
    read_on_the_way(&w, -EACCES);
    assert_i64(w.error, -EIO);
    atomic_store(&get_error, 0);
    shop_expect(&shop, "big", 1, 3 * MIB);
}

/* --- damage ----------------------------------------------------------------------------------- */

/* All but the header and the index. */
static int spoil_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type != FTW_F)
        return 0;
    int fd = open(path, O_RDWR);
    cr_assert_geq(fd, 0);
    size_t length = (size_t)st->st_size - 4096 - 16384;
    char *bytes = xmalloc(length);
    memset(bytes, 0x5a, length);
    assert_i64(pwrite(fd, bytes, length, 4096), (ssize_t)length);
    free(bytes);
    return close(fd);
}

static void spoil(const char *root)
{
    char *path = xasprintf("%s/packs", root);
    assert_i64(nftw(path, spoil_one, 16, FTW_PHYS), 0);
    free(path);
}

Test(pull, damaged_on_nvme_is_healed_from_the_remote)
{
    shop_put(&shop, "big", 1, 4 * MIB);
    wait_remote();
    spoil(shop.path);
    char what[200] = "";
    struct store_status s;
    /* The stage has it still. */
    shop_close(&shop);
    open_shop();
    shop_expect(&shop, "big", 1, 4 * MIB);
    do {
        (void)usleep(1000);
        store_status(shop.store, &s);
    } while (s.healed_chunks_total ==
             0); /* by a thread of the store's; without an end if it never is */
    while (heal_is_pending(shop.store)) /* what is not stored anew by the end of the mount is so at
                                           the next read of it */
        (void)usleep(1000);
    store_damage(shop.store, note, what);
    assert_i64(what[0], 0, "%s", what);
    shop_close(&shop);
    use_remote(false);
    shop_open(&shop);
    shop_expect(&shop, "big", 1, 4 * MIB);
}

Test(pull, damaged_in_the_remote_is_never_given)
{
    shop_put(&shop, "big", 1, 4 * MIB);
    wait_remote();
    move_node();
    spoil(remote_path);
    uint8_t buf[4096];
    size_t good;
    uint64_t ino = shop_lookup(&shop, "big");
    assert_u64(store_read(shop.store, ino, 0, buf, sizeof buf, STORE_REACH_FAR, &good), -EIO);
}

/* --- eviction --------------------------------------------------------------------------------- */

Test(pull, evict_and_warm_up)
{
    shop_put(&shop, "a", 1, 10 * MIB);
    shop_put(&shop, "b", 2, 10 * MIB);
    wait_remote();
    struct warm_status s = run_job("a", true);
    cr_assert_geq(s.dropped_bytes, 10 * MIB,
                  "%llu dropped, %llu pinned, %llu unpublished, %llu busy",
                  (unsigned long long)s.dropped_bytes, (unsigned long long)s.pinned_bytes,
                  (unsigned long long)s.unpublished_bytes, (unsigned long long)s.busy_bytes);
    assert_u64(s.unpublished_bytes + s.pinned_bytes + s.busy_bytes, 0);
    shop_close(&shop);
    open_shop();
    shop_expect(&shop, "b", 2, 10 * MIB);
    assert_u64(fetched(), 0, "what was not asked for stays");
    s = run_job("a", false);
    assert_u64(s.failed_bytes + s.not_kept_bytes, 0);
    cr_assert_geq(s.done_bytes, 10 * MIB);
    shop_close(&shop);
    use_remote(false);
    shop_open(&shop);
    shop_expect(&shop, "a", 1, 10 * MIB);
    shop_expect(&shop, "b", 2, 10 * MIB);
    shop_close(&shop);
    assert_i64(shop_fsck(&shop), 0);
}

static void set_xattr(const char *file, const char *name, const char *value)
{
    shop_commit(&shop, (struct record){.type = REC_SETXATTR,
                                       .ino = shop_lookup(&shop, file),
                                       .name = name,
                                       .name_len = (uint16_t)strlen(name),
                                       .value = value,
                                       .value_len = (uint32_t)strlen(value)});
}

Test(pull, what_is_pinned_stays)
{
    shop_put(&shop, "a", 1, 5 * MIB);
    shop_put(&shop, "same", 1, 5 * MIB);
    shop_put(&shop, "b", 2, 5 * MIB);
    set_xattr("same", "user.cairn.pin", "1");
    wait_remote();
    struct warm_status s = run_job(NULL, true);
    cr_assert_geq(s.pinned_bytes, 5 * MIB);
    cr_assert_geq(s.dropped_bytes, 5 * MIB);
    cr_assert_lt(s.dropped_bytes, 6 * MIB);
}

Test(pull, room_is_made_by_eviction)
{
    shop_close(&shop);
    shop.options.cap_bytes = 256 * MIB;
    open_shop();
    char name[16];
    for (unsigned i = 0; i < 12; i++) {
        (void)snprintf(name, sizeof name, "f%u", i);
        shop_put(&shop, name, i + 1, 40 * MIB);
        wait_remote();
    }
    struct store_status s;
    store_status(shop.store, &s);
    cr_assert_gt(s.evicted_bytes_total, 0);
    cr_assert_leq(s.used_bytes, 256 * MIB);
    for (unsigned i = 0; i < 12; i++) {
        (void)snprintf(name, sizeof name, "f%u", i);
        shop_expect(&shop, name, i + 1, 40 * MIB);
    }
    shop_close(&shop);
    assert_i64(shop_fsck(&shop), 0);
    /* The view can be made anew without the packs that left. */
    shop_delete(&shop, "view");
    open_shop();
    for (unsigned i = 0; i < 12; i += 5) {
        (void)snprintf(name, sizeof name, "f%u", i);
        shop_expect(&shop, name, i + 1, 40 * MIB);
    }
}

static void evict_all(struct shop *unused)
{
    (void)unused;
    shop_put(&shop, "x", 9, 10 * MIB);
    wait_remote();
    (void)run_job(NULL, true);
}

Test(pull, death_after_an_eviction)
{
    shop_put(&shop, "a", 1, 10 * MIB);
    wait_remote();
    shop_close(&shop);
    use_remote(true);
    shop_die_after(&shop, evict_all);
    open_shop();
    shop_expect(&shop, "a", 1, 10 * MIB);
    shop_expect(&shop, "x", 9, 10 * MIB);
}

/* Writes until the store says that it is full. */
static uint64_t fill_up(uint64_t ino)
{
    uint64_t at = 0;
    int64_t since = 0;
    for (int waited = 0; waited < 12000; waited++) {
        store_waits_since(since);
        int r = shop_try_fill(&shop, ino, at, 77, 256 * KIB);
        since = r < 0 ? since ? since : clock_monotonic_ns() : 0;
        store_note_waiting(shop.store, r == -EAGAIN);
        if (r == -ENOSPC)
            return at;
        cr_assert(r == 0 || r == -EAGAIN);
        if (r == 0) {
            at += 256 * KIB;
            waited--;
        } else {
            (void)usleep(10000);
        }
    }
    cr_assert(false, "writers wait without end");
    return at;
}

/* P9: with the remote gone, writers wait, then get ENOSPC; what is acknowledged stays; when it is
 * back, room comes free. */
Test(pull, full_while_the_remote_is_gone)
{
    shop_close(&shop);
    shop.options.cap_bytes = 200 * MIB;
    open_shop();
    shop_put(&shop, "old", 1, 30 * MIB);
    wait_remote();
    atomic_store(&put_error, -ETIMEDOUT);
    uint64_t ino = shop_create(&shop, "new");
    uint64_t length = fill_up(ino);
    store_note_waiting(shop.store, 0);
    cr_assert_gt(length, 40 * MIB, "%llu", (unsigned long long)length);
    shop_seal(&shop, ino);
    shop_drop(&shop, ino);
    shop_expect(&shop, "new", 77, length);
    atomic_store(&put_error, 0);
    wait_remote();
    for (int i = 0; store_admit(shop.store, 20 * MIB) < 0; i++) {
        cr_assert_lt(i, 12000, "room comes free");
        (void)usleep(10000);
    }
    shop_expect(&shop, "old", 1, 30 * MIB);
    shop_expect(&shop, "new", 77, length);
}
