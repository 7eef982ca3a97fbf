// SPDX-License-Identifier: Apache-2.0
/* Options of a store, set when it is opened. */
#pragma once

#include "codec/encode.h"
#include "format/snapshot.h"

struct tier;

/* Which head's state is shown: by its number, by the name of its snapshot, or the newest one not
 * later than a time (ns since 1970). All unset: the newest. */
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
    /* opened by the caller; owned by the store from store_open() on, even if that fails */
    struct tier *tier;
    const char *holder;      /* "host:/path pid 123": how others see this node */
    unsigned upload_threads; /* packs uploaded at once */
    unsigned fetch_threads;  /* ranges fetched ahead of readers at once; 0: 16 */
    uint64_t upload_limit;   /* bytes/s, 0: none */
    int64_t clock_error_ns;  /* possible error of the wall clock; 0: not stated */
    /* a holder that has not renewed its lease for this long may be replaced */
    int64_t lease_ns;
    int64_t gc_grace_ns;      /* objects that no head needs are deleted after this time */
    bool sets_keep;           /* `keep` becomes the prefix's policy */
    struct head_keep keep;    /* states that stay beyond that time */
    int64_t rollback_keep_ns; /* objects of heads discarded by a rollback also stay for this time */
    int64_t follow_ns;        /* read_only: interval of checks for a newer head; 0: never */
    bool takeover;            /* replace a holder that is alive */
    bool rollback;            /* if a later head is not whole, go back to the newest head that is */
    bool unfenced;            /* continue if exclusive creation does not work */
    bool nodes;               /* this mount is one of several that write the prefix */
    bool converts;            /* of nodes: a prefix of one writer becomes one of several */
    uint64_t replaces;        /* with `nodes`: the node that this new store replaces; 0: none */
    bool read_only;           /* publish nothing; show the state of the newest head */
    struct head_choice at;    /* read_only: show that head, and do not follow newer ones */
    void (*progress)(const char *line, void *arg); /* reports why an open blocks; may be NULL */
    bool (*cancelled)(void *arg); /* true ends a blocked open with -ECANCELED; may be NULL */
    void *progress_arg;           /* of both callbacks */
};

/* Snapshots of a store without a remote. */
struct history_options {
    struct head_keep keep; /* which of them stay; none: no snapshots are taken */
    bool sets_keep;        /* `keep` was given: it applies to existing snapshots, too */
    int64_t every_ns;      /* least interval between two */
    uint64_t space_bytes;  /* limit for space that only snapshots need; 0: a tenth of NVMe */
};

#define STORE_WRITEBACK_THREADS_MAX 64u

struct store_options {
    struct remote_options remote;
    const char *path; /* the store's directory; exists, empty or a store */
    /* a tmpfs; if other users can write there too, the stage is in a directory of its own user */
    const char *stage_dir;
    bool read_only; /* no file is written: for looking at a copy of a mounted store */
    uint64_t stage_bytes;
    uint64_t cap_bytes;         /* 0: the whole disk */
    unsigned writeback_threads; /* 1 to STORE_WRITEBACK_THREADS_MAX */
    uint64_t writeback_limit;   /* bytes/s, 0: none */
    int64_t writeback_delay_ns;
    enum reduce reduce;
    /* REDUCE_DENSE: an older file is made dense on NVMe once a file of its series is newer by so
     * much */
    int64_t reduce_after_ns;
    bool history; /* earlier states can be browsed beside the newest one */
    struct history_options local_history;
    /* the mount outlived its daemon: open inodes, and those known to the kernel, live on */
    bool adopting;
};
