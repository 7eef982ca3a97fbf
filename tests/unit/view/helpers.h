// SPDX-License-Identifier: Apache-2.0
/* What the tests of the view share: a directory, batches of records, packs in memory, a dump of all
 * that can be read. */
#pragma once

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sys/stat.h>

#include "../../remove_tree.h"
#include "view/view.h"

#define T0 1000000000ll
#define TEST_PAGE (16 * MIB)

struct test_pack {
    uint64_t pack;
    bool gone; /* its file was removed */
    struct chunk_entry *entries;
    uint32_t count;
};

/* A history being written: batches that were applied, and the packs. */
struct fixture {
    char path[64];
    struct view *view;
    uint64_t seq;
    uint8_t *buf; /* the batch being built */
    size_t len, room;
    struct {
        void *records;
        size_t len;
        uint64_t cut_seq;
    } * batches;
    size_t batch_count;
    struct test_pack *packs;
    size_t pack_count;
};

void fixture_open(struct fixture *f);
void fixture_reopen(struct fixture *f);
void fixture_close(struct fixture *f); /* also removes the directory */
void open_view_at(const char *path, struct view **ret_view);

/* A number that the environment says, for campaigns. */
uint64_t test_number(const char *variable, uint64_t usual);

struct chunk_name chunk_of(uint32_t id);
uint32_t chunk_id(const struct chunk_name *name);

/* Adds a record to the batch; gives it the next sequence number (returned) and a time that ascends
 * with
 * it. */
uint64_t add(struct fixture *f, struct record rec);
int64_t time_of(uint64_t seq);
/* Applies the batch; on success it joins the history. The batch is empty then, also
 * after an error. */
int apply(struct fixture *f);
void apply_ok(struct fixture *f);
/* Applies the batch: it must be refused and change nothing. */
void apply_bad(struct fixture *f);

/* Shorthands for records. Names are C strings. */
void add_dir(struct fixture *f, uint64_t ino, uint64_t parent, const char *name);
void add_file(struct fixture *f, uint64_t ino, uint64_t parent, const char *name, uint64_t size);
void add_link(struct fixture *f, uint64_t ino, uint64_t parent, const char *name);
void add_unlink(struct fixture *f, uint64_t ino, uint64_t parent, const char *name, uint32_t flags);
void add_rename(struct fixture *f, uint64_t ino, uint64_t parent, const char *name,
                uint64_t parent2, const char *name2, uint64_t ino2, uint32_t flags);
/* The same with places in the order of the directories. */
void add_rename_at(struct fixture *f, uint64_t ino, uint64_t parent, const char *name,
                   uint64_t parent2, const char *name2, uint64_t ino2, uint32_t flags,
                   uint64_t cookie, uint64_t cookie2);
/* Not a file with content. `target`: of a symbolic link; NULL: of none. */
void add_make(struct fixture *f, uint64_t ino, uint64_t parent, const char *name,
              struct attrs attrs, const char *target);
void add_xattr(struct fixture *f, uint64_t ino, const char *name, const char *value);
struct attrs file_attrs(uint64_t size);
void add_seal(struct fixture *f, uint64_t ino, uint64_t version, uint64_t keep, uint64_t size,
              const struct extent *extents, uint32_t count);
void add_seal_inline(struct fixture *f, uint64_t ino, uint64_t version, uint64_t keep,
                     uint64_t size, uint64_t offset, const char *text);
struct extent chunk_extent(uint64_t offset, uint64_t length, uint32_t id, uint32_t chunk_offset);
struct extent hole_extent(uint64_t offset, uint64_t length);

/* A pack with these chunks (raw_len 1 MiB, stored_len 1000 + id) and its record. */
void add_pack(struct fixture *f, uint64_t pack, const uint32_t *ids, uint32_t count);
/* Chunk `i` of the pack that was added last, and is not applied, rests on `base`, too. */
void rest_on(struct fixture *f, uint32_t i, uint32_t base, uint8_t depth);
void add_drop(struct fixture *f, uint64_t pack);

struct view_inode inode_of(struct fixture *f, uint64_t ino);
uint64_t lookup(struct fixture *f, uint64_t parent, const char *name); /* 0: none */
uint64_t refs_of(struct fixture *f, uint32_t id);                      /* UINT64_MAX: unknown */
/* "C1+0@0:4096 I@4096:5=hello .@4101:10" for the whole file. */
char *content_of(struct fixture *f, uint64_t ino);
void expect_content(struct fixture *f, uint64_t ino, const char *expected);
void expect_range(struct fixture *f, uint64_t ino, uint64_t offset, uint64_t length,
                  const char *expected);
void expect_check_ok(struct view *view);
/* Number of differences that view_check() finds, -errno. */
int check_count(struct view *view);
/* Everything that can be read, as text. */
char *dump(struct view *view);
/* As dump(), but for what is only true here: packs, and where in them chunks lie. */
char *dump_shared(struct view *view);
/* Applies batch `i` of the history to another view. */
void apply_again(struct fixture *f, struct view *view, size_t i);
/* Applies records that are not of the history. */
void apply_bytes(struct fixture *f, struct view *view, const void *records, size_t len,
                 uint64_t cut_seq);
/* Applies the history to a new view: it must read the same. Packs that are gone have no
 * index then. */
void expect_replay_same(struct fixture *f);
