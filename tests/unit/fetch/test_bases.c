// SPDX-License-Identifier: Apache-2.0
/* Bases that several threads need at once. */
#include <pthread.h>

#include "../expect.h"
#include "dense/bases.h"
#include "dense/bases_cache.h"
#include "dense_fixture.h"

TestSuite(bases, .init = fetch_setup, .fini = fetch_teardown, .timeout = 600);

#define WEIGHTS (2 * MIB)

/* Threads that know of each base that they need who fetches it, and wait for it. */
static _Atomic unsigned waiting;
int __real_bases_cache_await(struct bases_cache *cache, const struct base *base);
int __wrap_bases_cache_await(struct bases_cache *cache, const struct base *base);
int __wrap_bases_cache_await(struct bases_cache *cache, const struct base *base)
{
    atomic_fetch_add(&waiting, 1);
    return __real_bases_cache_await(cache, base);
}

struct gathering {
    struct chunk_entry entry;
    int result; /* of decoding beside it */
};

static void *gather_and_decode(void *arg)
{
    struct gathering *g = arg;
    struct bases bases;
    _cleanup_free_ uint8_t *nothing = xcalloc(1, CHUNK_SIZE_MAX), *raw = xmalloc(CHUNK_SIZE_MAX);
    (void)bases_gather(&bases, fixture.store, &g->entry, 1);
    g->result = bases_decode(&bases, &g->entry, nothing, raw, NULL);
    bases_release(&bases);
    return NULL;
}

/* Several threads need one base that is on its way with the first of them. */
static void gather_at_once(struct gathering *gathering, size_t count)
{
    pthread_t threads[8];
    cr_assert_leq(count, ARRAY_LEN(threads));
    atomic_store(&gets, 0);
    atomic_store(&waiting, 0);
    atomic_store(&gets_wait, true);
    for (size_t i = 0; i < count; i++)
        assert_i64(pthread_create(&threads[i], NULL, gather_and_decode, &gathering[i]), 0);
    AWAIT(atomic_load(&gets) + atomic_load(&waiting) >= count, "not all of them need it");
    atomic_store(&gets_wait, false);
    for (size_t i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL);
    assert_u64(atomic_load(&gets), 1, "one request for all");
}

Test(bases, a_base_comes_once_for_all_that_need_it)
{
    dense_put_pair(WEIGHTS);
    dense_leave_only_the_remote();
    struct gathering gathering[4] = {0};
    for (size_t i = 0; i < ARRAY_LEN(gathering); i++)
        gathering[i].entry = dense_entry("next", 0);
    gather_at_once(gathering, ARRAY_LEN(gathering));
    for (size_t i = 0; i < ARRAY_LEN(gathering); i++)
        cr_expect(gathering[i].result == -EBADMSG || gathering[i].result == -EUCLEAN,
                  "%d: it came, and zeros are no difference to it", gathering[i].result);
    dense_expect_weights("next", 1, 1, WEIGHTS);
}

/* It fails for all of them, and not for those that come later. */
Test(bases, a_base_that_does_not_come_fails_all_that_wait)
{
    dense_put_pair(WEIGHTS);
    dense_leave_only_the_remote();
    struct gathering gathering[4] = {0};
    for (size_t i = 0; i < ARRAY_LEN(gathering); i++)
        gathering[i].entry = dense_entry("next", 0);
    atomic_store(&get_error, -ETIMEDOUT);
    gather_at_once(gathering, ARRAY_LEN(gathering));
    for (size_t i = 0; i < ARRAY_LEN(gathering); i++)
        assert_i64(gathering[i].result, -ETIMEDOUT);
    atomic_store(&get_error, 0);
    dense_expect_weights("next", 1, 1, WEIGHTS);
}
