// SPDX-License-Identifier: Apache-2.0
/* Chunks of the remote that refer to others: read beside these, kept on NVMe by themselves. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../../remove_tree.h"
#include "../expect.h"
#include "../remote/repair_peek.h"
#include "base/clock.h"
#include "base/hex.h"
#include "dense/dense.h"
#include "dense_fixture.h"
#include "fetch/pull.h"
#include "remote/maintenance.h"
#include "store/reader.h"
#include "view/remote.h"

/* What the view says of a place, as a foreign index may say it. */
static void (*twist)(struct chunk_entry *entry);
int __real_view_remote_place(struct view *view, const struct chunk_name *name,
                             struct chunk_entry *ret_entry);
int __wrap_view_remote_place(struct view *view, const struct chunk_name *name,
                             struct chunk_entry *ret_entry);
int __wrap_view_remote_place(struct view *view, const struct chunk_name *name,
                             struct chunk_entry *ret_entry)
{
    int r = __real_view_remote_place(view, name, ret_entry);
    if (r == 0 && twist)
        twist(ret_entry);
    return r;
}

TestSuite(dense, .init = fetch_setup, .fini = fetch_teardown, .timeout = 600);

#define WEIGHTS (6 * MIB)

static uint64_t base_pack, dx_pack;

/* "base", and "next" as dx of it. */
static void make_two(void)
{
    dense_put_pair(WEIGHTS);
    dense_leave_only_the_remote();
    /* The round before that head has emptied the pack that both lay in, if it was mostly dead. */
    dx_pack = dense_entry("next", 0).pack;
    base_pack = dense_entry("base", 0).pack;
    assert_u64(dense_entry("next", 0).encoding, ENCODING_DX);
}

/* --- reading ---------------------------------------------------------------------------------- */

Test(dense, dx_is_read_beside_its_base)
{
    make_two();
    dense_expect_weights("next", 1, 1, WEIGHTS);
    dense_expect_weights("base", 1, 0, WEIGHTS);
}

Test(dense, twin_is_read_beside_its_image)
{
    dense_put_weights("image", 1, 0, WEIGHTS);
    dense_put_master("master", 1, 0, 2 * WEIGHTS);
    wait_remote();
    (void)dense_place_twin("master", "image", 1);
    dense_leave_only_the_remote();
    assert_u64(dense_entry("master", 0).encoding, ENCODING_TWIN);
    dense_expect_master("master", 1, 0, 2 * WEIGHTS);
    dense_expect_weights("image", 1, 0, WEIGHTS);
}

/* Twin beside dx beside what stands by itself. */
Test(dense, a_base_may_have_a_base)
{
    make_two();
    dense_put_master("master", 1, 1, 2 * WEIGHTS);
    wait_remote();
    (void)dense_place_twin("master", "next", 2);
    dense_leave_only_the_remote();
    dense_expect_master("master", 1, 1, 2 * WEIGHTS);
}

/* The file of the bases is gone from every published state, and another node has only the remote.
 */
Test(dense, a_base_that_no_file_has_is_there_for_others)
{
    make_two();
    struct chunk_entry base = dense_entry("base", 0);
    fixture_unlink(&fixture, "base", 0);
    dense_publish();
    move_node();
    dense_expect_weights("next", 1, 1, WEIGHTS);
    struct chunk_entry is;
    assert_i64(dense_find_place(fixture.store, &base.name, &is), 0);
    assert_u64(is.pack, base.pack);
    dense_publish();
    fixture_unlink(&fixture, "next", 0);
    dense_publish();
    dense_publish();
    struct view_remote_pack pack;
    int r = view_remote_pack(fixture.store->local.view, base.pack, &pack);
    cr_assert(r == -ENOENT || pack.live_count == 0, "nothing needs it any more");
}

/* One request for the chunks, and one for what they refer to. */
Test(dense, bases_come_in_few_requests)
{
    make_two();
    struct warm_status s = run_job("next", false);
    assert_u64(s.failed_bytes + s.not_kept_bytes, 0);
    cr_assert_leq(atomic_load(&gets), 4u, "%u requests", atomic_load(&gets));
}

