// SPDX-License-Identifier: Apache-2.0
/* What the tests of the remote share: a store, and prefixes in directories beside its own. */
#pragma once

#include "../fixtures/store_fixture.h"
#include "remote/maintenance_internal.h"

#define GRACE_NS (200 * 1000000ll)
#define LONG_GRACE_NS (3600 * 1000000000ll)

extern struct store_fixture fixture;

/* The store is not open yet. */
void remote_setup(void);
void remote_teardown(void);

/* From the next open on, `prefix` beside the store's directory is its remote. */
void choose_remote(const char *prefix, int64_t grace_ns);
/* The same, and its calls fail as `fn` says. */
void choose_faulty_remote(const char *prefix, int64_t grace_ns,
                          int (*fn)(const char *op, const char *object, void *arg));
/* Opens with that remote, after closing an open store; the background is not started yet. */
void open_only_with(const char *prefix, int64_t grace_ns);
/* The same, and starts it; gc runs only when it is asked for. */
void open_with(const char *prefix, int64_t grace_ns);

/* A file that is published. */
void publish_file(const char *name, unsigned number, size_t length);
void wait_published(void);
/* How many lines it said. */
int gc(bool dry, unsigned *ret_lines);
struct job_status scrub_remote(void);
/* Some pack that the remote has; 0: none. */
uint64_t remote_pack(void);
/* The two packs that the remote has, the older one first. */
void find_two_packs(uint64_t packs[2]);
void lose_a_pack(void);
/* The head of a successor in the prefix, `later` numbers after ours. */
struct head *make_their_head(uint64_t later);

/* A wait for the remote. */
struct remote_wait {
    _Atomic int result; /* 1: it goes on */
    uint64_t ticket;
};

void begin_wait(struct remote_wait *wait, uint64_t seq);
void expect_end_of_wait(struct remote_wait *wait, int expected);

void pause_ms(unsigned ms);
