// SPDX-License-Identifier: Apache-2.0
/* The remote from the opening of a store to its end, for store/, which opens and recovers. One
 * thread, except remote_memory(). Unless stated otherwise, *ret_text is the reason in one line
 * (caller frees), or NULL. */
#pragma once

#include "prefix/adopt.h"

struct remote;
struct store;
struct superblock;

/* Takes ownership of options.remote. NULL: the store has none. */
struct remote *remote_new(struct store *store);
void remote_free(struct remote *remote); /* NULL is fine */

/* Most memory that it takes, except for readers. NULL is fine. */
uint64_t remote_memory(const struct remote *remote);

/* --- opening a store, in this order (opening.c) ----------------------------------------------- */

/* For prefix/adopt.h, whose adopt_clean_up() precedes remote_join(), and adopt_decide() follows it;
 * also for a store without a remote (state.c). */
struct adoption adoption_of(struct store *store);

/* Until remote_watch_end(), cancelling the start (options.cancelled) interrupts the tier. NULL is
 * fine. */
void remote_watch_start(struct remote *remote);
void remote_watch_end(struct remote *remote);

/* Before the superblock is read: a new store (`is_new`) must learn the history with which it
 * begins. An existing one can do without the remote, and waits for it less long until
 * remote_hold(). */
CAIRN_MUST_CHECK int remote_open(struct remote *remote, bool is_new, char **ret_text);
/* Fills the existing history into a new superblock. NULL is fine. */
void remote_give_history(const struct remote *remote, struct superblock *sb);

/* With the superblock: checks that the store fits the newest head, and that the prefix is ours.
 * Waits for a dead holder's lease to expire. Also returns 0 if the remote cannot be reached now,
 * which prevents a mount only if the store has no state of its own. */
CAIRN_MUST_CHECK int remote_join(struct remote *remote, char **ret_text);
/* As remote_join(), for reading without a mount, which cannot wait: without a head it fails. */
CAIRN_MUST_CHECK int remote_join_to_read(struct remote *remote, char **ret_text);

/* Why an older state than the newest published one is shown, or continued; NULL: it is the newest.
 * Borrowed while the remote exists. */
const char *remote_shown_instead(const struct remote *remote);

/* During recovery of the view: ensures that STORE/runs has all runs of the head, whole and
 * verified. */
CAIRN_MUST_CHECK int remote_fetch_runs(struct store *store, const struct head *head);
/* The epoch that this store must exceed to continue its own numbers there. NULL is fine. */
uint64_t remote_epoch(const struct remote *remote);

/* After recovery: creates the prefix, and a head that states that this store holds it. From then on
 * the view's knowledge of published data counts; for a rebuilt view, only once the remote's packs
 * were listed. The uploader retries transient failures. */
CAIRN_MUST_CHECK int remote_hold(struct remote *remote, char **ret_text);

/* --- while it is open ------------------------------------------------------------------------- */

/* Starts its threads. */
CAIRN_MUST_CHECK int remote_start(struct remote *remote);
/* Ends the threads; waiters for the remote get -ESHUTDOWN. NULL is fine. */
void remote_stop(struct remote *remote);
