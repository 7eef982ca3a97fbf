// SPDX-License-Identifier: Apache-2.0
/* A store meets the head of another writer: what happens between two steps of taking the prefix
 * over, and what is damaged meanwhile, must neither mix two histories nor cost what only the store
 * has. */
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../await.h"
#include "../fixtures/store_fixture.h"
#include "../shell.h"
#include "base/io.h"
#include "base/log.h"
#include "remote/maintenance_internal.h"

/* One store and its way to the remote, on which heads/ can be made to fail or to be late. */
struct node {
    struct store_fixture fixture;
    const struct tier_ops *real;
    struct tier_ops ops;
    int puts;                    /* of heads, until now */
    int put_fails;               /* this one is not made, and said to have failed; 0: none */
    int answer_lost;             /* this one is made, and said to have failed */
    int dies_before, dies_after; /* the process ends there */
    void (*before_put)(void *);  /* once, before the next head */
    bool is_away;
    char newest[2][32];  /* the two heads that were put last */
    char hidden[32];     /* lists lack this head and what follows */
    int stale_lists;     /* that did, each counted by what it lacked */
    int wrong_answers;   /* to come, of reads of heads: the first head comes instead */
    int foreign_answers; /* to come: the head has another nonce, and so another owner */
};

static struct node *node_of; /* the one whose tier has the hooks */
static char prefix[80];

static int hooked_put_new(struct tier *tier, const char *object, const void *buf, size_t len)
{
    struct node *node = node_of;
    if (node->is_away)
        return -ETIMEDOUT;
    if (strncmp(object, "heads/", 6) != 0)
        return node->real->put_new(tier, object, buf, len);
    node->puts++;
    memcpy(node->newest[0], node->newest[1], sizeof node->newest[0]);
    (void)snprintf(node->newest[1], sizeof node->newest[1], "%s", object);
    if (node->puts == node->dies_before)
        _exit(0);
    if (node->puts == node->put_fails)
        return -ETIMEDOUT;
    if (node->before_put) {
        void (*before)(void *) = node->before_put;
        node->before_put = NULL;
        before(NULL);
    }
    int r = node->real->put_new(tier, object, buf, len);
    if (node->puts == node->dies_after)
        _exit(0);
    return node->puts == node->answer_lost ? -ETIMEDOUT : r;
}

struct stale_list {
    int (*fn)(const struct tier_object *object, void *arg);
    void *arg;
};

static int pass_shown(const struct tier_object *object, void *arg)
{
    const struct stale_list *list = arg;
    bool is_hidden = *node_of->hidden && strncmp(object->name, "heads/", 6) == 0 &&
                     strcmp(object->name, node_of->hidden) >= 0;
    node_of->stale_lists += is_hidden;
    return is_hidden ? 0 : list->fn(object, list->arg);
}

static int hooked_list(struct tier *tier, const char *directory, const char *after,
                       int (*fn)(const struct tier_object *object, void *arg), void *arg)
{
    struct stale_list list = {fn, arg};
    return node_of->is_away ? -ETIMEDOUT
                            : node_of->real->list(tier, directory, after, pass_shown, &list);
}

/* Which object is read where this one is asked for. */
static const char *asked_for(const char *object)
{
    bool is_wrong = node_of->wrong_answers > 0 && strncmp(object, "heads/", 6) == 0;
    return is_wrong ? "heads/0000000000000001" : object;
}

static int hooked_stat(struct tier *tier, const char *object, uint64_t *ret_len)
{
    return node_of->real->stat(tier, asked_for(object), ret_len);
}

/* A head that is valid, and of another writer. */
static void make_foreign(void *buf, size_t len)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    expect_i64(head_decode(buf, len, head), 0);
    head->nonce[0] ^= 1;
    expect_u64(head_encode(head, buf), len);
}

static int hooked_get_range(struct tier *tier, const char *object, uint64_t offset, void *buf,
                            size_t len)
{
    const char *instead = asked_for(object);
    node_of->wrong_answers -= instead != object;
    int r = node_of->real->get_range(tier, instead, offset, buf, len);
    if (r == 0 && node_of->foreign_answers > 0 && strncmp(object, "heads/", 6) == 0) {
        make_foreign(buf, len);
        node_of->foreign_answers--;
    }
    return r;
}

static void choose(struct node *node, bool hooked)
{
    fixture_use_remote(&node->fixture, prefix);
    if (!hooked)
        return;
    struct tier *tier = node->fixture.options.remote.tier;
    node_of = node;
    node->puts = 0;
    node->real = tier->ops;
    node->ops = *node->real;
    node->ops.put_new = hooked_put_new;
    node->ops.list = hooked_list;
    node->ops.stat = hooked_stat;
    node->ops.get_range = hooked_get_range;
    tier->ops = &node->ops;
}

