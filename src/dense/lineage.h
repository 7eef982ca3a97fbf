// SPDX-License-Identifier: Apache-2.0
/* Lineage: which chunk of a cut could be stored as its difference to which other chunk.
 *
 * The base of a file is the file that it replaces: the file of the newest head at its path, or at a
 * path to which it may be renamed (final_name.h). Otherwise it is the next older file of one of its
 * series (series.h), at the cut or in the newest head. The first of these with similar content, by
 * samples, is used. A chunk's partner is the chunk at the same place in the base file (pairing.h),
 * and its base is the partner, or one in the partner's chain (chains.h): chains are used only for
 * files of 2-byte elements if the cut has no files with wider ones in their directory; otherwise
 * stars. Keyframes are chosen for each place in a file separately.
 *
 * The result is only a proposal. view_cut_base() decides whether a base may be used when the chunk
 * is sent; dx_gate() decides whether it pays. Nothing is stored. At most 16 MiB of memory, and some
 * seconds if directories have very many files: further files of a cut get no bases. */
#pragma once

#include "format/chunk.h"

struct dense;
struct view_cut;
struct lineage;

/* A base that no file refers to is kept in the remote by differences alone: each difference must
 * save this part of its chunk, so that so many of them pay for the base. */
#define DEAD_WORTH_SHARE 8u

/* Makes the lineage of all files of the cut that differ from the newest head. `published`: the cut
 * of the newest head; NULL: no longer open. Reads samples of the files and their bases, from NVMe
 * or the remote; blocks. Uploader's thread. -ECANCELED: the upload is to stop; errors of the
 * view. */
CAIRN_MUST_CHECK int lineage_build(struct dense *dense, struct view_cut *cut,
                                   struct view_cut *published, struct lineage **ret);
void lineage_free(struct lineage *lineage); /* NULL is fine */

/* Returns the possible base of a chunk, of the same length, and the chunk's level, at most
 * CHAIN_DEPTH_MAX: it must be sent after all chunks of lower levels; 0: no base. Any thread. */
unsigned lineage_base(const struct lineage *lineage, const struct chunk_name *name,
                      struct chunk_name *ret_base);
