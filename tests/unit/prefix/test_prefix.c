// SPDX-License-Identifier: Apache-2.0
/* src/prefix/: two stores at one prefix in a directory, without a remote around it. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "../../remove_tree.h"
#include "../commit/objects.h"
#include "../expect.h"
#include "base/cause.h"
#include "commit/run_file.h"
#include "prefix/check.h"
#include "prefix/heads.h"
#include "prefix/lease.h"
#include "prefix/runs.h"

#define LEASE_NS (60ll * 1000000000)

/* The stores: `a` is that of objects.h. */
static struct user {
    struct local local;
    struct remote_options options;
    struct prefix prefix;
    char path[40];
    unsigned pauses, troubles, sent;
} a, b;
static char directory[40];
static bool leases_run_out; /* while somebody pauses */

static void age_lease(void)
{
    struct timespec long_ago[2] = {{.tv_sec = time(NULL) - 120}, {.tv_sec = time(NULL) - 120}};
    _cleanup_free_ char *path = xasprintf("%s/lease/holder", directory);
    assert_i64(utimensat(AT_FDCWD, path, long_ago, 0), 0);
}

static bool pause_briefly(void *arg, int64_t ms)
{
    struct user *user = arg;
    struct timespec span = {.tv_nsec = min_u64((uint64_t)ms, 10) * 1000000};
    (void)nanosleep(&span, NULL);
    if (leases_run_out)
        age_lease();
    return ++user->pauses < 1000;
}

static void count_trouble(void *arg, int error, const char *text)
{
    struct user *user = arg;
    cr_expect(error <= 0 && *text);
    user->troubles++;
}

static void hear_works(void *arg)
{
    (void)arg;
}

static bool count_sent(void *arg, uint64_t bytes)
{
    struct user *user = arg;
    user->sent += bytes > 0;
    return true;
}

static void begin_user(struct user *user, const char *path, uint8_t store)
{
    _cleanup_free_ char *text = NULL;
    *user = (struct user){.local = {.path = user->path, .epoch = store}};
    strcpy(user->path, path);
    user->local.sb = o.local.sb;
    user->local.sb.writer = store;
    memset(user->local.sb.store, store, sizeof user->local.sb.store);
    memset(user->local.sb.history, 7, sizeof user->local.sb.history);
    user->options = (struct remote_options){.name = directory, .lease_ns = LEASE_NS};
    user->options.holder = store == 1 ? "a" : "b";
    assert_i64(dir_tier_open(&(struct dir_options){.path = directory}, &user->options.tier, &text),
               0);
    const struct prefix_user callbacks = {user, pause_briefly, count_trouble, hear_works,
                                          count_sent};
    prefix_init(&user->prefix, &user->local, o.room, &user->options, &callbacks);
}