static void open_on(struct node *node)
{
    choose(node, false);
    fixture_open(&node->fixture);
}

static void prepare(struct node *node)
{
    *node = (struct node){0};
    fixture_make(&node->fixture);
    if (!*prefix)
        (void)snprintf(prefix, sizeof prefix, "%s-remote", node->fixture.path);
}

static void make(struct node *node)
{
    prepare(node);
    open_on(node);
}

static void done(struct node *a, struct node *b)
{
    fixture_remove(&a->fixture);
    if (b)
        fixture_remove(&b->fixture);
    shell("rm -rf %1$s", prefix);
    *prefix = 0;
}

static void publish(struct node *node, const char *name, unsigned number)
{
    fixture_put(&node->fixture, name, number, MIB);
    fixture_wait_published(&node->fixture);
}

static void wait_fenced(struct node *node)
{
    AWAIT(fixture_remote_state(&node->fixture) == REMOTE_FENCED, "it is fenced");
}

/* Both have the first file; b claimed the prefix last. */
static void share(struct node *a, struct node *b)
{
    open_on(a);
    publish(a, "both", 1);
    fixture_close(&a->fixture);
    open_on(b);
    fixture_close(&b->fixture);
}

static void make_two(struct node *a, struct node *b)
{
    prepare(a);
    prepare(b);
    share(a, b);
}

/* A fresh store sees exactly a's state. */
static void expect_only_as(struct node *a, struct node *b)
{
    struct node fresh;
    make(&fresh);
    fixture_expect(&fresh.fixture, "both", 1, MIB);
    fixture_expect(&fresh.fixture, "newer", 2, MIB);
    expect_u64(fixture_lookup(&fresh.fixture, "stray"), 0);
    fixture_close(&fresh.fixture);
    fixture_remove(&fresh.fixture);
    done(a, b);
}

/* The head with which b takes the prefix over is there, and its answer was lost: it has a's state,
 * which b has not. */
static void lose_the_answer(struct node *a, struct node *b)
{
    make_two(a, b);
    open_on(a);
    publish(a, "newer", 2);
    fixture_close(&a->fixture);
    choose(b, true);
    b->answer_lost = 1;
    fixture_open(&b->fixture);
}

Test(takeover, whose_answer_was_lost_is_of_the_others_state, .timeout = 600)
{
    struct node a, b;
    lose_the_answer(&a, &b);
    expect_i64(b.puts, 1);
    expect_u64(fixture_lookup(&b.fixture, "newer"), 0, "it goes on with what it has");
    fixture_put(&b.fixture, "stray", 3, MIB);
    wait_fenced(&b);
    expect_i64(b.puts, 1, "nothing is claimed with a state that is not ours");
    fixture_expect(&b.fixture, "stray", 3, MIB);
    fixture_close(&b.fixture);
    expect_only_as(&a, &b);
}

/* The answer to a head's creation is lost, and then another head comes back in its place. */
Test(takeover, is_not_seen_where_an_answer_was_wrong, .timeout = 600)
{
    struct node a;
    prepare(&a);
    choose(&a, true);
    fixture_open(&a.fixture);
    publish(&a, "both", 1);
    static const char *const names[] = {"1", "2", "3"};
    for (int i = 0; i < (int)ARRAY_LEN(names); i++) {
        a.wrong_answers = 1 + 4 * i;
        a.answer_lost = a.puts + 1;
        publish(&a, names[i], 3 + (unsigned)i);
        expect_i64(a.wrong_answers, 0);
        cr_expect_neq(fixture_remote_state(&a.fixture), REMOTE_FENCED);
    }
    a.foreign_answers = 1;
    a.answer_lost = a.puts + 1;
    publish(&a, "4", 6);
    expect_i64(a.foreign_answers, 0);
    cr_expect_neq(fixture_remote_state(&a.fixture), REMOTE_FENCED);
    publish(&a, "newer", 2);
    fixture_close(&a.fixture);
    expect_only_as(&a, NULL);
}

