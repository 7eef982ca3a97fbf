// SPDX-License-Identifier: Apache-2.0
/* Reading a store or a remote that is not mounted: no stage, no threads of its own, nothing is
 * written but a view. The namespace is read with store_ns(); content is read here, in groups of
 * adjacent chunks, by as many threads as the caller has. Errors are negative errno; -EBADMSG and
 * -EUCLEAN: damage; -ENOENT: the bytes exist nowhere. */
#pragma once

#include "base/vector.h"
#include "format/chunk.h"
#include "store/store.h"

struct view_remote_pack;

/* With options->remote: opens the state of its newest head, in options->path, an empty private
 * directory that the caller removes later. Without: the durable state of the store options->path,
 * whose STORE/lock the caller holds; a stage is left as it is. With options->remote.at: that
 * snapshot of the store, which may be mounted. On failure *ret_text is the reason in one line
 * (caller frees). */
CAIRN_MUST_CHECK int reader_open(const struct store_options *options, struct store **ret,
                                 char **ret_text);
/* With options->remote: returns the number of the head that is shown; for a snapshot, its own. */
uint64_t reader_shown_head(const struct store *store);
void reader_close(struct store *store);

/* Returns why the newest published state is not shown; NULL: it is, as far as is known. Valid as
 * long as the store. */
const char *reader_shown_instead(const struct store *store);

/* Returns the directory of the stage that a dead daemon of this store left, possibly with data that
 * exists nowhere else; NULL: none. Caller frees. */
char *reader_left_stage(const struct store *store);

/* Bytes of a file that cannot be read, now or later. */
struct reader_loss {
    uint64_t offset, length; /* in the file */
    struct chunk_name chunk, base;
    uint64_t pack; /* the pack that is damaged; 0: the chunk, or its base, has no place */
    int error;     /* of that pack, or of its bytes */
    bool is_remote;
    bool has_no_remote;   /* no remote is used, which is the reason */
    bool is_through_base; /* a chunk by which it is stored cannot be read: `base` */
};
/* Returns "packs/00... is missing"; caller frees. */
char *reader_describe_loss(const struct reader_loss *loss);

/* Results of the callbacks: 0 to continue; negative ends the call, which returns it. */
struct reader_calls {
    int (*give)(uint64_t offset, const void *bytes, size_t length, void *arg);
    int (*lost)(const struct reader_loss *loss, void *arg);
    void *arg;
};

/* Content of a file that is read at once: adjacent chunks of a pack, or bytes that are in memory
 * already. */
struct reader_group;

/* Calls `fn` with the groups of a file, in order, and `lost` for chunks without a place; holes are
 * in no group. `fn` owns the group. */
CAIRN_MUST_CHECK int reader_plan(struct store *store, uint64_t ino,
                                 int (*fn)(struct reader_group *group, void *arg),
                                 const struct reader_calls *calls);
void reader_group_free(struct reader_group *group);

/* As reader_plan(), for chunks of a pack in the remote: "offsets in the file" are those in the
 * pack. */
DEFINE_VECTOR(reader_entries, struct chunk_entry);
CAIRN_MUST_CHECK int reader_plan_pack(struct store *store, const struct reader_entries *entries,
                                      int (*fn)(struct reader_group *group, void *arg),
                                      const struct reader_calls *calls);

/* Reads and verifies a group: each of its parts is passed to one of the callbacks, as read or as
 * lost. Negative: it cannot be read now. Any thread; blocks. */
CAIRN_MUST_CHECK int reader_fetch(struct store *store, const struct reader_group *group,
                                  const struct reader_calls *calls);

/* --- presence.c ------------------------------------------------------------------------------- */

/* A cache of packs: whether each exists, with its length. */
struct reader_packs;
struct reader_packs *reader_packs_new(struct store *store);
void reader_packs_free(struct reader_packs *packs); /* NULL: no effect */
/* Determines whether all packs exist that the file needs. Packs that are not known yet are looked
 * up, none is read. Negative: not known now. Any thread; blocks. */
CAIRN_MUST_CHECK int reader_packs_have(struct reader_packs *packs, uint64_t ino, bool *ret);

/* --- differ.c --------------------------------------------------------------------------------- */

/* False: the two stores name chunks by different keys, so that files cannot be compared. */
bool reader_can_differ(const struct store *one, const struct store *other);

struct reader_file {
    struct store *store;
    uint64_t ino;
};
struct reader_range {
    uint64_t offset, length;
};
/* Calls `fn` with each range, ascending, in which the two regular files differ, or that only one of
 * them has: according to the names of chunks, so that equal bytes that were split into other
 * chunks, or that two nodes stored, count as different. No content is read. `fn` returns 0 to
 * continue; negative ends the call, which returns it. -EREMOTE: another node has the content. */
CAIRN_MUST_CHECK int reader_differ(const struct reader_file *one, const struct reader_file *other,
                                   int (*fn)(const struct reader_range *range, void *arg),
                                   void *arg);

/* --- entries.c -------------------------------------------------------------------------------- */

/* Returns whether the error is damage, which another read will not change. */
bool reader_is_damage(int error);
/* -EUCLEAN: the lengths cannot be right. */
CAIRN_MUST_CHECK int reader_check_lengths(const struct chunk_entry *entry);
/* Replaces *ret by the chunks that are needed, in order. The caller frees the vector, also after an
 * error. */
CAIRN_MUST_CHECK int reader_pack_chunks(struct store *store, uint64_t pack,
                                        struct reader_entries *ret);
/* Adds a chunk to `entries` if it is needed. -EUCLEAN: its lengths cannot be right. */
CAIRN_MUST_CHECK int reader_add_entry(const struct chunk_entry *entry, bool is_needed,
                                      void *entries);
void reader_sort_entries(struct reader_entries *entries); /* by place */
/* Reads the index of a pack in the remote. -EUCLEAN: the view has other content for it. */
CAIRN_MUST_CHECK int reader_check_index(struct store *store, const struct view_remote_pack *pack);
