// SPDX-License-Identifier: Apache-2.0
/* Client of a directory that may hang: a helper process makes the calls, and a call without an
 * answer is given up. Any thread; many calls at once. */
#pragma once

#include "tier/dir_wire.h"
#include "tier/tier.h"

struct dir_client;

/* `path`: absolute. Does not start the helper yet. */
struct dir_client *dir_client_new(const char *path, bool read_only, bool may_make);
/* Ends the helper. A helper that hangs in the directory is left behind; it holds no resource of
 * this process. */
void dir_client_free(struct dir_client *client);

/* All calls, also those in progress, return -ECANCELED. */
void dir_client_interrupt(struct dir_client *client);
/* The next call opens the directory again by its path; if it is another directory than before,
 * calls return -ESTALE. */
void dir_client_reopen(struct dir_client *client);
/* As dir_client_reopen(), but accepts any directory at the path. */
void dir_client_forget(struct dir_client *client);
/* Where the directory lies. -EAGAIN: not opened yet. */
CAIRN_MUST_CHECK int dir_client_place(struct dir_client *client, struct tier_place *ret);

struct dir_call {
    enum dir_verb verb;
    const char *name, *after; /* after: DIR_LIST; NULL: from the beginning */
    /* DIR_PUT: `len` bytes, borrowed until the call returns, even with an error */
    const void *content;
    /* DIR_PUT: replaces `content` if that is larger than DIR_INLINE_MAX; NULL: none */
    struct tier_source *source;
    void *into; /* DIR_GET: `len` bytes */
    char *text; /* DIR_RESOLVE: DIR_NAME_MAX bytes for the answer */
    uint64_t offset, len;
    /* DIR_LIST: returns 0 to continue, else the result of the call */
    int (*entry)(const struct tier_object *object, void *arg);
    bool (*given_up)(void *arg); /* polled while the call waits; true ends it. NULL: never */
    void *arg;
    int64_t patience_ns; /* time limit without any answer or progress */
};

/* Returns 0 or the -errno of the call; *ret (may be NULL) is the answer. -ETIMEDOUT: no answer or
 * progress within the limit; the call may still be carried out, but a put that had not named its
 * object yet will not do so. -ENODEV: the directory does not exist. -ECONNRESET: the helper has
 * died; the next call starts another. */
CAIRN_MUST_CHECK int dir_client_call(struct dir_client *client, const struct dir_call *call,
                                     struct dir_answer *ret);
