// SPDX-License-Identifier: Apache-2.0
/* Lineage: which chunk that a cut brings could be stored as its difference to which other one.
 *
 * A file's base is what it replaces: the file that the newest head has at its path, or at one that
 * it may be renamed to (final_name.h). Else it is the newest older one of a series that it is of
 * (series.h), at the cut or in the newest head. Of these the first in which the contents are near
 * each other, by samples; a chunk's partner is what stands in its place there (pairing.h),
 * and its base that, or what that rests on (chains.h): in chains for files of 2-byte elements alone
 * in whose directory the cut brings none of wider ones, else in stars. A keyframe is a matter of
 * each place in a file.
 *
 * It only proposes. Whether a base may be used when its time has come, view_cut_base() says;
 * whether it pays, dx_gate(). Nothing of it is stored. At most 16 MiB of memory, and some
 * seconds where directories have very many files: what a cut has beyond that has no bases. */
#pragma once

#include "format/chunk.h"

struct dense;
struct view_cut;
struct lineage;

/* A base that no file refers to any more is kept in the remote by differences alone: it has to save
 * this part of each, so that it has saved what it takes after as many. */
#define DEAD_WORTH_SHARE 8u

/* The lineage of all files that the cut has and the newest head has not. `published`: the cut of
 * the newest head; NULL: it is not there any more. Reads samples of them and of their bases, from
 * NVMe or the remote; blocks. The uploader's thread. -ECANCELED: the upload is to stop; errors of
 * the view. */
CAIRN_MUST_CHECK int lineage_build(struct dense *dense, struct view_cut *cut,
                                   struct view_cut *published, struct lineage **ret);
void lineage_free(struct lineage *lineage); /* NULL is fine */

/* The base that a chunk could have, of the same length. Returns its level: it is to be sent after
 * all of lesser levels, at most CHAIN_DEPTH_MAX; 0: it could have none. Any thread. */
unsigned lineage_base(const struct lineage *lineage, const struct chunk_name *name,
                      struct chunk_name *ret_base);
