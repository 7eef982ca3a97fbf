// SPDX-License-Identifier: Apache-2.0
/* The state of the remote, for fetch/ and store/. Any thread. */
#pragma once

#include "base/base.h"

struct prefix;
struct remote;

/* As messages call it. */
const char *remote_name(const struct remote *remote);
/* Lent, as long as the remote. Not while its threads run. */
struct prefix *remote_prefix(struct remote *remote);
/* Notes that the remote failed, or gave what is wrong: said, once in a while, and told by the
 * status. `error`: what the tier returned, which then is what cannot be reached; 0: it answered. */
void remote_error(struct remote *remote, int error, const char *fmt, ...) CAIRN_PRINTF(3, 4);
/* The remote answers, and must not be used as it is: it counts as unreachable, and is asked again.
 */
void remote_hold_off(struct remote *remote, const char *why);
bool remote_is_stopping(struct remote *remote);
/* Is what the view says of a remote true of this one, and will it stay so? NULL is fine. */
bool remote_has_ours(struct remote *remote);
/* Is it getting data now, that may leave NVMe when they are there? NULL is fine. The writeback
 * thread. */
bool remote_will_relieve(struct remote *remote);
/* Chunks that the newest head of this mount refers to, and has not got. */
uint64_t remote_damaged_chunks(const struct remote *remote);
/* As store_unwait(), of remote_start_wait(). */
bool remote_unwait(struct remote *remote, uint64_t ticket);
