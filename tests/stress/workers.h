// SPDX-License-Identifier: Apache-2.0
/* What the workers of the stress share. */
#pragma once

#include <semaphore.h>

#include "fixture.h"

#define FILES 4u /* of each worker */
#define FILE_MAX (3 * MIB)
#define XATTRS 3u

struct file {
    uint64_t ino, handle;
    bool is_open, is_linked;
    unsigned dir;
    char name[40];
    uint64_t size;
    uint8_t *bytes;          /* FILE_MAX */
    uint64_t xattrs[XATTRS]; /* 0: none */
};

struct worker {
    struct fixture *fixture;
    unsigned index;
    uint64_t rng;
    unsigned names; /* given out */
    struct fs_caller caller;
    struct file files[FILES];
    sem_t answered;
    ssize_t got;  /* by the last read */
    uint8_t *buf; /* FILE_MAX */
    const char *doing;
};

#define EXPECT_OK(w, r, what)                                                                      \
    expect((w)->fixture, (r) == 0, "worker %u: %s: %s: %s", (w)->index, (w)->doing, what,          \
           strerror((int)-(r)))

/* Reads into w->buf, as the front does; the length, or an error. */
ssize_t worker_read(struct worker *w, uint64_t ino, uint64_t offset, size_t length);
/* Writes from w->buf. -ENOSPC is an answer, other errors are not. */
int worker_write(struct worker *w, uint64_t ino, uint64_t offset, uint32_t length);
/* As the kernel does of what has lost its last name. */
void worker_forget(struct worker *w, uint64_t ino);

/* private.c */
void private_make(struct worker *w);
void private_verify(struct worker *w);
void private_close(struct worker *w, struct file *file);
void private_expect(struct worker *w, const struct file *file, uint64_t offset, size_t length);
void private_expect_xattrs(struct worker *w, const struct file *file);
void private_write(struct worker *w, struct file *file);
void private_read(struct worker *w, struct file *file);
void private_truncate(struct worker *w, struct file *file);
void private_allocate(struct worker *w, struct file *file);
void private_sync(struct worker *w, struct file *file);
void private_reopen(struct worker *w, struct file *file);
void private_link(struct worker *w, struct file *file);
void private_unlink(struct worker *w, struct file *file);
void private_rename(struct worker *w, struct file *file);
void private_copy(struct worker *w, struct file *file);
void private_xattr(struct worker *w, struct file *file);
void private_stat(struct worker *w, struct file *file);
void private_list(struct worker *w, struct file *file);

/* shared.c */
void shared_step(struct worker *w);
/* Asks what `cairn status`, `cairn wait` and getfattr ask, until the fixture stops. */
void *observe(void *arg);
