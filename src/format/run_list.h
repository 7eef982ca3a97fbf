// SPDX-License-Identifier: Apache-2.0
/* Runs as heads and feeds name them, oldest first: 72 bytes each. Within format/. Pure functions.
 */
#pragma once

#include "format/run.h"

#define RUN_LIST_MAX 64u
#define RUN_LIST_ITEM_LEN 72u

void run_list_encode(const struct run_info *runs, uint32_t count, uint8_t *p);
/* The runs have the history of what names them. */
void run_list_decode(const uint8_t *p, uint32_t count, const uint8_t history[16],
                     struct run_info *ret_runs);

/* Do they follow each other from cut 0 to *ret_cut, with ids that are not 0 and differ, all of this
 * history? */
CAIRN_MUST_CHECK bool run_list_is_sane(const struct run_info *runs, uint32_t count,
                                       const uint8_t history[16], uint64_t *ret_cut);
