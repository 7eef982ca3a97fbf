// SPDX-License-Identifier: Apache-2.0
/* Reading from a remote, keeping on NVMe, evicting; with a remote in a directory. */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../expect.h"
#include "../named.h"
#include "../numbered.h"
#include "base/clock.h"
#include "base/log.h"
#include "fetch/pull.h"
#include "fetch_fixture.h"

static _Atomic bool promotion_waits;
int __real_packs_promote(struct store *store, const struct chunk_entry *entry, const void *stored);
int __wrap_packs_promote(struct store *store, const struct chunk_entry *entry, const void *stored);
int __wrap_packs_promote(struct store *store, const struct chunk_entry *entry, const void *stored)
{
    while (atomic_load(&promotion_waits))
        (void)usleep(1000);
    return __real_packs_promote(store, entry, stored);
}

TestSuite(pull, .init = fetch_setup, .fini = fetch_teardown, .timeout = 600);

static uint64_t fetched(void)
{
    struct remote_status s;
    remote_get_status(fixture.store, &s);
    return s.fetched_bytes_total;
}

Test(pull, fresh_node_reads_what_was_published)
{
    fixture_put(&fixture, "big", 1, 20 * MIB + 777);
    fixture_put(&fixture, "small", 2, 100000);
    move_node();
    assert_u64(fixture_status(&fixture).view.packs, 0);
    fixture_expect(&fixture, "small", 2, 100000);
    fixture_expect(&fixture, "big", 1, 20 * MIB + 777);
}

Test(pull, part_of_a_file_costs_a_chunk)
{
    fixture_put(&fixture, "big", 1, 64 * MIB);
    move_node();
    uint64_t ino = fixture_lookup(&fixture, "big"), before = fetched();
    fixture_expect_fill(&fixture, ino, 30 * MIB + 5, 1, 4096);
    fixture_expect_fill(&fixture, ino, 30 * MIB + 10000, 1, 4096);
    cr_assert_leq(fetched() - before, 2 * MIB, "%llu", (unsigned long long)(fetched() - before));
}

Test(pull, sequential_reader_is_ahead_of)
{
    fixture_put(&fixture, "big", 1, 96 * MIB);
    move_node();
    uint64_t ino = fixture_lookup(&fixture, "big");
    for (uint64_t at = 0; at < 96 * MIB; at += MIB) {
        prefetch_note_miss(fixture.store->fetch->pull, ino);
        fixture_expect_fill(&fixture, ino, at, 1, MIB);
    }
    cr_assert_lt(atomic_load(&gets), 60u, "%u requests", atomic_load(&gets));
    cr_assert_leq(fetched(), 110 * MIB, "%llu", (unsigned long long)fetched());
}

Test(pull, kept_without_the_remote)
{
    fixture_put(&fixture, "big", 1, 10 * MIB);
    move_node();
    fixture_expect(&fixture, "big", 1, 10 * MIB);
    await_kept(10 * MIB);
    open_store(false);
    fixture_expect(&fixture, "big", 1, 10 * MIB);
    fixture_close(&fixture);
    assert_i64(fixture_fsck(&fixture), 0);
}

Test(pull, clean_end_keeps_what_was_fetched)
{
    fixture_put(&fixture, "big", 1, 3 * MIB);
    move_node();
    fixture_expect(&fixture, "big", 1, 3 * MIB);
    open_store(false);
    fixture_expect(&fixture, "big", 1, 3 * MIB);
}

Test(pull, without_the_remote_it_says_where_it_is)
{
    fixture_put(&fixture, "big", 1, 3 * MIB);
    move_node();
    open_store(false);
    assert_i64(try_read(fixture_lookup(&fixture, "big")), -EIO);
    cr_assert_not_null(strstr(damage_found(), "in the remote only"), "%s", damage_found());
}

Test(pull, error_of_the_remote_is_no_damage)
{
    fixture_put(&fixture, "big", 1, 3 * MIB);
    move_node();
    struct remote_status s;
    atomic_store(&get_error, -ETIMEDOUT);
    assert_i64(try_read(fixture_lookup(&fixture, "big")), -EIO);
    assert_str(damage_found(), "");
    remote_get_status(fixture.store, &s);
    cr_assert_neq(s.error[0], 0);
    atomic_store(&get_error, 0);
    fixture_expect(&fixture, "big", 1, 3 * MIB);
}

