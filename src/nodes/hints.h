// SPDX-License-Identifier: Apache-2.0
/* Hints of jobs (format/hint.h), as the merger honours them: the union stands at no round at which
 * it has a marker and lacks an operation that the marker lies behind. So for these markers no
 * node's clock has to be believed. Two nodes of which one tells that the other's rounds cannot be
 * right are named.
 *
 * A hint that speaks of operations that its node never tells is given up HINT_ROUNDS later: anybody
 * who may write a directory can set one. One thread. */
#pragma once

#include "base/vector.h"
#include "nodes/told.h"

#define HINT_ROUNDS 15u

struct hint {
    uint64_t teller, lo, hi; /* the feed that has it: epoch of its stay, and its rounds */
    uint64_t number;         /* of an operation of any node */
    bool is_said;            /* it contradicts rounds, and the log names the nodes */
};
DEFINE_VECTOR(hint_list, struct hint);

/* Notes the hints of a feed that counts. Its bytes must be loaded. */
void hints_note(struct hint_list *hints, const struct told *told);
/* The teller's feeds up to a round are merged, or count no more (UINT64_MAX). */
void hints_forget(struct hint_list *hints, uint64_t teller, uint64_t round);
