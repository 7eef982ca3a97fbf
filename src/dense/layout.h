// SPDX-License-Identifier: Apache-2.0
/* Layout: which of a cut's chunks belong together, so that a checkpoint takes as few packs of the
 * remote as it can, and a lost pack costs few checkpoints.
 *
 * A checkpoint is a *burst*: files of which each was modified at most BURST_GAP_NS after the one
 * before, in whatever directories. Files are saved within seconds, and trained for minutes. It is a
 * matter of cost alone: what is taken for one checkpoint and is two, or none, is stored as well. */
#pragma once

#include "format/chunk.h"

#define LAYOUT_SPOTS_MAX 131072u
/* Most memory: the spots, and while they are listed the files, and the parts of one. */
#define LAYOUT_BYTES (6u * 1024 * 1024)

struct view_cut;
struct layout;

/* Lists the chunks of files that the newest head does not have as they are: of at most 16,384
 * files, and LAYOUT_SPOTS_MAX chunks. NULL: it cannot be told. Reads the view alone; the uploader's
 * thread. */
struct layout *layout_build(struct view_cut *cut);
void layout_free(struct layout *layout); /* NULL is fine */

/* Returns the burst that has the chunk, from 1, the oldest, on, and where the chunk stands in it.
 * 0: it is of none that is known. Any thread. */
uint32_t layout_burst(const struct layout *layout, const struct chunk_name *name,
                      uint32_t *ret_place);