Test(pull, local_read_says_that_it_is_remote)
{
    fixture_put(&fixture, "big", 1, 3 * MIB);
    move_node();
    const struct fetch_read how = {.ino = fixture_lookup(&fixture, "big"),
                                   .buf = (uint8_t[4096]){0},
                                   .length = 4096,
                                   .reach = STORE_REACH_LOCAL};
    struct fetch_read_end end;
    assert_i64(fetch_read(fixture.store, &how, &end), 0);
    cr_assert(end.is_beyond_reach && end.good == 0);
}

/* --- readers that wait ------------------------------------------------------------------------ */

struct waiting {
    uint64_t ino;
    _Atomic int replies, error;
    size_t iov_count, length;
    uint8_t bytes[3000];
};

static void take_answer(const struct fetch_answer *answer, void *arg)
{
    struct waiting *w = arg;
    w->iov_count = answer->iov_count;
    w->length = answer->length;
    if (answer->error == 0 && answer->iov_count == 1)
        memcpy(w->bytes, answer->iov[0].iov_base, min_u64(answer->iov[0].iov_len, sizeof w->bytes));
    atomic_store(&w->error, answer->error);
    atomic_fetch_add(&w->replies, 1);
}

static void *read_remote(void *arg)
{
    const struct waiting *w = arg;
    return (void *)(intptr_t)try_read(w->ino);
}

static unsigned waiting_readers(void)
{
    struct pull *pull = fixture.store->fetch->pull;
    LOCK_SCOPE(&pull->locked.lock);
    return pull->locked.waiting;
}

/* Asks for what another reader's GET is bringing; `error`: what becomes of that GET, and of those
 * after it. */
static void read_on_the_way(struct waiting *w, int error)
{
    pthread_t reader;
    void *read;
    struct fetch_read_request request = {
        .ino = w->ino, .offset = 5000, .length = 3000, .reply = take_answer, .arg = w};
    atomic_store(&gets_wait, true);
    atomic_store(&get_error, error);
    assert_i64(pthread_create(&reader, NULL, read_remote, w), 0);
    AWAIT(atomic_load(&gets) > 0, "no GET");
    fetch_start_read(fixture.store, &request);
    assert_u64(waiting_readers(), 1, "it waits with the chunk, and in no thread");
    (void)usleep(20000);
    assert_i64(atomic_load(&w->replies), 0);
    atomic_store(&gets_wait, false);
    (void)pthread_join(reader, &read);
    assert_i64((int)(intptr_t)read, error ? -EIO : 0);
    fetch_end_reads(fixture.store);
    assert_i64(atomic_load(&w->replies), 1, "it is waited for");
    assert_u64(waiting_readers(), 0);
}

Test(pull, what_is_on_its_way_is_waited_for)
{
    uint8_t bytes[8000];
    static struct waiting w;
    fixture_put(&fixture, "big", 1, 3 * MIB);
    fixture_read(&fixture, fixture_lookup(&fixture, "big"), 0, bytes, sizeof bytes);
    move_node();
    w.ino = fixture_lookup(&fixture, "big");
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
    fixture_put(&fixture, "big", 1, 3 * MIB);
    move_node();
    w.ino = fixture_lookup(&fixture, "big");
    read_on_the_way(&w, -EACCES);
    assert_i64(w.error, -EIO);
    atomic_store(&get_error, 0);
    fixture_expect(&fixture, "big", 1, 3 * MIB);
}

/* --- the window ------------------------------------------------------------------------------- */

static void *read_at_two(void *arg)
{
    uint8_t buf[4096];
    fixture_read(&fixture, *(uint64_t *)arg, 2 * MIB, buf, sizeof buf);
    return NULL;
}

/* How many chunks are known; *ret_waits: a reader waits for room for one of them. */
static unsigned look_at_window(struct pull *pull, bool *ret_waits)
{
    struct pull_chunk *chunk, *next;
    LOCK_SCOPE(&pull->locked.lock);
    HASH_ITER(hh, pull->locked.chunks, chunk, next)
    *ret_waits = *ret_waits || (chunk->state == PULL_PLANNED && chunk->pins > 0);
    return HASH_COUNT(pull->locked.chunks);
}

