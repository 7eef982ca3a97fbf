// SPDX-License-Identifier: Apache-2.0
/* Calls into a directory that may hang, made by a helper process and given up when nothing comes
 * back. Any thread; many at once. */
#pragma once

#include "tier/dir_wire.h"
#include "tier/tier.h"

struct dir_client;

/* `path`: absolute. Starts nothing yet. */
struct dir_client *dir_client_new(const char *path, bool read_only, bool may_make);
/* Ends the helper; one that hangs in the directory is left behind, and holds nothing of ours. */
void dir_client_free(struct dir_client *client);

/* All calls, those under way too: -ECANCELED. */
void dir_client_interrupt(struct dir_client *client);
/* The directory is to be opened by its path anew, and must be the same as before: else -ESTALE. */
void dir_client_reopen(struct dir_client *client);
/* The same, whatever is there now. */
void dir_client_forget(struct dir_client *client);
/* Where it lies. -EAGAIN: it was not opened yet. */
CAIRN_MUST_CHECK int dir_client_place(struct dir_client *client, struct tier_place *ret);

struct dir_call {
    enum dir_verb verb;
    const char *name, *after; /* after: DIR_LIST; NULL: from the beginning */
    const void *content; /* DIR_PUT: `len` bytes, borrowed until the return, whatever that is */
    /* DIR_PUT: in place of `content`, of more than DIR_INLINE_MAX; NULL: none */
    struct tier_source *source;
    void *into; /* DIR_GET: `len` bytes */
    char *text; /* DIR_RESOLVE: DIR_NAME_MAX bytes for what is answered */
    uint64_t offset, len;
    /* DIR_LIST: 0 to go on, else what is returned */
    int (*entry)(const struct tier_object *object, void *arg);
    bool (*given_up)(void *arg); /* asked now and then while it waits; NULL: never */
    void *arg;
    int64_t patience_ns; /* without any answer or progress */
};

/* 0 or -errno of the call; *ret (may be NULL) what was answered. -ETIMEDOUT: nothing came back for
 * so long, and it may still be carried out, but no put gets its name any more that was not given it
 * yet. -ENODEV: there is no such directory. -ECONNRESET: the helper has died, and the next call
 * starts another. */
CAIRN_MUST_CHECK int dir_client_call(struct dir_client *client, const struct dir_call *call,
                                     struct dir_answer *ret);