static void begin(void)
{
    char other[40] = "/tmp/cairn-prefix-b-XXXXXX";
    objects_setup();
    strcpy(directory, "/tmp/cairn-prefix-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
    cr_assert_not_null(mkdtemp(other));
    begin_user(&a, o.path, 1);
    begin_user(&b, other, 2);
}

static void end_user(struct user *user)
{
    prefix_done(&user->prefix);
    user->options.tier->ops->close(user->options.tier);
}

static void end(void)
{
    end_user(&a);
    end_user(&b);
    remove_tree(b.path);
    remove_tree(directory);
    objects_teardown();
}

TestSuite(prefix, .init = begin, .fini = end);

/* --- small objects ---------------------------------------------------------------------------- */

/* Looks damaged until it was read so often. */
static int decode_late(const void *buf, size_t len, void *arg)
{
    unsigned *left = arg;
    if (*left > 1) {
        --*left;
        return -EBADMSG;
    }
    return len == 5 && memcmp(buf, "hello", 5) == 0 ? 0 : -EUCLEAN;
}

Test(prefix, small_objects)
{
    unsigned left = 3;
    struct numbers numbers = {0};
    assert_i64(prefix_put_object(&a.prefix, "ended/0000000000000003", "hello", 5, true), 0);
    expect_i64(prefix_put_object(&b.prefix, "ended/0000000000000003", "other", 5, true), -EEXIST);
    expect_i64(prefix_read_object(&b.prefix, "ended/0000000000000003", 64, decode_late, &left), 0);
    expect_u64(b.pauses, 2);
    expect_i64(prefix_read_object(&b.prefix, "ended/0000000000000003", 4, decode_late, &left),
               -EUCLEAN, "it is too long");
    assert_i64(prefix_put_object(&b.prefix, "ended/0000000000000003", "world", 5, false), 0);
    left = 1;
    expect_i64(prefix_read_object(&a.prefix, "ended/0000000000000003", 64, decode_late, &left),
               -EUCLEAN, "it was overwritten");
    assert_i64(prefix_put_object(&a.prefix, "ended/0000000000000001", "hello", 5, true), 0);
    assert_i64(prefix_put_object(&a.prefix, "ended/0000000000000010", "hello", 5, true), 0);
    assert_i64(prefix_put_object(&a.prefix, "ended/readme", "hello", 5, true), 0);
    assert_i64(prefix_list_numbers(&b.prefix, "ended", 1, &numbers), 0);
    assert_u64(numbers.count, 2);
    expect_u64(numbers.at[0], 3);
    expect_u64(numbers.at[1], 16);
    vector_free(&numbers);
}

/* --- heads ------------------------------------------------------------------------------------ */

static int put_next(struct user *user, struct head *head)
{
    head_sign(&user->prefix, head);
    return head_put(&user->prefix, head);
}

Test(prefix, heads_of_two_stores)
{
    static struct head ours, theirs, newest;
    _cleanup_free_ char *text = NULL;
    ours = theirs = (struct head){0};
    assert_i64(prefix_look(&a.prefix, true, &text), 0);
    cr_assert_not(a.prefix.has_marker);
    assert_i64(prefix_prepare(&a.prefix, &text), 0, "%s", text);
    assert_i64(prefix_meet(&b.prefix), 0);
    expect_i64(heads_newest(&b.prefix, 0, &newest), -ENOENT);
    assert_i64(put_next(&a, &ours), 0);
    expect_i64(put_next(&b, &theirs), -ESTALE);
    expect_u64(theirs.number, 1);
    cr_expect(head_is_theirs(&b.local, &theirs) && !head_is_theirs(&a.local, &theirs));
    assert_i64(put_next(&b, &theirs), 0);
    assert_i64(heads_newest(&a.prefix, 1, &newest), 0);
    expect_u64(newest.number, 2);
    expect_str(newest.holder, "b");
    expect_i64(put_next(&a, &ours), -ESTALE);
}

/* A head of a state, as a writer whose clock shows `published` puts it. */
static void put_at(uint64_t number, int64_t published)
{
    static struct head head;
    static uint8_t bytes[HEAD_LEN_MAX];
    _cleanup_free_ char *heads = xasprintf("%s/heads", directory);
    _cleanup_free_ char *path = xasprintf("%s/%016llx", heads, (unsigned long long)number);
    head = (struct head){.number = number - 1, .cut = number, .run_count = 1};
    head_sign(&a.prefix, &head);
    head.published = published;
    head.runs[0] = (struct run_info){.id = number, .cut = number, .length = MIB};
    memcpy(head.runs[0].history, head.history, sizeof head.history);
    size_t len = head_encode(&head, bytes);
    cr_assert(mkdir(heads, 0700) == 0 || errno == EEXIST);
    FILE *file = fopen(path, "w"); /* many: without a sync of each */
    cr_assert(file && fwrite(bytes, 1, len, file) == len && fclose(file) == 0);
}

/* The number of the head that is chosen; 0: none is. */
static uint64_t chosen_at(int64_t time)
{
    _cleanup_free_ char *text = NULL;
    b.options.at = (struct head_choice){.time = time};
    int r = heads_choose(&b.prefix, &text);
    cr_expect(r == 0 || (r == -ENODATA && strstr(text, "no head is as old as")), "%s", text);
    return r == 0 ? b.prefix.head.number : 0;
}

Test(prefix, the_newest_head_that_is_not_later)
{
    const int64_t times[] = {1000, 1300, 1350, 1400, 1450, 900, 1050, 1500};
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        put_at(i + 1, times[i]);
    for (int64_t time = 800; time <= 1600; time += 50) {
        uint64_t expected = 0;
        for (size_t i = 0; i < ARRAY_LEN(times); i++)
            expected = times[i] <= time ? i + 1 : expected;
        expect_u64(chosen_at(time), expected, "at %lld", (long long)time);
    }
}

/* They are read in blocks. */
Test(prefix, the_newest_of_many_heads)
{
    const uint64_t count = 700;
    for (uint64_t i = 1; i <= count; i++)
        put_at(i, (int64_t)i * 10);
    for (uint64_t i = 1; i <= count; i += 37)
        expect_u64(chosen_at((int64_t)i * 10 + 5), i);
    expect_u64(chosen_at(5), 0);
    assert_i64(a.options.tier->ops->remove(a.options.tier, "heads/000000000000000a"), 0);
    assert_i64(
        prefix_put_object(&a.prefix, "heads/000000000000000b", "damaged", sizeof "damaged", false),
        0);
    expect_u64(chosen_at(115), 9);
    cr_expect_not_null(strstr(b.prefix.shown_instead, "head 11 is damaged"));
}

static struct {
    const struct tier_ops *real;
    struct tier_ops ops;
} liar;

/* Creates it; the answer is lost. */
static int put_new_and_deny(struct tier *tier, const char *object, const void *buf, size_t len)
{
    int r = liar.real->put_new(tier, object, buf, len);
    return r < 0 ? r : -EACCES;
}

Test(prefix, a_lost_answer_is_settled_by_the_nonce)
{
    static struct head head;
    head = (struct head){0};
    liar.real = a.options.tier->ops;
    liar.ops = *liar.real;
    liar.ops.put_new = put_new_and_deny;
    a.options.tier->ops = &liar.ops;
    expect_i64(put_next(&a, &head), 0);
    expect_u64(a.troubles, 0);
    expect_u64(head.number, 1);
    cr_expect(tried_is_own(&a.prefix, &head) && !tried_is_own(&b.prefix, &head));
    struct head_tries tries = a.prefix.tries;
    tried_load(&a.prefix);
    cr_expect(memcmp(&tries, &a.prefix.tries, sizeof tries) == 0, "a successor knows them");
    a.options.tier->ops = liar.real;
}

/* The answer to a first try was lost: the second one finds it there. */
static int put_new_twice(struct tier *tier, const char *object, const void *buf, size_t len)
{
    int r = liar.real->put_new(tier, object, buf, len);
    return r < 0 ? r : -EEXIST;
}

/* What a server may have kept of before: a head of another store with this number, or none. */
static struct {
    unsigned left; /* so many answers are wrong */
    bool is_head;
} wrong;

static int get_wrong_head(struct tier *tier, const char *object, uint64_t offset, void *buf,
                          size_t len)
{
    static struct head other;
    int r = liar.real->get_range(tier, object, offset, buf, len);
    if (r < 0 || wrong.left == 0 || strncmp(object, "heads/", 6) != 0)
        return r;
    wrong.left--;
    assert_i64(head_decode(buf, len, &other), 0);
    memset(other.nonce, 9, sizeof other.nonce);
    memset(other.store, 9, sizeof other.store);
    if (!wrong.is_head)
        memset(buf, 0, len);
    else
        assert_u64(head_encode(&other, buf), len);
    return 0;
}

static void lie_about_heads(unsigned answers, bool is_head)
{
    wrong.left = answers;
    wrong.is_head = is_head;
    liar.real = a.options.tier->ops;
    liar.ops = *liar.real;
    liar.ops.put_new = put_new_twice;
    liar.ops.get_range = get_wrong_head;
    a.options.tier->ops = &liar.ops;
}

Test(prefix, one_wrong_answer_fences_nobody)
{
    static struct head head;
    head = (struct head){0};
    lie_about_heads(1, true);
    expect_i64(put_next(&a, &head), 0);
    expect_u64(wrong.left, 0, "it was asked");
    expect_u64(head.number, 1);
    cr_expect(!head_is_theirs(&a.local, &head));
    wrong.left = 2;
    expect_i64(put_next(&a, &head), -ESTALE, "the same head twice is there");
    a.options.tier->ops = liar.real;
}

Test(prefix, what_is_no_head_fences_nobody)
{
    static struct head head;
    head = (struct head){0};
    lie_about_heads(UINT_MAX, false);
    expect_i64(put_next(&a, &head), -EUCLEAN, "it is not known whose head is there");
    wrong.left = 0;
    head = (struct head){0};
    expect_i64(put_next(&a, &head), 0, "the one that it tried before");
    a.options.tier->ops = liar.real;
}

/* Listed, and deleted before it is read. */
static uint64_t gone_head;

static int get_unless_gone(struct tier *tier, const char *object, uint64_t offset, void *buf,
                           size_t len)
{
    char gone[OBJECT_NAME_LEN];
    object_name("heads", gone_head, gone);
    return strcmp(object, gone) == 0 ? -ENOENT
                                     : liar.real->get_range(tier, object, offset, buf, len);
}

static void count_head_problem(const char *object, const char *what, void *arg)
{
    cr_expect(*what);
    *(unsigned *)arg += strncmp(object, "heads/", 6) == 0;
}

static void hear_note(const char *line, void *arg)
{
    cr_expect(*line);
    (void)arg;
}

static bool never(void)
{
    return false;
}

static unsigned count_head_problems(void)
{
    unsigned problems = 0;
    struct prefix_check check = {.problem = count_head_problem,
                                 .note = hear_note,
                                 .arg = &problems,
                                 .threads = 2,
                                 .is_interrupted = never};
    assert_i64(prefix_check_heads(&a.prefix, &check), 0);
    return problems;
}

Test(prefix, a_head_that_gc_deletes_while_it_is_checked)
{
    for (uint64_t number = 1; number <= 3; number++)
        put_at(number, 1000);
    liar.real = a.options.tier->ops;
    liar.ops = *liar.real;
    liar.ops.get_range = get_unless_gone;
    a.options.tier->ops = &liar.ops;
    expect_u64(count_head_problems(), 0);
    gone_head = 2;
    expect_u64(count_head_problems(), 0);
    gone_head = 3;
    expect_u64(count_head_problems(), 1, "the newest stays");
    a.options.tier->ops = liar.real;
}

/* --- the lease -------------------------------------------------------------------------------- */

Test(prefix, a_lease_is_given_back_by_its_holder_alone)
{
    struct lease_seen seen;
    _cleanup_free_ char *text = NULL;
    assert_i64(lease_look(&b.prefix, &seen), 0);
    cr_expect_not(seen.exists);
    assert_i64(lease_renew(&a.prefix), 0);
    lease_give_back(&b.prefix);
    assert_i64(lease_look(&b.prefix, &seen), 0);
    cr_expect(seen.exists);
    expect_str(seen.lease.holder, "a");
    expect_i64(lease_await(&a.prefix, &text), 0);
    expect_u64(a.pauses, 0, "it is its own");
    leases_run_out = true;
    expect_i64(lease_await(&b.prefix, &text), 0, "%s", text);
    expect_u64(b.pauses, 1, "it waits until it has run out");
    lease_give_back(&a.prefix);
    assert_i64(lease_look(&b.prefix, &seen), 0);
    cr_expect_not(seen.exists);
}

/* --- runs ------------------------------------------------------------------------------------- */

static void make_run(struct user *user, uint64_t id, struct run_info *info)
{
    struct run_file file;
    const struct run_row row = {.key = "k", .key_len = 1, .value = &id, .value_len = sizeof id};
    *info = (struct run_info){.id = id, .cut = 1};
    memcpy(info->history, user->local.sb.history, sizeof info->history);
    assert_i64(run_file_begin(&file, &user->local, o.room, info), 0);
    assert_i64(run_file_add(&row, &file), 0);
    assert_i64(run_file_finish(&file, info), 0);
    run_file_done(&file);
}

static void remove_object(const char *name, uint64_t id)
{
    char object[OBJECT_NAME_LEN];
    object_name(name, id, object);
    assert_i64(a.options.tier->ops->remove(a.options.tier, object), 0);
}

Test(prefix, runs_in_two_places)
{
    struct run_info runs[HEAD_RUNS_MAX + 2];
    struct lost_object lost;
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        make_run(&a, i + 1, &runs[i]);
        assert_i64(run_put(&a.prefix, &runs[i]), 0);
        for (unsigned place = 0; place < RUN_PLACES; place++)
            expect_i64(run_check_at(&b.prefix, &runs[i], place, true), 0);
    }
    expect_u64(a.sent, 0, "small ones do not wait");
    remove_object("runs", 1);
    remove_object("copies", 2);
    assert_i64(runs_fetch(&b.prefix, runs, ARRAY_LEN(runs), &lost), 0);
    expect_u64(lost.kind, LOST_NOTHING);
    for (size_t i = 0; i < ARRAY_LEN(runs); i++)
        expect_i64(run_look(&b.local, &runs[i]), 0);
    cr_expect(run_is_bad(&b.prefix, 1, RUN_FIRST) && !run_is_bad(&b.prefix, 1, RUN_COPY));
}

Test(prefix, a_run_that_is_lost_in_both_places)
{
    struct run_info runs[2];
    struct lost_object lost;
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        make_run(&a, i + 1, &runs[i]);
        assert_i64(run_put(&a.prefix, &runs[i]), 0);
    }
    remove_object("runs", 2);
    remove_object("copies", 2);
    expect_i64(runs_fetch(&b.prefix, runs, 2, &lost), -ENOENT);
    cr_expect(lost.kind == LOST_RUN && lost.number == 2 && lost.node == 0);
    cr_expect_not_null(strstr(cause_text(), "runs/0000000000000002 is missing"));
    expect_i64(run_look(&b.local, &runs[0]), 0, "what is whole is kept");
}
