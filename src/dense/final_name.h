// SPDX-License-Identifier: Apache-2.0
/* Names to which a file may soon be renamed: many programs save under a temporary name, and rename
 * that over the old file. Until then both files exist. Pure.
 *
 * /run7/latest.pt.tmp            /run7/latest.pt
 * /run7/.latest.pt.a8Qx2         /run7/latest.pt
 * /run7/tmp-latest/model.pt      /run7/latest/model.pt */
#pragma once

#include "base/base.h"

#define FINAL_PATHS_MAX 16u

/* Paths in which one name is shortened to a part of the name in `path`: at least a third of it,
 * beginning and ending at its ends or at one of . _ - ~ + #. Later names of the path first, and for
 * each name the longest parts. Returns the number; the caller frees each. */
unsigned final_name_paths(const char *path, char *ret[FINAL_PATHS_MAX]);
