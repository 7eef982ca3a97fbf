// SPDX-License-Identifier: Apache-2.0
/* The state of the remote, for fetch/ and store/. Any thread. */
#pragma once

#include "base/base.h"

struct prefix;
struct remote;

/* The name for messages. */
const char *remote_name(const struct remote *remote);
/* Borrowed while the remote exists. Not while its threads run. */
struct prefix *remote_prefix(struct remote *remote);
/* Records that the remote failed, or returned wrong data: logs it, at a limited rate, and shows it
 * in the status. `error`: the tier's error, if the remote cannot be reached; 0: it answered. */
void remote_error(struct remote *remote, int error, const char *fmt, ...) CAIRN_PRINTF(3, 4);
/* The remote answers, but must not be used in this state: it counts as unreachable, and is checked
 * again. */
void remote_hold_off(struct remote *remote, const char *why);
bool remote_is_stopping(struct remote *remote);
/* Does the view's state of the remote describe this remote, and will it continue to? NULL is
 * fine. */
bool remote_has_ours(struct remote *remote);
/* Is it receiving data now that may be evicted from NVMe afterwards? NULL is fine. Writeback thread
 * only. */
bool remote_will_relieve(struct remote *remote);
/* Number of chunks to which the newest head of this mount refers without a place. */
uint64_t remote_damaged_chunks(const struct remote *remote);
/* As store_unwait(), for remote_start_wait(). */
bool remote_unwait(struct remote *remote, uint64_t ticket);
