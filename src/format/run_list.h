// SPDX-License-Identifier: Apache-2.0
/* Lists of runs as in heads and feeds, oldest first: 72 bytes each. Within format/. Pure
 * functions. */
#pragma once

#include "format/run.h"

#define RUN_LIST_MAX 64u
#define RUN_LIST_ITEM_LEN 72u

void run_list_encode(const struct run_info *runs, uint32_t count, uint8_t *p);
/* The decoded runs get the history of the object that lists them. */
void run_list_decode(const uint8_t *p, uint32_t count, const uint8_t history[16],
                     struct run_info *ret_runs);

/* Are the runs contiguous from cut 0 to *ret_cut, with unique ids other than 0, all of this
 * history? */
CAIRN_MUST_CHECK bool run_list_is_sane(const struct run_info *runs, uint32_t count,
                                       const uint8_t history[16], uint64_t *ret_cut);
