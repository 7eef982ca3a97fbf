// SPDX-License-Identifier: Apache-2.0
/* The view of a test, a remote in memory to publish it to, and shorthands for what lies there. */
#pragma once

#include "test_remote.h"

struct key;

extern struct fixture f;
extern struct test_remote remote; /* of f.view */

/* A view without a remote. In the end it must be sane, and follow from its history. */
void begin_view(void);
void end_view(void);

void begin_remote(void); /* both are empty; the view does not track yet */
void begin_tracking(void);
/* Everything that a row can be; chunks 1 to 5 in the remote packs 100 and 101, 102 unreferenced, 6
 * missing. Tracks and is published. */
void begin_full_remote(void);
void end_remote(void);

/* A file of one extent for each chunk. */
void add_file_of(uint64_t ino, const char *name, const uint32_t *ids, uint32_t count);
struct chunk_entry remote_entry(uint64_t pack, uint32_t id, uint64_t offset);
/* The same of a chunk that rests on `bases`; plain where it has none. */
struct chunk_entry remote_entry_on(uint64_t pack, uint32_t id, uint64_t offset, unsigned depth,
                                   const uint32_t *bases, uint32_t count);
void place(uint64_t pack, const uint32_t *ids, uint32_t count);

#define PLACE(pack, ...)                                                                           \
    place(pack, (const uint32_t[]){__VA_ARGS__}, ARRAY_LEN(((const uint32_t[]){__VA_ARGS__})))
#define FILE_OF(ino, name, ...)                                                                    \
    add_file_of(ino, name, (const uint32_t[]){__VA_ARGS__},                                        \
                ARRAY_LEN(((const uint32_t[]){__VA_ARGS__})))
#define PACK_OF(pack, ...)                                                                         \
    add_pack(&f, pack, (const uint32_t[]){__VA_ARGS__},                                            \
             ARRAY_LEN(((const uint32_t[]){__VA_ARGS__})))

/* Rows of the database, written behind the view's back. */
void raw_put(const struct key *key, const void *value, size_t len);
void raw_delete(const struct key *key);

/* Pack of the chunk's place; 0: none. */
uint64_t remote_pack_of(struct view *view, uint32_t id);
bool is_published(uint32_t id); /* a chunk */
struct view_remote_pack remote_pack(uint64_t id);
/* As 0.2.0 did with a pack that was missing: its chunks have no place any more. */
void give_up_pack(uint64_t pack);

struct view_cut *cut_now(void);
/* Makes the run of the cut and the head with it, and closes the cut; returns how many chunks the
 * run calls missing. */
uint64_t publish(struct view_cut *cut, int64_t now);
/* The view follows to the newest head of `remote`, by all rows, or by those of its newest run. */
void follow_newest(struct view *view, bool by_all);
/* Another view, filled from the remote. */
struct view *open_peer(const char *suffix, char **ret_path);
void close_peer(struct view *peer, char *path);
/* Looks at such a view. */
void expect_adopted(void (*look)(struct view *view));
void expect_same_adopted(void);