/* A stale listing lacks the two newest heads, which are there, and of the same store. */
Test(takeover, does_not_take_old_heads_for_its_next_ones, .timeout = 600)
{
    struct node a;
    prepare(&a);
    choose(&a, true);
    fixture_open(&a.fixture);
    publish(&a, "both", 1);
    publish(&a, "1", 3);
    publish(&a, "2", 4);
    fixture_close(&a.fixture);
    choose(&a, true);
    a.is_away = true;
    fixture_open(&a.fixture);
    memcpy(a.hidden, a.newest[0], sizeof a.hidden);
    a.is_away = false;
    fixture_put(&a.fixture, "newer", 2, MIB);
    fixture_wait(&a.fixture);
    struct store *store = a.fixture.store;
    while (a.stale_lists < 20 && horizon_published(store_commit(store)->horizon) <
                                     horizon_reached(store_commit(store)->horizon))
        (void)usleep(5000);
    cr_expect_lt(horizon_published(store_commit(store)->horizon),
                 horizon_reached(store_commit(store)->horizon));
    a.hidden[0] = '\0';
    fixture_wait_published(&a.fixture);
    fixture_close(&a.fixture);
    expect_only_as(&a, NULL);
}

/* With nothing of its own, the store goes on from there the next time. */
Test(takeover, is_made_good_by_the_next_mount, .timeout = 600)
{
    struct node a, b;
    lose_the_answer(&a, &b);
    wait_fenced(&b);
    fixture_close(&b.fixture);
    open_on(&b);
    fixture_expect(&b.fixture, "newer", 2, MIB);
    publish(&b, "more", 4);
    fixture_close(&b.fixture);
    expect_only_as(&a, &b);
}

static struct node *publisher;

static void publish_in_between(void *arg)
{
    (void)arg;
    publish(publisher, "newer", 2);
}

/* The remote comes back while another node holds it, which publishes just before its prefix is
 * taken. */
Test(takeover, of_a_newer_state_is_judged_again, .timeout = 600)
{
    struct node a, b;
    make_two(&a, &b);
    static const char *const names[] = {"1", "2", "3", "stray"};
    for (unsigned i = 0; i < ARRAY_LEN(names);
         i++) { /* each time its epoch is one more, and beyond a's then */
        if (i > 0)
            fixture_close(&b.fixture);
        choose(&b, true);
        b.fixture.options.remote.takeover = true;
        b.is_away = true;
        fixture_open(&b.fixture);
        fixture_put(&b.fixture, names[i], i, 40000);
        fixture_wait(&b.fixture);
    }
    open_on(&a);
    fixture_wait_published(&a.fixture);
    publisher = &a;
    b.before_put = publish_in_between;
    b.is_away = false;
    wait_fenced(&b);
    cr_expect_null(b.before_put);
    publish(&a, "after", 5);
    cr_expect_neq(fixture_remote_state(&a.fixture), REMOTE_FENCED);
    fixture_close(&b.fixture);
    fixture_close(&a.fixture);
    expect_only_as(&a, &b);
}

static bool at_once(void *arg)
{
    (void)arg;
    return true;
}

/* b took the prefix over and lives; its claim, which would give the head its name, is still to
 * come. */
Test(takeover, that_is_not_claimed_yet_has_a_holder, .timeout = 600)
{
    struct node a, b;
    make_two(&a, &b);
    open_on(&a);
    fixture_wait_published(&a.fixture);
    fixture_close(&a.fixture);
    choose(&b, true);
    b.put_fails = 2;
    assert_i64(fixture_open_only(&b.fixture), 0, "%s", b.fixture.text);
    choose(&a, false);
    a.fixture.options.remote.cancelled = at_once; /* does not wait until the lease is over */
    expect_i64(fixture_open_only(&a.fixture), -ECANCELED);
    fixture_start(&b.fixture);
    publish(&b, "newer", 2);
    fixture_close(&b.fixture);
    open_on(&a);
    fixture_close(&a.fixture);
    expect_only_as(&a, &b);
}

/* The head with which b takes the prefix over is there, and b died before it knew; or when it had
 * a's state, and was about to claim. All of it in a process of its own, from the start: RocksDB's
 * threads do not survive a fork. */
static void die_before_the_claim(struct node *a, struct node *b, bool had_answer)
{
    prepare(a);
    prepare(b);
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        share(a, b);
        open_on(a);
        publish(a, "newer", 2);
        fixture_close(&a->fixture);
        choose(b, true);
        b->fixture.options.remote.lease_ns = 2000000000;
        b->dies_after = had_answer ? 0 : 1;
        b->dies_before = had_answer ? 2 : 0;
        fixture_open(&b->fixture);
        (void)sleep(60); /* the uploader's put ends the process long before */
        _exit(1);
    }
    int status;
    assert_i64(waitpid(pid, &status, 0), pid);
    assert_i64(status, 0, "it was to die");
}

static void expect_to_go_on(bool had_answer)
{
    struct node a, b;
    die_before_the_claim(&a, &b, had_answer);
    open_on(&b);
    fixture_expect(&b.fixture, "newer", 2, MIB);
    publish(&b, "more", 4);
    fixture_close(&b.fixture);
    expect_only_as(&a, &b);
}

