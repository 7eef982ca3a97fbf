// SPDX-License-Identifier: Apache-2.0
/* The same mount at other places: in other mount namespaces (containers and units that were started
 * while it existed), and bind mounts. Unmounting it here does not end it there. Calls into no
 * filesystem. */
#pragma once

#include <stdio.h>

#include "cli/mounts.h"

/* One place; for a namespace with several processes, the one with the lowest number. */
struct mount_copy {
    unsigned id; /* of the mount */
    unsigned processes;
    long pid;
    char *mountpoint; /* as that process sees it */
    bool stays;       /* unmounting it here does not remove it there by propagation */
};

DEFINE_VECTOR(copy_list, struct mount_copy);

/* Finds all copies that processes show us, without `mount` itself. Without root, other users'
 * processes may be hidden. */
void copies_find(const struct mount_entry *mount, struct copy_list *ret);
void copies_done(struct copy_list *list);

unsigned copies_that_stay(const struct copy_list *list);
/* A line for each of those. */
void copies_print(const struct copy_list *list, FILE *out);