Test(dense, a_base_on_nvme_is_not_fetched)
{
    make_two();
    (void)run_job("base", false);
    dense_reopen();
    dense_spoil(base_pack, 0, 2 * MIB);
    dense_expect_weights("next", 1, 1, WEIGHTS);
}

/* For reads here and there each base is fetched once. */
Test(dense, small_reads_share_a_base)
{
    dense_put_weights("image", 1, 0, MIB);
    dense_put_master("master", 1, 0, 2 * MIB);
    wait_remote();
    (void)dense_place_twin("master", "image", 1);
    dense_leave_only_the_remote();
    uint8_t buf[4096];
    fixture_read(&fixture, fixture_lookup(&fixture, "master"), 0, buf, sizeof buf);
    fixture_read(&fixture, fixture_lookup(&fixture, "master"), MIB + MIB / 2, buf, sizeof buf);
    assert_u64(atomic_load(&gets), 3, "two chunks and their image");
}

/* --- what lies on NVMe ------------------------------------------------------------------------ */

Test(dense, what_is_kept_stands_by_itself)
{
    make_two();
    dense_expect_weights("next", 1, 1, WEIGHTS);
    struct warm_status s = run_job("next", false);
    assert_u64(s.failed_bytes + s.not_kept_bytes, 0);
    /* The job does not wait for what the reader before it has fetched, and is still to be kept. */
    AWAIT(dense_expect_none_local() >= 6, "%zu chunks are kept", dense_expect_none_local());
    open_store(false);
    dense_expect_weights("next", 1, 1, WEIGHTS);
    fixture_close(&fixture);
    assert_i64(fixture_fsck(&fixture), 0);
}

Test(dense, a_local_pack_takes_no_other, .signal = SIGABRT)
{
    make_two();
    struct chunk_entry entry = dense_entry("next", 0);
    assert_i64(packs_promote(store_commit(fixture.store)->packs, &entry, ""), 0);
}

/* --- damage ----------------------------------------------------------------------------------- */

/* The chunks of "next" that refer to a damaged one, and no other. */
static void expect_damage(uint64_t offset, uint64_t length)
{
    for (uint64_t at = 0; at < WEIGHTS; at += MIB / 2) {
        bool is_lost = at >= offset && at < offset + length;
        assert_i64(dense_read_weights("next", 1, 1, at, MIB / 2), is_lost ? -EIO : 0, "at %llu",
                   (unsigned long long)at);
    }
}

Test(dense, a_damaged_base_costs_what_refers_to_it)
{
    char hex[17], wanted[64];
    make_two();
    struct chunk_entry base = dense_entry("base", 2 * MIB);
    dense_spoil(base.pack, base.offset + base.stored_len / 2, 8);
    hold_repair(fixture.store->remote);
    expect_damage(2 * MIB, MIB);
    hex_print(hex, base.name.bytes, 8);
    (void)snprintf(wanted, sizeof wanted, "refers to chunk %s, which is damaged", hex);
    cr_assert_not_null(strstr(damage_found(), wanted), "%s", damage_found());
    cr_assert(remote_is_bad_pack(fixture.store->remote, base.pack));
    cr_assert_not(remote_is_bad_pack(fixture.store->remote, dx_pack), "it is whole");
}

static void await_repair(void)
{
    AWAIT(!is_repair_due(fixture.store->remote), "it is repaired");
    dense_publish();
}

/* NVMe has the base: it goes to the remote once more, and what refers to it can be read again. */
Test(dense, a_damaged_base_is_healed_from_nvme)
{
    make_two();
    (void)run_job("base", false);
    dense_spoil(base_pack, 64, 2 * MIB);
    struct job_status status =
        fixture_run_job(&fixture, (struct job_options){.kind = JOB_SCRUB, .remote = true});
    cr_assert_gt(status.counts.found, 0);
    assert_u64(status.counts.unhealed, 0);
    await_repair();
    (void)run_job(NULL, true);
    dense_reopen();
    dense_expect_weights("next", 1, 1, WEIGHTS);
    assert_u64(dense_entry("next", 0).encoding, ENCODING_DX);
}

