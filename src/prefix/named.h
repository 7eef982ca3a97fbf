// SPDX-License-Identifier: Apache-2.0
/* Snapshots with names, as objects of a prefix. Any thread. */
#pragma once

#include "format/snapshot.h"
#include "prefix/prefix.h"

#define NAMED_MAX 1000u /* of one prefix */

struct named_item {
    char name[SNAPSHOT_NAME_MAX];
};
DEFINE_VECTOR(named_list, struct named_item);

/* Adds the names that are there, ascending; the first NAMED_MAX of them. */
CAIRN_MUST_CHECK int named_list(struct prefix *prefix, struct named_list *list);
/* -ENOENT; -EUCLEAN, -EBADMSG: it is damaged, or of another history. */
CAIRN_MUST_CHECK int named_read(struct prefix *prefix, const char *name,
                                struct named_snapshot *ret);
/* Creates it exclusively. -EEXIST: there is one of that name, which is another. */
CAIRN_MUST_CHECK int named_create(struct prefix *prefix, const struct named_snapshot *snapshot);
/* Durably. Gone already is no error. */
CAIRN_MUST_CHECK int named_remove(struct prefix *prefix, const char *name);
