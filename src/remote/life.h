// SPDX-License-Identifier: Apache-2.0
/* The remote from the opening of a store to its end, for store/, which opens and recovers. One
 * thread, but for remote_memory(). Where nothing else is said, *ret_text is why in one line (caller
 * frees), or NULL. */
#pragma once

#include "prefix/adopt.h"

struct remote;
struct store;
struct superblock;

/* Takes over options.remote. NULL: none is wanted. */
struct remote *remote_new(struct store *store);
void remote_free(struct remote *remote); /* NULL is fine */

/* Most memory that it takes, but for what reads for readers. NULL is fine. */
uint64_t remote_memory(const struct remote *remote);

/* --- an opening, in this order (opening.c) ---------------------------------------------------- */

/* For prefix/adopt.h, whose adopt_clean_up() comes before remote_join(), and adopt_decide() after
 * it: also of a store without a remote (state.c). */
struct adoption adoption_of(struct store *store);

/* Until the end is called, a start that is given up (options.cancelled) interrupts the tier. NULL
 * is fine. */
void remote_watch_start(struct remote *remote);
void remote_watch_end(struct remote *remote);

/* Before the superblock is there: a new store (`is_new`) has to know which history it begins with.
 * An old one can do without the remote, and waits for it less long until remote_hold(). */
CAIRN_MUST_CHECK int remote_open(struct remote *remote, bool is_new, char **ret_text);
/* A new superblock goes on with the history that is there. NULL is fine. */
void remote_give_history(const struct remote *remote, struct superblock *sb);

/* With the superblock: may the store go together with the newest head, and is the prefix ours?
 * Waits for a dead holder's lease. 0 also where it cannot be reached now: that is no reason not to
 * mount, unless the store has no state of its own. */
CAIRN_MUST_CHECK int remote_join(struct remote *remote, char **ret_text);
/* The same for reading without a mount, which cannot wait: there is a head, or it fails. */
CAIRN_MUST_CHECK int remote_join_to_read(struct remote *remote, char **ret_text);

/* Why an older state is shown, or gone on from, than was published; NULL: it is the newest. Lent,
 * as long as the remote. */
const char *remote_shown_instead(const struct remote *remote);

/* While the view is recovered. Makes sure that STORE/runs has all runs of the head, whole and
 * verified. */
CAIRN_MUST_CHECK int remote_fetch_runs(struct store *store, const struct head *head);
/* The epoch from which other stores must see this one's numbers continue. NULL is fine. */
uint64_t remote_epoch(const struct remote *remote);

/* After recovery: makes the prefix, and the head that says that this store holds it. From then on
 * counts what the view knows to be published; of a view that was made anew, when the remote was
 * asked for its packs. The uploader retries transient failures. */
CAIRN_MUST_CHECK int remote_hold(struct remote *remote, char **ret_text);

/* --- while it is open ------------------------------------------------------------------------- */

/* Its threads. */
CAIRN_MUST_CHECK int remote_start(struct remote *remote);
/* Ends the threads; waiters for the remote get -ESHUTDOWN. NULL is fine. */
void remote_stop(struct remote *remote);