/* The last copy of what refers to a base that is known to be bad. */
Test(dense, what_rests_on_a_bad_pack_stays_on_nvme)
{
    make_two();
    (void)run_job("next", false);
    hold_repair(fixture.store->remote);
    remote_note_bad_pack(fixture.store->remote, base_pack, -EBADMSG);
    assert_u64(run_job("next", true).dropped_bytes, 0);
}

static int spoil_one(const struct view_pack *pack, void *arg)
{
    char object[32];
    (void)arg;
    pack_object_name(pack->pack, object);
    _cleanup_free_ char *path = xasprintf("%s/%s", fixture.path, object);
    /* Its chunks only: the index stands at the end of a pack, and writeback cuts packs when it
     * likes. */
    struct stat file;
    assert_i64(stat(path, &file), 0);
    long long kib = file.st_size / 1024 - 300;
    if (kib <= 0)
        return 0;
    _cleanup_free_ char *command =
        xasprintf("dd if=/dev/zero of=%s bs=1024 seek=100 count=%lld conv=notrunc 2>/dev/null",
                  path, kib < 2000 ? kib : 2000);
    assert_i64(system(command), 0);
    return 0;
}

/* NVMe has the base damaged: the remote gives it, and it is stored on NVMe anew. */
Test(dense, a_base_that_is_damaged_on_nvme_is_healed)
{
    make_two();
    (void)run_job("base", false);
    dense_reopen();
    assert_i64(view_packs(fixture.store->local.view, spoil_one, NULL), 0);
    dense_expect_weights("next", 1, 1, WEIGHTS);
    AWAIT(fixture_status(&fixture).nvme.healed_chunks_total > 0 &&
              !heal_is_pending(store_commit(fixture.store)->heal),
          "it is healed");
    (void)dense_expect_none_local();
}

/* The pack of the dependents is to be written anew: it can, and stays as dense as it was. */
Test(dense, a_pack_that_is_written_anew_stays_dense)
{
    make_two();
    remote_note_bad_pack(fixture.store->remote, dx_pack, -EBADMSG);
    await_repair();
    struct chunk_entry entry = dense_entry("next", 0);
    cr_assert_neq(entry.pack, dx_pack);
    assert_u64(entry.encoding, ENCODING_DX);
    dense_expect_weights("next", 1, 1, WEIGHTS);
}

/* --- what an index may say -------------------------------------------------------------------- */

/* Each refers to the other. */
static struct chunk_name cycle[2];
static unsigned cycle_depth[2];

static void make_cycle(struct chunk_entry *entry)
{
    for (unsigned i = 0; i < 2; i++) {
        if (!chunk_name_equal(&entry->name, &cycle[i]))
            continue;
        entry->encoding = ENCODING_DX;
        entry->depth = (uint8_t)cycle_depth[i];
        entry->ref_count = 1;
        entry->refs[0] = (struct chunk_ref){cycle[1 - i], 0, entry->raw_len};
    }
}

Test(dense, a_cycle_ends)
{
    static const unsigned depths[][2] = {{1, 1}, {2, 1}, {8, 8}, {8, 7}, {255, 255}, {1, 0}};
    make_two();
    cycle[0] = dense_entry("next", 0).name;
    cycle[1] = dense_entry("base", 0).name;
    twist = make_cycle;
    hold_repair(fixture.store->remote);
    for (size_t i = 0; i < ARRAY_LEN(depths); i++) {
        memcpy(cycle_depth, depths[i], sizeof cycle_depth);
        int64_t began = clock_monotonic_ns();
        assert_i64(dense_read_weights("next", 1, 1, 0, 1000), -EIO, "depths of line %zu", i);
        cr_assert_lt(clock_monotonic_ns() - began, 20 * 1000000000ll);
    }
    assert_i64(dense_read_weights("next", 1, 1, MIB, 1000), 0, "what is not in it");
    cycle[1] = cycle[0];
    assert_i64(dense_read_weights("next", 1, 1, 0, 1000), -EIO, "on itself");
    twist = NULL;
    assert_i64(dense_read_weights("next", 1, 1, 0, 1000), 0);
}

