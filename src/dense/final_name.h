// SPDX-License-Identifier: Apache-2.0
/* Names that a file may be about to get: many programs save under another name first, and rename
 * that over the old file. Until then both are there. Pure.
 *
 *     /run7/latest.pt.tmp            /run7/latest.pt
 *     /run7/.latest.pt.a8Qx2         /run7/latest.pt
 *     /run7/tmp-latest/model.pt      /run7/latest/model.pt */
#pragma once

#include "base/base.h"

#define FINAL_PATHS_MAX 16u

/* Paths in which one name is a part of that in `path`, at least a third of it, that begins and ends
 * where a name does, or at one of . _ - ~ + # in it: the later names first, and of each the longest
 * parts. Returns how many; the caller frees each. */
unsigned final_name_paths(const char *path, char *ret[FINAL_PATHS_MAX]);
