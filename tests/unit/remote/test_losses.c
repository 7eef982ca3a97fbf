// SPDX-License-Identifier: Apache-2.0
/* What a store and its remote may lose of each other: a view that is older than the newest head, a
 * prefix that was emptied or is another, a state that is older than ours. Nothing of it may cost
 * data that is still somewhere. */
#include <stdio.h>
#include <sys/stat.h>

#include "../expect.h"
#include "base/io.h"
#include "base/log.h"
#include "remote/maintenance.h"
#include "../fixtures/store_fixture.h"

#define GRACE_NS (200 * 1000000ll)

struct place {
    struct store_fixture fixture;
    char path[80], other[80];
};

static void choose(struct place *place, const char *path)
{
    char *text = NULL;
    struct remote_options *options = &place->fixture.options.remote;
    *options = (struct remote_options){.name = path,
                                       .holder = "test",
                                       .upload_threads = 2,
                                       .lease_ns = 10000000000ll,
                                       .gc_grace_ns = GRACE_NS};
    assert_i64(dir_tier_open(&(struct dir_options){.path = path}, &options->tier, &text), 0, "%s",
               text ? text : "");
}

static void open_on(struct place *place, const char *path)
{
    choose(place, path);
    fixture_open(&place->fixture);
    place->fixture.store->remote->maintenance->gc_at = INT64_MAX; /* only when asked */
}

static void make(struct place *place)
{
    fixture_make(&place->fixture);
    (void)snprintf(place->path, sizeof place->path, "%s-remote", place->fixture.path);
    (void)snprintf(place->other, sizeof place->other, "%s-other", place->fixture.path);
    open_on(place, place->path);
}

/* A store that has no remote yet. */
static void make_local(struct place *place)
{
    fixture_make(&place->fixture);
    (void)snprintf(place->path, sizeof place->path, "%s-remote", place->fixture.path);
    (void)snprintf(place->other, sizeof place->other, "%s-other", place->fixture.path);
    fixture_open(&place->fixture);
}

static void run(const char *format, const char *a, const char *b)
{
    char command[256];
    (void)snprintf(command, sizeof command, format, a, b);
    assert_i64(system(command), 0, "%s", command);
}

static void done(struct place *place)
{
    fixture_remove(&place->fixture);
    run("rm -rf %s %s", place->path, place->other);
}

static void wait_published(struct place *place)
{
    struct store *store = place->fixture.store;
    fixture_wait(&place->fixture);
    for (int i = 0; i < 24000; i++) {
        if (store_remote_horizon(store) >= store_horizon(store) &&
            view_remote(store->view).pending_chunks == 0 && !remote_repair_is_due(store->remote))
            return;
        (void)usleep(5000);
    }
    cr_fail("it is not published");
}

