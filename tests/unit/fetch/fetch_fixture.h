// SPDX-License-Identifier: Apache-2.0
/* What the tests of fetch/ stand on: a store with a remote in a directory, whose GETs can be
 * counted, held up and made to fail. */
#pragma once

#include "../await.h"
#include "../fixtures/store_fixture.h"
#include "commit/shared.h"
#include "fetch/internal.h"

extern struct store_fixture fixture;
extern char remote_path[64];
extern _Atomic unsigned gets;            /* of packs */
extern _Atomic int get_error, put_error; /* what they return; 0: what the directory says */
extern _Atomic bool gets_wait;
extern _Atomic bool one_get_fails; /* the next that is let go on */

void fetch_setup(void);
void fetch_teardown(void);
/* Closes it before, where it is open. */
void open_store(bool with_remote);
/* Of the next open. */
void use_remote(bool wanted);
/* Until the remote has all that happened. */
void wait_remote(void);
/* Another node: nothing is left here but what the remote got, which is waited for. */
void move_node(void);
/* Until so much lies in packs on NVMe. */
void await_kept(uint64_t bytes);
/* Begins to evict a file (NULL: everything) from NVMe, or to fetch it. */
uint64_t start_job(const char *name, bool evicts);
struct warm_status look_at_job(uint64_t job);
struct warm_status await_job(uint64_t job);
struct warm_status run_job(const char *name, bool evicts);
/* The first bytes of the file; 0, or the error. */
int try_read(uint64_t ino);
/* What is said of the last file that has damage; "": none. */
const char *damage_found(void);
