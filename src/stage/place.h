// SPDX-License-Identifier: Apache-2.0
/* Where stages are: their paths, whose they are, and how they are swept. Calls look at directories
 * and files, and may wait for them. Any thread. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

/* The path of a stage's control file. Caller frees. */
char *stage_ctl_path(const char *dir, const uint8_t name[16]);
/* The directory (caller frees) and the name in such a path. -EINVAL: it is none. */
CAIRN_MUST_CHECK int stage_parse_path(const char *path, char **ret_dir, uint8_t ret_name[16]);

/* The directory for stages of this user (caller frees): `dir` where no other user writes, else a
 * directory in it with mode 0700, which is made if there is none. Where another user has its name,
 * it says so in the log and takes another. */
CAIRN_MUST_CHECK int stage_make_directory(const char *dir, char **ret_directory);
/* The name that such a directory in `dir` has where no other user took it. Caller frees. */
char *stage_own_directory(const char *dir);
/* Removes a directory that was made by it, if it is empty by now. */
void stage_leave_directory(const char *directory);

/* A look at a control file, without opening it for use. */
struct stage_look {
    uint32_t uid; /* whose the file is, with -EACCES too */
    uint8_t store[16];
    bool in_use; /* a process holds the lock: `pid`, 0: not known */
    pid_t pid;
    char *owner; /* path of its store; NULL or empty: not known. stage_look_done() frees it. */
    uint64_t owner_device, owner_ino; /* of the store's directory; 0: not known */
};
/* The directory's device and inode, as long as the machine runs: 0 for both where its filesystem
 * may give it others. */
void stage_directory_identity(const char *path, uint64_t *ret_device, uint64_t *ret_ino);
/* -ENOENT, -EACCES: it is another user's, or open to others; -EUCLEAN: it is no stage. */
CAIRN_MUST_CHECK int stage_look(const char *dir, const uint8_t name[16], struct stage_look *ret);
void stage_look_done(struct stage_look *look);
/* Calls `fn` with the name of each stage in `dir`. */
void stage_each(const char *dir, void (*fn)(const uint8_t name[16], void *arg), void *arg);

/* Removes stages in `dir` that no session ever named, which a daemon left that died, or failed,
 * while it began: of the store `owner` with that id, and those that were not even made. Others of
 * it, which are not in use, are told in the log: nothing names them any more. */
void stage_sweep(const char *dir, const uint8_t store[16], const char *owner);

/* Are there files of this stage? */
bool stage_is_left(const char *dir, const uint8_t name[16]);
/* Deletes the files of a stage, if any: foreign, stale, or drained. */
void stage_remove_files(const char *dir, const uint8_t name[16]);
/* Memory that they take, if there are any. */
uint64_t stage_files_bytes(const char *dir, const uint8_t name[16]);
/* The bytes of writes that a stage which is not open may hold, and that are nowhere else; what is
 * on NVMe and kept for reading is among them. 0: none, or it cannot be read. */
uint64_t stage_held_bytes(const char *dir, const uint8_t name[16]);
/* Tells in the log of each .slabs in `dir` that has lost its .ctl. */
void stage_report_parted(const char *dir);

/* The kernel's id of this boot, then zeros. */
CAIRN_MUST_CHECK int stage_boot_id(char id[40]);