/* What is not on NVMe yet would be fetched once more, and its memory is not free before. */
Test(pull, who_needs_room_leaves_what_is_on_its_way_to_nvme)
{
    uint8_t buf[4096];
    pthread_t reader;
    bool waits = false;
    fixture_put(&fixture, "big", 1, 4 * MIB);
    move_node();
    uint64_t ino = fixture_lookup(&fixture, "big");
    struct pull *pull = fixture.store->fetch->pull;
    atomic_store(&promotion_waits, true);
    fixture_read(&fixture, ino, 0, buf, sizeof buf);
    mutex_lock(&pull->locked.lock);
    pull->window = pull->locked.held;
    mutex_unlock(&pull->locked.lock);
    assert_i64(pthread_create(&reader, NULL, read_at_two, &ino), 0);
    while (!waits) /* the lock is held from the pin until the wait: then it has asked for room */
        (void)look_at_window(pull, &waits);
    assert_u64(look_at_window(pull, &waits), 2, "that one, and what was read before");
    fixture_read(&fixture, ino, 8192, buf, sizeof buf);
    assert_u64(atomic_load(&gets), 1);
    atomic_store(&promotion_waits, false);
    (void)pthread_join(reader, NULL);
    assert_u64(atomic_load(&gets), 2);
    fixture_expect(&fixture, "big", 1, 4 * MIB);
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
    _cleanup_free_ char *bytes = xmalloc(length);
    memset(bytes, 0x5a, length);
    assert_i64(pwrite(fd, bytes, length, 4096), (ssize_t)length);
    return close(fd);
}

static void spoil(const char *root)
{
    _cleanup_free_ char *path = xasprintf("%s/packs", root);
    assert_i64(nftw(path, spoil_one, 16, FTW_PHYS), 0);
}

static void count_chunk(const struct survey_part *part, void *arg)
{
    *(uint64_t *)arg += part->is_chunk;
}

Test(pull, damaged_on_nvme_is_healed_from_the_remote)
{
    fixture_put(&fixture, "big", 1, 4 * MIB);
    wait_remote();
    spoil(fixture.path);
    /* The stage has it still. */
    open_store(true);
    fixture_expect(&fixture, "big", 1, 4 * MIB);
    uint64_t chunks = 0, at = 0, ino = fixture_lookup(&fixture, "big");
    const struct survey_request want = {.ino = ino, .max = 64, .fn = count_chunk, .arg = &chunks};
    bool more;
    assert_i64(fetch_survey(fixture.store, &want, &at, &more), 0);
    cr_assert_not(more);
    cr_assert_gt(chunks, 0);
    /* What is not stored anew by the end of the mount is so at the next read of it. */
    AWAIT(fixture_status(&fixture).nvme.healed_chunks_total >= chunks, "not all are healed");
    assert_str(damage_found(), "");
    open_store(false);
    fixture_expect(&fixture, "big", 1, 4 * MIB);
}

Test(pull, damaged_in_the_remote_is_never_given)
{
    fixture_put(&fixture, "big", 1, 4 * MIB);
    move_node();
    spoil(remote_path);
    assert_i64(try_read(fixture_lookup(&fixture, "big")), -EIO);
}

/* --- eviction --------------------------------------------------------------------------------- */

Test(pull, evict_and_warm_up)
{
    fixture_put(&fixture, "a", 1, 10 * MIB);
    fixture_put(&fixture, "b", 2, 10 * MIB);
    wait_remote();
    struct warm_status s = run_job("a", true);
    cr_assert_geq(s.dropped_bytes, 10 * MIB,
                  "%llu dropped, %llu pinned, %llu unpublished, %llu busy",
                  (unsigned long long)s.dropped_bytes, (unsigned long long)s.pinned_bytes,
                  (unsigned long long)s.unpublished_bytes, (unsigned long long)s.busy_bytes);
    assert_u64(s.unpublished_bytes + s.pinned_bytes + s.busy_bytes, 0);
    open_store(true);
    fixture_expect(&fixture, "b", 2, 10 * MIB);
    assert_u64(fetched(), 0, "what was not asked for stays");
    s = run_job("a", false);
    assert_u64(s.failed_bytes + s.not_kept_bytes, 0);
    cr_assert_geq(s.done_bytes, 10 * MIB);
    open_store(false);
    fixture_expect(&fixture, "a", 1, 10 * MIB);
    fixture_expect(&fixture, "b", 2, 10 * MIB);
    fixture_close(&fixture);
    assert_i64(fixture_fsck(&fixture), 0);
}

static int take_pack(const struct view_pack *pack, void *arg)
{
    *(uint64_t *)arg = pack->pack;
    return 1;
}

static void *release_pack(void *arg)
{
    (void)usleep(200000); /* the evicting thread has most likely met it by then */
    packs_unpin(store_commit(fixture.store)->packs, *(uint64_t *)arg);
    return NULL;
}

