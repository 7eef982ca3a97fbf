// SPDX-License-Identifier: Apache-2.0
/* What the tests of the remote share: prefixes in directories beside the store's, and what is asked
 * of a store that publishes there. */
#pragma once

#include "../fixtures/store_fixture.h"
#include "remote/maintenance_internal.h"

#define GRACE_NS (200 * 1000000ll)
#define LONG_GRACE_NS (3600 * 1000000000ll)

/* From the next open on, `prefix` beside the store's directory is its remote. */
void choose_remote(struct store_fixture *fixture, const char *prefix, int64_t grace_ns);
/* The same, and opens; gc runs only when it is asked for. */
void open_with(struct store_fixture *fixture, const char *prefix, int64_t grace_ns);
/* A store and its remote, both empty; and no more. */
void make_with_remote(struct store_fixture *fixture, const char *prefix, int64_t grace_ns);
void remove_with_remotes(struct store_fixture *fixture);

/* All that is durable is published, and nothing waits to be repaired. */
void wait_published(struct store_fixture *fixture);
enum remote_state state_of(struct store_fixture *fixture);
/* How many lines it said. */
int gc(struct store_fixture *fixture, bool dry, unsigned *ret_lines);
/* Waits until it has ended. */
struct job_status run_job(struct store_fixture *fixture, struct job_options options);
/* Some pack that the remote has; 0: none. */
uint64_t remote_pack(struct store_fixture *fixture);
void lose_a_pack(struct store_fixture *fixture);

void pause_ms(unsigned ms);
/* A command of the shell, which succeeds. */
void run(const char *format, const char *a, const char *b);
