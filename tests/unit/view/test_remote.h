// SPDX-License-Identifier: Apache-2.0
/* A remote in memory, for the tests of the view: the runs that its newest head names. */
#pragma once

#include "helpers.h"
#include "view/remote.h"

#define TEST_RUNS_MAX 60

struct test_run {
    struct run_info info;
    uint8_t *data;
    size_t len, room;
};

struct test_remote {
    struct test_run runs[TEST_RUNS_MAX]; /* oldest first */
    size_t count;
    struct test_run made; /* not yet published */
    bool made_whole;
    uint64_t head, next_run;
    struct view_state state; /* of the head */
};

void remote_done(struct test_remote *remote);
/* The same runs, to go on from elsewhere. */
struct test_remote remote_copy(const struct test_remote *remote);
/* Makes the run of the cut; returns how many chunks it calls missing. */
uint64_t remote_make(struct test_remote *remote, struct view_cut *cut, int64_t now);
/* The head with that run. `view` NULL: the daemon is killed before it notes the head. */
void remote_publish(struct test_remote *remote, struct view *view, struct view_cut *cut);
/* The newest `count` runs become one. */
void remote_merge(struct test_remote *remote, size_t count);
/* All rows, merged. */
int remote_rows(const struct test_remote *remote, int (*fn)(const struct run_row *row, void *arg),
                void *arg);
/* The rows of the newest run, those without a value, too. */
int remote_newest_rows(const struct test_remote *remote,
                       int (*fn)(const struct run_row *row, void *arg), void *arg);
/* Fills a new view. */
int remote_adopt(const struct test_remote *remote, struct view *view);
void open_adopted(const struct test_remote *remote, const char *path, struct view **ret_view);
/* The value that the runs have for a key; -1: none. */
ssize_t remote_row(const struct test_remote *remote, const void *key, size_t key_len,
                   uint8_t value[256]);
