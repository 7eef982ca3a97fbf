// SPDX-License-Identifier: Apache-2.0
/* Options of a store, set when it is opened. */
#pragma once

#include "codec/encode.h"
#include "format/snapshot.h"

struct tier;

/* The head whose state is shown: by its number, the name of its snapshot, or the newest that is not
 * later than a time (ns since 1970). None of them: the newest. */
struct head_choice {
    uint64_t number;
    int64_t time;
    char name[SNAPSHOT_NAME_MAX];
};

static inline bool head_choice_is_made(const struct head_choice *choice)
{
    return choice->number || choice->time || choice->name[0];
}

/* The remote of a store. */
struct remote_options {
    const char *name; /* "s3://BUCKET/PREFIX" or "dir:/PATH", for messages; NULL: no remote */
    /* Opened by the caller; owned by the store from store_open() on, failed or not. */
    struct tier *tier;
    const char *holder;       /* "host:/path pid 123": how others see us */
    unsigned upload_threads;  /* packs on their way at once */
    unsigned fetch_threads;   /* ranges that are fetched at once, ahead of readers; 0: 16 */
    uint64_t upload_limit;    /* bytes/s, 0: none */
    int64_t clock_error_ns;   /* how far the wall clock may be off; 0: not told */
    int64_t lease_ns;         /* a holder that renewed nothing for this long may be replaced */
    int64_t gc_grace_ns;      /* objects that no head needs live on for this long */
    bool sets_keep;           /* from now on `keep` is the prefix's policy */
    struct head_keep keep;    /* states that stay for longer than that */
    int64_t rollback_keep_ns; /* and objects of heads that were given up, for this long */
    int64_t follow_ns;        /* read_only: how often to look for a newer head; 0: never */
    bool takeover;            /* replace a holder that lives */
    bool rollback;         /* go back to the newest head that is whole, where a later one is not */
    bool unfenced;         /* go on where exclusive creation does not work */
    bool nodes;            /* this mount is one of several that write the prefix */
    uint64_t replaces;     /* of nodes: a new store takes the place of this one; 0: of none */
    bool read_only;        /* publish nothing; show the state of the newest head */
    struct head_choice at; /* read_only: show that one, and go on to no other */
    void (*progress)(const char *line, void *arg); /* what an open waits for; may be NULL */
    bool (*cancelled)(void *arg); /* ends an open that waits with -ECANCELED; may be NULL */
    void *progress_arg;           /* of both */
};

/* Snapshots of a store without a remote. */
struct history_options {
    struct head_keep keep; /* which of them stay; none: none are taken */
    bool sets_keep;        /* it was given: those that are there, too */
    int64_t every_ns;      /* from one to the next, at least */
    uint64_t space_bytes;  /* that they alone may need; 0: a tenth of NVMe */
};

#define STORE_WRITEBACK_THREADS_MAX 64u

struct store_options {
    struct remote_options remote;
    const char *path; /* the store's directory; exists, empty or a store */
    /* a tmpfs; where others write there too, the stage is in a directory of its user's own */
    const char *stage_dir;
    bool read_only; /* no file is written: a copy of a mounted store may be looked at */
    uint64_t stage_bytes;
    uint64_t cap_bytes;         /* 0: all of the disk */
    unsigned writeback_threads; /* 1 to STORE_WRITEBACK_THREADS_MAX */
    uint64_t writeback_limit;   /* bytes/s, 0: none */
    int64_t writeback_delay_ns;
    enum reduce reduce;
    /* REDUCE_DENSE: a file with one of its series that is so much newer is made dense on NVMe */
    int64_t reduce_after_ns;
    bool history; /* earlier states can be browsed beside the newest one */
    struct history_options local_history;
    /* the mount outlived its daemon: inodes that are open, or known to the kernel, live on */
    bool adopting;
};