static struct chunk_entry truth, lie;

static void give_lie(struct chunk_entry *entry)
{
    if (chunk_name_equal(&entry->name, &lie.name))
        *entry = lie;
}

/* And begins the next one. */
static void expect_lie(const char *what)
{
    assert_i64(dense_read_weights("next", 1, 1, 0, 1000), -EIO, "%s", what);
    assert_i64(dense_read_weights("next", 1, 1, MIB, 1000), 0, "%s: others", what);
    lie = truth;
}

Test(dense, references_to_what_is_not_so)
{
    make_two();
    truth = lie = dense_entry("next", 0);
    twist = give_lie;
    hold_repair(fixture.store->remote);
    lie.refs[0].name.bytes[5] ^= 1;
    expect_lie("a base that is nowhere");
    lie.refs[0].length += 4096;
    expect_lie("more than the base has");
    lie.refs[0].length -= 4096;
    expect_lie("less than the chunk");
    lie.refs[0].offset = 4096;
    expect_lie("past its end");
    lie.refs[0].offset = UINT32_MAX;
    expect_lie("far past its end");
    lie.refs[0].name = dense_entry("base", MIB).name;
    expect_lie("another base");
    lie.ref_count = 2;
    lie.refs[1] = lie.refs[0];
    expect_lie("two bases of a dx");
    lie.ref_count = 200;
    expect_lie("too many");
    lie.ref_count = 0;
    expect_lie("no base");
    lie.depth = 9;
    expect_lie("too deep");
    lie.encoding = ENCODING_TWIN;
    expect_lie("a twin");
    lie.encoding = ENCODING_FX;
    expect_lie("an encoding that refers to nothing");
    lie.encoding = 77;
    expect_lie("an unknown encoding");
    lie.raw_len = 4096;
    expect_lie("another length");
    twist = NULL;
    assert_i64(dense_read_weights("next", 1, 1, 0, 1000), 0);
}

/* An error that may pass is one of the remote, and no damage. */
Test(dense, a_base_that_does_not_come_now_is_no_damage)
{
    make_two();
    uint8_t buf[4096];
    fixture_read(&fixture, fixture_lookup(&fixture, "base"), 0, buf, sizeof buf);
    atomic_store(&get_error, -ETIMEDOUT);
    assert_i64(dense_read_weights("next", 1, 1, 3 * MIB, 1000), -EIO);
    assert_str(damage_found(), "");
    atomic_store(&get_error, 0);
    assert_i64(dense_read_weights("next", 1, 1, 3 * MIB, 1000), 0);
}

/* Wherever it is looked for, it has just left. */
static struct chunk_name moving;
static _Atomic uint64_t moves;

static void move_on(struct chunk_entry *entry)
{
    if (chunk_name_equal(&entry->name, &moving))
        entry->pack = 1000000 + atomic_fetch_add(&moves, 1);
}

Test(dense, a_base_that_moves_all_the_time_is_no_damage)
{
    make_two();
    moving = dense_entry("base", 3 * MIB).name;
    twist = move_on;
    assert_i64(dense_read_weights("next", 1, 1, 3 * MIB, 1000), -EIO);
    cr_assert_geq(atomic_load(&moves), 3u, "it was looked for anew");
    assert_i64(dense_read_weights("next", 1, 1, 2 * MIB, 1000), 0, "beside another base");
    assert_str(damage_found(), "");
    twist = NULL;
    assert_i64(dense_read_weights("next", 1, 1, 3 * MIB, 1000), 0);
}

/* --- many at once ----------------------------------------------------------------------------- */

#define READERS 24u
#define READS 4u

static _Atomic int expected; /* of all reads */

