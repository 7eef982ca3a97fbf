// SPDX-License-Identifier: Apache-2.0
/* Snapshots with names, as objects of a prefix. Any thread. */
#pragma once

#include "format/snapshot.h"
#include "prefix/prefix.h"

#define NAMED_MAX 1000u /* in one prefix */

struct named_item {
    char name[SNAPSHOT_NAME_MAX];
};
DEFINE_VECTOR(named_list, struct named_item);

/* Adds the existing names, ascending; the first NAMED_MAX of them. */
CAIRN_MUST_CHECK int named_list(struct prefix *prefix, struct named_list *list);
/* -ENOENT; -EUCLEAN, -EBADMSG: the object is damaged, or of another history. */
CAIRN_MUST_CHECK int named_read(struct prefix *prefix, const char *name,
                                struct named_snapshot *ret);
/* Creates the object exclusively. -EEXIST: another snapshot has this name. */
CAIRN_MUST_CHECK int named_create(struct prefix *prefix, const struct named_snapshot *snapshot);
/* Removes the object durably. No error if it does not exist. */
CAIRN_MUST_CHECK int named_remove(struct prefix *prefix, const char *name);
