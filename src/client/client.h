// SPDX-License-Identifier: Apache-2.0
/* Inside libcairn: a lane (lane.h), its saves (save.h), and the pieces that threads copy.
 *
 * A save goes OPEN -> PUBLISHED or FAILED, by one step each:
 *   1. the call has its draft opened (open.c, draft.h), notes what is to be copied (jobs) and what
 *      is already in memory of ours (segments);
 *   2. threads "cairn-copy" take pieces of the jobs; "cairn-device" does so for sources on devices
 *      (device_copy.c);
 *   3. when no byte is missing, it is committed and what it waits for has ended, "cairn-publish"
 *      writes the segments and gives the name.
 *
 * A failure drops what was not begun. The draft is taken away by "cairn-publish" when no thread
 * uses it any more.
 *
 * Locks: one mutex a lane guards the lane and its saves; never held over I/O, over a copy or over
 * the caller's log. Memory for what a call needs is allocated by that call, before it changes
 * anything: -ENOMEM is an answer like others.
 *
 * Aborts are for our own bugs (check()); nothing else ends the process. */
#pragma once

#include "base/base.h"
#include "client/lane.h"
#include "client/save.h"

/* --- copy.c ----------------------------------------------------------------------------------- */

/* Pieces of a job. A host source is split at the borders of pages, for what does not begin at one
 * is one request of FUSE more; one on a device as the ring is. */
size_t pieces_of(const struct job *job);
/* The length of the piece that begins `given` bytes from the start. */
uint64_t piece_length(const struct job *job, uint64_t given);

/* --- level.c ---------------------------------------------------------------------------------- */

/* Waits until a published save has reached CAIRN_NVME or CAIRN_REMOTE. */
CAIRN_MUST_CHECK int level_wait(struct cairn_save *save, enum cairn_level level, int64_t deadline);

/* --- answer.c: structs of the caller ---------------------------------------------------------- */

/* The level of $CAIRN_LOG; else all lines where the caller takes them, warnings where they go to
 * standard error. */
int log_level_of(const struct cairn_lane_options *options);

/* Fills `ret` (which begins with its size) from `have`, as much as it knows of. -EINVAL: a size
 * that cannot be. */
CAIRN_MUST_CHECK int copy_struct(void *ret, const void *have, size_t size);

/* The other direction: `ret` of `size` bytes, zeros where `from` is shorter; `from` may be NULL.
 * -E2BIG: it has members that this library does not know, and they are not zero. */
CAIRN_MUST_CHECK int take_struct(void *ret, size_t size, const void *from);

/* --- device_copy.c: sources on devices -------------------------------------------------------- */

/* The slot of a device, which is opened if it is new, and the thread started; its copies from now
 * on come after what `producer` was given so far. -ENODEV, -EBUSY, ... */
CAIRN_MUST_CHECK int lane_device(struct cairn_lane *lane, int ordinal, uint64_t producer,
                                 int *ret_slot);

/* --- device_look.c: of the thread "cairn-device" ---------------------------------------------- */

/* The next piece that is to be copied, if there is one. */
bool look_next_copy_locked(struct cairn_lane *lane, struct look *ret);
/* Enqueues the next fingerprint; ends one of that device that is done. False: there is none, or no
 * room. */
bool look_begin(struct cairn_lane *lane);
bool look_end(struct cairn_lane *lane, struct lane_device *device);
/* The save has failed: what was to be copied of it is not. */
void look_drop_locked(struct cairn_save *save);

/* The slot that has it already; else -1. */
int device_slot_locked(const struct cairn_lane *lane, int ordinal);

/* The ring gets this size, unless it has it. -EBUSY: a source on a device is under way. */
CAIRN_MUST_CHECK int lane_prepare(struct cairn_lane *lane, uint64_t bytes);

/* When all threads have ended. */
void lane_close_devices(struct cairn_lane *lane, bool is_child);
