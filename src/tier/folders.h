/* Folders of a tier that is a directory: makes them, and makes durable what was named in them. Any thread; no lock is held over
 * I/O. */
#pragma once

#include "base/base.h"

struct folders;

/* `root_fd` is borrowed. `one_failure_is_final`: after an fsync that failed every later sync fails too, since names may be lost
 * that no later fsync would bring back (a local medium); else the next one tries again (a server that was away). */
struct folders *folders_new(int root_fd, bool one_failure_is_final);

/* NULL is fine. */
void folders_free(struct folders *folders);

/* Makes one folder, whose parent is there; there already is no error. */
CAIRN_MUST_CHECK int folders_make(struct folders *folders, const char *folder);

/* Makes all folders above `object`. */
CAIRN_MUST_CHECK int folders_make_parents(struct folders *folders, const char *object);

/* A name was made or removed: the folders above it are not durable until the next sync. */
void folders_touch(struct folders *folders, const char *object);

/* Everything touched before is durable on return. */
CAIRN_MUST_CHECK int folders_sync(struct folders *folders);