static void *read_here_and_there(void *arg)
{
    uint64_t at = (uint64_t)(uintptr_t)arg;
    for (unsigned i = 0; i < READS; i++) {
        at = (at * 5 + 3) % (WEIGHTS / MIB);
        assert_i64(dense_read_weights("next", 1, 1, at * MIB + 1000, 2000), expected);
    }
    return NULL;
}

/* All of them wait for the remote, and for room in a window of less than one group. */
static void read_by_many(int error)
{
    pthread_t readers[READERS];
    expected = error;
    for (unsigned i = 0; i < READERS; i++)
        assert_i64(pthread_create(&readers[i], NULL, read_here_and_there, (void *)(uintptr_t)i), 0);
    for (unsigned i = 0; i < READERS; i++)
        (void)pthread_join(readers[i], NULL);
}

static struct pull *narrow(void)
{
    struct pull *pull = pull_of(fixture.store);
    LOCK_SCOPE(&pull->locked.lock);
    pull->window = PULL_GROUP_BYTES;
    return pull;
}

static void expect_nothing_held(struct pull *pull)
{
    uint64_t held = UINT64_MAX;
    fetch_end_reads(fixture.store);
    for (int i = 0; i < 12000 && held > 0; i++) {
        (void)usleep(10000);
        LOCK_SCOPE(&pull->locked.lock);
        held = pull->locked.held;
    }
    assert_u64(held, 0, "all of the window is given back");
}

Test(dense, many_readers_need_bases_at_once)
{
    make_two();
    struct pull *pull = narrow();
    read_by_many(0);
    dense_expect_weights("next", 1, 1, WEIGHTS);
    expect_nothing_held(pull);
}

/* What failed keeps no room that others wait for. */
Test(dense, many_readers_miss_bases_at_once)
{
    char object[32];
    make_two();
    struct pull *pull = narrow();
    hold_repair(fixture.store->remote);
    pack_object_name(base_pack, object);
    _cleanup_free_ char *path = xasprintf("%s/%s", remote_path, object);
    assert_i64(unlink(path), 0);
    read_by_many(-EIO);
    atomic_store(&get_error, -ETIMEDOUT);
    read_by_many(-EIO);
    expect_nothing_held(pull);
}

/* --- without a mount -------------------------------------------------------------------------- */

static uint8_t *copied;

static int take_part(uint64_t offset, const void *bytes, size_t length, void *arg)
{
    (void)arg;
    cr_assert_leq(offset + length, WEIGHTS);
    memcpy(copied + offset, bytes, length);
    return 0;
}

static int lose_part(const struct reader_loss *loss, void *arg)
{
    (void)arg;
    return loss->error;
}

static int take_group(struct reader_group *group, void *arg)
{
    const struct reader_calls calls = {take_part, lose_part, arg};
    int r = reader_fetch(arg, group, &calls);
    reader_group_free(group);
    return r;
}

static struct store *open_offline(char *directory)
{
    struct store_options how = {.path = directory};
    struct store *store;
    char *text = NULL;
    use_remote(true);
    how.remote = fixture.options.remote;
    how.remote.read_only = true;
    assert_i64(reader_open(&how, &store, &text), 0, "%s", text ? text : "");
    return store;
}

Test(dense, is_copied_without_a_mount)
{
    char directory[] = "/tmp/cairn-dense-XXXXXX";
    make_two();
    uint64_t ino = fixture_lookup(&fixture, "next");
    fixture_close(&fixture);
    cr_assert_not_null(mkdtemp(directory));
    struct store *store = open_offline(directory);
    copied = xcalloc(1, WEIGHTS);
    atomic_store(&gets, 0);
    const struct reader_calls calls = {take_part, lose_part, store};
    assert_i64(reader_plan(store, ino, take_group, &calls), 0);
    cr_assert_leq(atomic_load(&gets), 5u, "%u requests", atomic_load(&gets));
    reader_close(store);
    open_store(true);
    _cleanup_free_ uint8_t *is = xmalloc(WEIGHTS);
    fixture_read(&fixture, ino, 0, is, WEIGHTS);
    cr_assert_arr_eq(copied, is, WEIGHTS);
    free(copied);
    remove_tree(directory);
}
