// SPDX-License-Identifier: Apache-2.0
/* Where stages are stored: their paths, their owners, and the removal of stale ones. Calls read
 * directories and files, and may block. Any thread. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

/* The path of a stage's control file. Caller frees. */
char *stage_ctl_path(const char *dir, const uint8_t name[16]);
/* Splits such a path into directory (caller frees) and name. -EINVAL: not the path of a stage. */
CAIRN_MUST_CHECK int stage_parse_path(const char *path, char **ret_dir, uint8_t ret_name[16]);

/* Returns the directory for stages of this user (caller frees): `dir` if no other user can write to
 * it, else a directory in it with mode 0700, created if needed. If another user has taken that
 * name, logs it and uses another name. */
CAIRN_MUST_CHECK int stage_make_directory(const char *dir, char **ret_directory);
/* The usual name of that directory in `dir`, unless another user has taken it. Caller frees. */
char *stage_own_directory(const char *dir);
/* Removes a directory created by stage_make_directory(), if it is empty. */
void stage_leave_directory(const char *directory);

/* Information from a control file, read without opening the stage for use. */
struct stage_look {
    uint32_t uid; /* owner of the file, also set with -EACCES */
    uint8_t store[16];
    bool in_use; /* a process holds the lock: `pid`; 0: not known */
    pid_t pid;
    char *owner; /* path of its store; NULL or empty: not known. stage_look_done() frees it. */
    uint64_t owner_device, owner_ino; /* of the store's directory; 0: not known */
};
/* The device and inode of a directory, if they are constant while the machine runs; both 0 if its
 * filesystem may renumber it. */
void stage_directory_identity(const char *path, uint64_t *ret_device, uint64_t *ret_ino);
/* -ENOENT; -EACCES: it belongs to another user, or is accessible to others; -EUCLEAN: it is no
 * stage. */
CAIRN_MUST_CHECK int stage_look(const char *dir, const uint8_t name[16], struct stage_look *ret);
void stage_look_done(struct stage_look *look);
/* Calls `fn` with the name of each stage in `dir`. */
void stage_each(const char *dir, void (*fn)(const uint8_t name[16], void *arg), void *arg);

/* Removes stages in `dir` that no session ever referred to, left by a daemon that died or failed at
 * its start: those of the store `owner` with that id, and those that were not completed. Logs other
 * unused stages of that store, since nothing refers to them any more. */
void stage_sweep(const char *dir, const uint8_t store[16], const char *owner);

/* Do files of this stage exist? */
bool stage_is_left(const char *dir, const uint8_t name[16]);
/* Deletes the files of a stage, if any: call for a foreign, stale, or drained stage. */
void stage_remove_files(const char *dir, const uint8_t name[16]);
/* The memory that these files occupy; 0: no files. */
uint64_t stage_files_bytes(const char *dir, const uint8_t name[16]);
/* Upper bound of the bytes of writes in a stage that is not open and that may exist nowhere else;
 * includes content on NVMe that is cached for reading. 0: none, or it cannot be read. */
uint64_t stage_held_bytes(const char *dir, const uint8_t name[16]);
/* Logs each .slabs file in `dir` whose .ctl file is missing. */
void stage_report_parted(const char *dir);

/* The kernel's id of this boot, padded with zeros. */
CAIRN_MUST_CHECK int stage_boot_id(char id[40]);
