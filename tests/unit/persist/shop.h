// SPDX-License-Identifier: Apache-2.0
/* What the tests of the store share: a store in a folder, files in it by number, and their content. */
#pragma once

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "persist/store.h"

struct shop {
    char path[64];
    char stage_dir[64];
    struct store_options options;
    struct store *store;
    char *text; /* why the last open failed */
};

void shop_make(struct shop *shop);
void shop_remove(struct shop *shop);
/* Opens and starts; shop_open_only() does not start the background. */
int shop_open_only(struct shop *shop);
void shop_start(struct shop *shop);
void shop_open(struct shop *shop);
void shop_close(struct shop *shop);
/* The child runs `work` on the opened store and dies without a word. */
void shop_die_after(struct shop *shop, void (*work)(struct shop *shop));
/* The stage goes, as in a power loss. */
void shop_lose_power(struct shop *shop);
/* No problem, or the test fails. Counts them. */
int shop_fsck(struct shop *shop);
/* Removes what matches below the store's folder. */
void shop_delete(struct shop *shop, const char *name);

/* A file in the root folder, held until shop_drop(); nascent. */
uint64_t shop_create(struct shop *shop, const char *name);
void shop_drop(struct shop *shop, uint64_t ino);
uint64_t shop_lookup(struct shop *shop, const char *name); /* 0: none */
void shop_write(struct shop *shop, uint64_t ino, uint64_t offset, const void *data, size_t length);
/* `length` bytes that `number` and their offset determine; incompressible. */
void shop_fill(struct shop *shop, uint64_t ino, uint64_t offset, unsigned number, size_t length);
/* At most one write; what it returns. */
int shop_try_fill(struct shop *shop, uint64_t ino, uint64_t offset, unsigned number, uint32_t length);
void shop_seal(struct shop *shop, uint64_t ino);
/* create, fill, seal, drop. */
void shop_put(struct shop *shop, const char *name, unsigned number, size_t length);
void shop_unlink(struct shop *shop, const char *name, uint32_t flags);
void shop_commit(struct shop *shop, struct record rec);
/* Until all that happened is durable. */
void shop_wait(struct shop *shop);

void shop_read(struct shop *shop, uint64_t ino, uint64_t offset, void *buf, size_t length);
uint64_t shop_size(struct shop *shop, uint64_t ino);
void shop_expect_fill(struct shop *shop, uint64_t ino, uint64_t offset, unsigned number, size_t length);
/* By name, whole. */
void shop_expect(struct shop *shop, const char *name, unsigned number, size_t length);
