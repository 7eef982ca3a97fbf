// SPDX-License-Identifier: Apache-2.0
/* Layout: which of a cut's chunks belong together, so that a checkpoint needs few packs in the
 * remote, and a lost pack damages few checkpoints.
 *
 * A checkpoint is a *burst*: files each modified at most BURST_GAP_NS after the preceding one, in
 * any directory. Files of a checkpoint are saved within seconds, and checkpoints are minutes apart.
 * A wrong guess, of two checkpoints as one or of other files as a checkpoint, only costs
 * efficiency. */
#pragma once

#include "format/chunk.h"

#define LAYOUT_SPOTS_MAX 131072u
/* Most memory: the spots and, while they are listed, the files and the parts of one file. */
#define LAYOUT_BYTES (6u * 1024 * 1024)

struct view_cut;
struct layout;

/* Lists the chunks of files that differ from the newest head: of at most 16,384 files, and
 * LAYOUT_SPOTS_MAX chunks. NULL: failed. Reads only the view; uploader's thread. */
struct layout *layout_build(struct view_cut *cut);
void layout_free(struct layout *layout); /* NULL is fine */

/* Returns the burst with this chunk, numbered from 1, the oldest, and the chunk's position in it.
 * 0: in no known burst. Any thread. */
uint32_t layout_burst(const struct layout *layout, const struct chunk_name *name,
                      uint32_t *ret_place);