static void nothing_said(const char *line, void *arg)
{
    (void)line;
    (void)arg;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static int gc(struct place *place)
{
    struct remote_gc_request request = {.say = nothing_said, .is_cancelled = never};
    int r = remote_gc_ask(place->fixture.store->remote, &request);
    place->fixture.store->remote->maintenance->gc_at = INT64_MAX;
    return r;
}

static struct job_status scrub_remote(struct place *place)
{
    struct job_options options = {.kind = JOB_SCRUB, .remote = true};
    struct job_status status;
    uint64_t number;
    assert_i64(store_job_start(place->fixture.store, &options, &number), 0);
    do {
        (void)usleep(5000);
        store_job_status(place->fixture.store, 0, nothing_said, NULL, &status);
    } while (status.running);
    return status;
}

/* The view as it was, as when the power fails before its log was written; the stage is gone then,
 * too. */
static void save_view(struct place *place)
{
    run("rm -rf %s-view && cp -a %s/view %1$s-view", place->fixture.path, place->fixture.path);
}

static void restore_view(struct place *place)
{
    run("rm -rf %s/view && mv %s-view %1$s/view", place->fixture.path, place->fixture.path);
    fixture_lose_power(&place->fixture);
}

static int take_first(const struct view_remote_pack *pack, void *arg)
{
    *(uint64_t *)arg = pack->pack;
    return 1;
}

static int take_local_pack(const struct view_pack *pack, void *arg)
{
    *(uint64_t *)arg = pack->pack;
    return 1;
}

/* Bytes that left NVMe. */
static uint64_t evict_all(struct place *place)
{
    struct warm_status status;
    uint64_t job;
    assert_i64(store_warm_start(place->fixture.store, ROOT_INO, true, &job), 0);
    do {
        (void)usleep(5000);
        assert_i64(store_warm_status(place->fixture.store, job, false, &status), 0);
    } while (!status.ended);
    return status.dropped_bytes;
}

static void note_result(int result, void *arg)
{
    atomic_store((_Atomic int *)arg, result);
}

static void lose_a_pack(struct place *place)
{
    uint64_t pack = 0;
    char object[32];
    struct store *store = place->fixture.store;
    assert_i64(view_remote_packs(store->view, take_first, &pack), 0);
    pack_object_name(pack, object);
    assert_i64(store->remote->tier->ops->remove(store->remote->tier, object), 0);
}

/* --- a view that is older than the head ------------------------------------------------------- */

Test(losses, a_head_with_the_same_cut_is_not_forgotten)
{
    struct place place;
    make(&place);
    fixture_put(&place.fixture, "a", 1, 3 * MIB);
    wait_published(&place);
    fixture_close(&place.fixture);
    save_view(&place);
    open_on(&place, place.path);
    lose_a_pack(&place);
    cr_expect_gt(scrub_remote(&place).counts.found, 0);
    wait_published(&place);
    fixture_close(&place.fixture);
    restore_view(&place);
    open_on(&place, place.path);
    (void)usleep(400000);
    assert_i64(gc(&place), 0);
    expect_u64(scrub_remote(&place).counts.found, 0, "what the newest head names is there");
    fixture_close(&place.fixture);
    fixture_delete(&place.fixture, "view");
    fixture_delete(&place.fixture, "packs");
    open_on(&place, place.path);
    fixture_expect(&place.fixture, "a", 1, 3 * MIB);
    done(&place);
}

Test(losses, the_first_head_is_not_forgotten)
{
    struct place place;
    make_local(&place);
    fixture_put(&place.fixture, "a", 1, MIB);
    fixture_wait(&place.fixture);
    fixture_close(&place.fixture);
    save_view(&place);
    open_on(&place, place.path);
    wait_published(&place);
    uint64_t packs = view_remote(place.fixture.store->view).packs;
    fixture_close(&place.fixture);
    restore_view(&place);
    choose(&place, place.path);
    assert_i64(fixture_open_only(&place.fixture), 0, "%s", place.fixture.text);
    cr_expect_not(view_remote(place.fixture.store->view).is_whole);
    expect_u64(view_remote(place.fixture.store->view).packs, packs);
    fixture_start(&place.fixture);
    fixture_expect(&place.fixture, "a", 1, MIB);
    done(&place);
}

static void repair(struct store_fixture *fixture)
{
    struct place place = {.fixture = *fixture};
    run("cp %s/head %s/saved", fixture->path, fixture->path);
    lose_a_pack(&place);
    cr_assert_gt(scrub_remote(&place).counts.found, 0);
    wait_published(&place);
}

Test(losses, a_head_with_the_same_cut_that_was_not_noted)
{
    struct place place;
    make(&place);
    fixture_put(&place.fixture, "a", 1, 3 * MIB);
    wait_published(&place);
    fixture_close(&place.fixture);
    open_on(&place, place.path);
    journal_trim(place.fixture.store, UINT64_MAX);
    fixture_close(&place.fixture);
    choose(&place, place.path);
    fixture_die_after(&place.fixture, repair);
    run("mv %s/saved %s/head", place.fixture.path,
        place.fixture.path); /* as if it died before it wrote that */
    open_on(&place, place.path);
    fixture_expect(&place.fixture, "a", 1, 3 * MIB);
    done(&place);
}

/* --- a prefix that is empty, or another ------------------------------------------------------- */

Test(losses, the_journal_keeps_its_beginning)
{
    struct place place;
    make(&place);
    fixture_put(&place.fixture, "a", 1, MIB);
    wait_published(&place);
    fixture_close(&place.fixture);
    open_on(&place, place.path);
    journal_trim(place.fixture.store, UINT64_MAX); /* as the writeback thread does, now and then */
    fixture_close(&place.fixture);
    /* Another remote, and the end before anything was published there. */
    choose(&place, place.other);
    assert_i64(fixture_open_only(&place.fixture), 0, "%s", place.fixture.text);
    fixture_start(&place.fixture);
    place.fixture.store->remote->shared.stopping = true;
    fixture_close(&place.fixture);
    open_on(&place, place.other);
    fixture_expect(&place.fixture, "a", 1, MIB);
    wait_published(&place);
    fixture_close(&place.fixture);
    fixture_delete(&place.fixture, "view");
    open_on(&place, place.other);
    fixture_expect(&place.fixture, "a", 1, MIB);
    done(&place);
}

Test(losses, an_older_state_does_not_replace_ours)
{
    struct place place;
    make(&place);
    fixture_put(&place.fixture, "a", 1, MIB);
    wait_published(&place);
    fixture_close(&place.fixture);
    open_on(&place, place.other);
    fixture_put(&place.fixture, "b", 2, MIB);
    wait_published(&place);
    fixture_close(&place.fixture);
    open_on(&place, place.other);
    journal_trim(place.fixture.store, UINT64_MAX);
    fixture_close(&place.fixture);
    /* The first one is back; its head is older than what we have, and numbers there are larger. */
    choose(&place, place.path);
    if (fixture_open_only(&place.fixture) == 0) {
        fixture_start(&place.fixture);
        fixture_expect(&place.fixture, "b", 2, MIB);
        fixture_close(&place.fixture);
    }
    open_on(&place, place.other);
    fixture_expect(&place.fixture, "b", 2, MIB);
    fixture_expect(&place.fixture, "a", 1, MIB);
    done(&place);
}

/* The newest segment cannot be removed, so the journal is left with a gap: what was begun must be
 * brought to its end. */
Test(losses, a_takeover_of_our_own_newer_state_that_stops_half_way)
{
    struct place place;
    make(&place);
    fixture_put(&place.fixture, "0", 0, MIB);
    wait_published(&place);
    fixture_close(&place.fixture);
    place.fixture.options.remote = (struct remote_options){0};
    static const char *const names[] = {"0", "1", "2", "3", "4"};
    for (unsigned i = 1; i < 4; i++) { /* each mount begins a segment */
        fixture_open(&place.fixture);
        fixture_put(&place.fixture, names[i], i, MIB);
        fixture_close(&place.fixture);
    }
    run("cp -a %s %s-old", place.fixture.path, place.fixture.path);
    open_on(&place, place.path);
    fixture_put(&place.fixture, names[4], 4, MIB);
    wait_published(&place);
    fixture_close(&place.fixture);
    run("rm -rf %s && mv %s-old %1$s", place.fixture.path, place.fixture.path);
    fixture_lose_power(&place.fixture);
    run("chattr +i $(ls %s/journal/* | tail -1)", place.fixture.path, "");
    choose(&place, place.path);
    log_set_level(LOG_LEVEL_ERROR);
    cr_expect_lt(fixture_open_only(&place.fixture), 0);
    run("chattr -i $(ls %s/journal/* | tail -1)", place.fixture.path, "");
    open_on(&place, place.path);
    for (unsigned i = 0; i < ARRAY_LEN(names); i++)
        fixture_expect(&place.fixture, names[i], i, MIB);
    done(&place);
}

Test(losses, what_lies_only_there_is_not_forgotten)
{
    struct place place;
    make(&place);
    fixture_put(&place.fixture, "a", 1, MIB);
    wait_published(&place);
    cr_assert_gt(evict_all(&place), 0);
    fixture_close(&place.fixture);
    choose(&place, place.other); /* or the same, where what should be mounted is not */
    assert_i64(fixture_open_only(&place.fixture), -ESTALE);
    cr_expect_not_null(strstr(place.fixture.text, "takeover"), "%s", place.fixture.text);
    open_on(&place, place.path);
    fixture_expect(&place.fixture, "a", 1, MIB);
    fixture_close(&place.fixture);
    choose(&place, place.other);
    place.fixture.options.remote.takeover = true;
    assert_i64(fixture_open_only(&place.fixture), 0, "%s", place.fixture.text);
    fixture_start(&place.fixture);
    done(&place);
}

/* --- what leaves NVMe ------------------------------------------------------------------------- */

Test(losses, the_last_copy_stays)
{
    struct place place;
    make(&place);
    fixture_put(&place.fixture, "a", 1, MIB);
    wait_published(&place);
    struct remote *remote = place.fixture.store->remote;
    uint64_t pack = 0;
    assert_i64(view_remote_packs(place.fixture.store->view, take_first, &pack), 0);
    remote->maintenance->repair_at = INT64_MAX;
    remote_note_bad_pack(remote, pack, "it is damaged");
    expect_u64(evict_all(&place), 0, "the remote's copy is known to be bad");
    remote->maintenance->repair_at = 0;
    wait_published(&place);
    remote_give_up(remote);
    expect_u64(evict_all(&place), 0, "another writer may delete it there");
    done(&place);
}

Test(losses, a_pack_that_is_being_emptied_is_waited_for)
{
    struct place place;
    uint64_t pack = 0;
    make_local(&place);
    fixture_put(&place.fixture, "a", 1, MIB);
    fixture_wait(&place.fixture);
    fixture_close(&place.fixture);
    choose(&place, place.path);
    assert_i64(fixture_open_only(&place.fixture), 0, "%s", place.fixture.text);
    assert_i64(view_packs(place.fixture.store->view, take_local_pack, &pack), 0);
    cr_assert(packs_begin_drop(place.fixture.store, pack));
    fixture_start(&place.fixture);
    (void)usleep(1500000);
    expect_u64(store_remote_horizon(place.fixture.store), 0);
    packs_end_drop(place.fixture.store, pack);
    wait_published(&place);
    done(&place);
}

Test(losses, who_waits_for_a_pack_that_is_being_emptied_ends_with_the_store, .timeout = 60)
{
    struct place place;
    make(&place);
    assert_i64((int)packs_begin_drop(place.fixture.store, 42), 1);
    fixture_put(&place.fixture, "a", 1, MIB);
    fixture_wait(&place.fixture);
    while (packs_begin_drop(place.fixture.store, 43)) { /* false: drops are held */
        packs_end_drop(place.fixture.store, 43);
        (void)usleep(1000);
    }
    done(&place);
}

/* --- a writer that was away for longer than the grace ----------------------------------------- */

Test(losses, heads_that_were_deleted_are_not_made_again, .timeout = 600)
{
    struct place place;
    char object[32];
    uint64_t ticket;
    _Atomic int result = 1;
    make(&place);
    fixture_put(&place.fixture, "a", 1, 40000);
    wait_published(&place);
    struct remote *remote = place.fixture.store->remote;
    /* Its successor published, and deleted the heads that were old. */
    struct head *theirs = xmalloc(sizeof *theirs);
    assert_i64(local_head_read(place.fixture.store, theirs), 0);
    uint64_t ours = theirs->number;
    theirs->number += 5;
    theirs->epoch++;
    theirs->store[0] ^= 1;
    uint8_t *bytes = aligned_alloc(4096, 4 * 4096);
    memset(bytes, 0, 4 * 4096);
    size_t len = head_encode(theirs, bytes);
    (void)snprintf(object, sizeof object, "heads/%016llx", (unsigned long long)theirs->number);
    assert_i64(remote->tier->ops->put_new(remote->tier, object, bytes, len), 0);
    for (uint64_t i = 1; i <= ours; i++) {
        (void)snprintf(object, sizeof object, "heads/%016llx", (unsigned long long)i);
        assert_i64(remote->tier->ops->remove(remote->tier, object), 0);
    }
    fixture_put(&place.fixture, "b", 2, 40000);
    store_wait_remote(place.fixture.store, store_newest(place.fixture.store), note_result, &result,
                      &ticket);
    for (int i = 0; i < 24000 && atomic_load(&result) == 1; i++)
        (void)usleep(5000);
    expect_i64(atomic_load(&result), -ESHUTDOWN, "it was replaced");
    struct remote_status status;
    store_remote_status(place.fixture.store, &status);
    expect_u64(status.state, REMOTE_FENCED);
    free(bytes);
    free(theirs);
    done(&place);
}

/* --- a remote that turns out to be another's -------------------------------------------------- */

static _Atomic int reach;

static int answer(const char *op, const char *object, void *arg)
{
    (void)op;
    (void)object;
    (void)arg;
    return atomic_load(&reach);
}

Test(losses, nobody_waits_for_a_remote_that_is_refused, .timeout = 600)
{
    struct place place;
    _Atomic int result = 1;
    uint64_t ticket;
    make(&place);
    fixture_put(&place.fixture, "a", 1, 40000);
    wait_published(&place);
    fixture_close(&place.fixture);
    run("rm -rf %s/* %s/.[a-z]*", place.path, place.path);
    choose(&place, place.path);
    atomic_store(&reach, -EHOSTUNREACH);
    place.fixture.options.remote.tier =
        fault_tier_new(place.fixture.options.remote.tier, answer, NULL);
    fixture_open(&place.fixture);
    fixture_put(&place.fixture, "b", 2, 40000);
    store_wait_remote(place.fixture.store, store_newest(place.fixture.store), note_result, &result,
                      &ticket);
    /* Another store's prefix is there, once it can be reached. */
    struct prefix_info info = {.version = PREFIX_INFO_VERSION, .history = "another"};
    uint8_t bytes[PREFIX_INFO_LEN];
    prefix_info_encode(&info, bytes);
    char file[128];
    (void)snprintf(file, sizeof file, "%s/cairn", place.path);
    assert_i64(io_write_file_durable(file, bytes, sizeof bytes), 0);
    atomic_store(&reach, 0);
    for (int i = 0; i < 24000 && atomic_load(&result) == 1; i++)
        (void)usleep(5000);
    expect_i64(atomic_load(&result), -ESHUTDOWN);
    fixture_expect(&place.fixture, "b", 2, 40000);
    done(&place);
}