Test(takeover, of_which_a_dead_one_did_not_know_goes_on, .timeout = 600)
{
    expect_to_go_on(false);
}

Test(takeover, that_a_dead_one_did_not_claim_goes_on, .timeout = 600)
{
    expect_to_go_on(true);
}

/* A store that comes when the lease of the dead one is over. Then the dead one comes back, with a's
 * state as its own when it died. */
static void be_taken_over(struct node *a, struct node *b, bool had_answer)
{
    die_before_the_claim(a, b, had_answer);
    choose(a, false);
    a->fixture.options.remote.lease_ns = 2000000000;
    fixture_open(&a->fixture);
    publish(a, "more", 4);
    fixture_close(&a->fixture);
}

static void expect_both(struct node *a, struct node *b)
{
    open_on(b);
    fixture_expect(&b->fixture, "newer", 2, MIB);
    fixture_expect(&b->fixture, "more", 4, MIB);
    fixture_close(&b->fixture);
    expect_only_as(a, b);
}

Test(takeover, of_which_a_dead_one_did_not_know_is_taken_over, .timeout = 600)
{
    struct node a, b;
    be_taken_over(&a, &b, false);
    expect_both(&a, &b);
}

/* It died with a stage, whose content is not known before it is recovered. */
Test(takeover, that_a_dead_one_did_not_claim_is_taken_over, .timeout = 600)
{
    struct node a, b;
    be_taken_over(&a, &b, true);
    choose(&b, false);
    expect_i64(fixture_open_only(&b.fixture), -ESTALE);
    cr_expect_not_null(strstr(b.fixture.text, "stage"), "%s", b.fixture.text);
    b.fixture.options.remote = (struct remote_options){0};
    fixture_open(&b.fixture);
    cr_expect_neq(fixture_lookup(&b.fixture, "newer"), 0);
    fixture_close(&b.fixture);
    expect_both(&a, &b);
}

static void read_on(struct node *node)
{
    choose(node, false);
    node->fixture.options.remote.read_only = true;
    fixture_open(&node->fixture);
}

/* A reader died while it followed: its view is of the newer head, and the journal and STORE/head of
 * the older one. The marker says that none of this counts. */
Test(takeover, that_was_broken_off_is_cleaned_up_before_it_is_judged, .timeout = 600)
{
    struct node a, b;
    make(&a);
    publish(&a, "both", 1);
    b = (struct node){0};
    fixture_make(&b.fixture);
    read_on(&b);
    fixture_close(&b.fixture);
    shell("cp %1$s/head %1$s-head && cp -a %1$s/journal %1$s-journal", b.fixture.path);
    publish(&a, "newer", 2);
    fixture_close(&a.fixture);
    read_on(&b);
    fixture_close(&b.fixture);
    shell("mv %1$s-head %1$s/head && rm -r %1$s/journal && mv %1$s-journal %1$s/journal && touch "
          "%1$s/adopting",
          b.fixture.path);
    open_on(&b);
    fixture_expect(&b.fixture, "newer", 2, MIB);
    fixture_close(&b.fixture);
    expect_only_as(&a, &b);
}

static void publish_and_stage(struct store_fixture *fixture)
{
    fixture_put(fixture, "published", 2, MIB);
    fixture_wait_head(fixture);
    fixture_put(fixture, "staged", 3, MIB);
}

/* The journal ends before our own newest head, whose state would take its place: what is staged
 * goes on from what was lost. */
Test(takeover, does_not_cost_what_is_staged, .timeout = 600)
{
    struct node a;
    make(&a);
    publish(&a, "0", 0);
    fixture_close(&a.fixture);
    shell("cp -a %1$s %1$s-old", a.fixture.path);
    choose(&a, false);
    fixture_die_after(&a.fixture, publish_and_stage);
    a.fixture.options.remote.tier->ops->close(
        a.fixture.options.remote.tier); /* the process that died had its own */
    shell("cp -a %1$s %1$s-new && rm -rf %1$s/journal %1$s/head %1$s/view", a.fixture.path);
    shell("cp -a %1$s-old/journal %1$s-old/head %1$s/", a.fixture.path);
    choose(&a, false);
    expect_i64(fixture_open_only(&a.fixture), -EUCLEAN);
    /* In the same directory: another one would be a copy, to which the stage does not belong. */
    shell("rm -rf %1$s/* %1$s-old && cp -a %1$s-new/. %1$s && rm -rf %1$s-new", a.fixture.path);
    open_on(&a);
    fixture_expect(&a.fixture, "published", 2, MIB);
    fixture_expect(&a.fixture, "staged", 3, MIB);
    done(&a, NULL);
}