Test(pull, a_pack_in_use_is_evicted_when_it_is_let_go)
{
    uint64_t pack = 0;
    pthread_t thread;
    fixture_put(&fixture, "a", 1, MIB);
    wait_remote();
    assert_i64(view_packs(fixture.store->local.view, take_pack, &pack), 0);
    AWAIT(packs_is_free(store_commit(fixture.store)->packs, pack), "the uploader has it");
    cr_assert(packs_pin(store_commit(fixture.store)->packs, pack));
    cr_expect_not(packs_is_free(store_commit(fixture.store)->packs, pack));
    assert_i64(thread_start(&thread, "release", release_pack, &pack), 0);
    struct warm_status s = run_job("a", true);
    (void)pthread_join(thread, NULL);
    assert_u64(s.busy_bytes, 0);
    cr_assert_geq(s.dropped_bytes, MIB);
}

static void set_xattr(const char *file, const char *name, const char *value)
{
    fixture_commit(&fixture, (struct record){.type = REC_SETXATTR,
                                             .ino = fixture_lookup(&fixture, file),
                                             NAMED(name),
                                             VALUED(value)});
}

Test(pull, what_is_pinned_stays)
{
    fixture_put(&fixture, "a", 1, 5 * MIB);
    fixture_put(&fixture, "same", 1, 5 * MIB);
    fixture_put(&fixture, "b", 2, 5 * MIB);
    set_xattr("same", "user.cairn.pin", "1");
    wait_remote();
    struct warm_status s = run_job(NULL, true);
    cr_assert_geq(s.pinned_bytes, 5 * MIB);
    cr_assert_geq(s.dropped_bytes, 5 * MIB);
    cr_assert_lt(s.dropped_bytes, 6 * MIB);
}

Test(pull, room_is_made_by_eviction)
{
    fixture.options.cap_bytes = 256 * MIB;
    open_store(true);
    for (unsigned i = 0; i < 12; i++) {
        fixture_put(&fixture, numbered("f%u", i), i + 1, 40 * MIB);
        wait_remote();
    }
    struct store_status s = fixture_status(&fixture);
    cr_assert_gt(s.evicted_bytes_total, 0);
    cr_assert_leq(s.used_bytes, 256 * MIB);
    for (unsigned i = 0; i < 12; i++)
        fixture_expect(&fixture, numbered("f%u", i), i + 1, 40 * MIB);
    fixture_close(&fixture);
    assert_i64(fixture_fsck(&fixture), 0);
    /* The view can be made anew without the packs that left. */
    fixture_delete(&fixture, "view");
    open_store(true);
    for (unsigned i = 0; i < 12; i += 5)
        fixture_expect(&fixture, numbered("f%u", i), i + 1, 40 * MIB);
}

static void evict_all(struct store_fixture *unused)
{
    (void)unused;
    fixture_put(&fixture, "x", 9, 10 * MIB);
    wait_remote();
    (void)run_job(NULL, true);
}

Test(pull, death_after_an_eviction)
{
    fixture_put(&fixture, "a", 1, 10 * MIB);
    wait_remote();
    fixture_close(&fixture);
    use_remote(true);
    fixture_die_after(&fixture, evict_all);
    fixture.options.remote.tier->ops->close(fixture.options.remote.tier); /* here, too */
    open_store(true);
    fixture_expect(&fixture, "a", 1, 10 * MIB);
    fixture_expect(&fixture, "x", 9, 10 * MIB);
}

/* Writes until the store says that it is full. */
static uint64_t fill_up(uint64_t ino)
{
    uint64_t at = 0;
    int64_t since = 0;
    for (int waited = 0; waited < 12000; waited++) {
        room_waits_since(since);
        int r = fixture_try_fill(&fixture, ino, at, 77, 256 * KIB);
        since = r < 0 ? since ? since : clock_monotonic_ns() : 0;
        horizon_note_waiting(store_commit(fixture.store)->horizon, r == -EAGAIN);
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
    fixture.options.cap_bytes = 200 * MIB;
    open_store(true);
    fixture_put(&fixture, "old", 1, 30 * MIB);
    wait_remote();
    atomic_store(&put_error, -ETIMEDOUT);
    uint64_t ino = fixture_create(&fixture, "new");
    uint64_t length = fill_up(ino);
    horizon_note_waiting(store_commit(fixture.store)->horizon, 0);
    cr_assert_gt(length, 40 * MIB, "%llu", (unsigned long long)length);
    fixture_seal(&fixture, ino);
    fixture_drop(&fixture, ino);
    fixture_expect(&fixture, "new", 77, length);
    atomic_store(&put_error, 0);
    wait_remote();
    AWAIT(room_admit(store_commit(fixture.store)->room, 20 * MIB) >= 0, "room comes free");
    fixture_expect(&fixture, "old", 1, 30 * MIB);
    fixture_expect(&fixture, "new", 77, length);
}
