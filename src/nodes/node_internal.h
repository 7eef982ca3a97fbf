// SPDX-License-Identifier: Apache-2.0
/* Inside the node. */
#pragma once

#include <stdatomic.h>
#include <sys/timex.h>

#include "base/event.h"
#include "base/lock.h"
#include "base/vector.h"
#include "codec/hash.h"
#include "commit/node_clock.h"
#include "format/feed.h"
#include "format/head.h"
#include "nodes/node.h"
#include "nodes/roll.h"

/* The newest feed of the stay known to be in the remote. */
struct last_feed {
    uint64_t to, hi, head;
    uint8_t hash[HASH_LEN]; /* zeros: none */
};

struct feeder {
    struct cairn_mutex lock; /* LOCK_WAITERS: guards `stops` and `trouble` */
    pthread_cond_t changed;
    bool stops;
    char trouble[256];
    /* Uploader's thread only: */
    bool has_begun; /* `last` is known */
    bool is_over;   /* no more feeds are put: the trouble says why */
    struct last_feed last;
    int64_t put_at;          /* monotonic ns, when the last feed was put; 0: not by this daemon */
    struct bytes records;    /* of the next feed, with lengths and counts */
    uint32_t record_count;   /* of these records */
    uint64_t from, cut;      /* of the next feed; cut 0: not prepared */
    bool is_published;       /* its head exists */
    struct rounds_span span; /* rounds at which its cut was made */
    int64_t cut_at;          /* monotonic ns */
    int64_t carry_ns;        /* time from the last cut to its head */
};

/* The content of STORE/node. */
struct node_file {
    uint64_t stay;         /* 0: it has left */
    bool leaves;           /* its last feed may exist already, or appear later */
    uint64_t wanted;       /* a block being reserved; 0: none */
    struct numbers blocks; /* ascending; the first one is the number of the node */
    bool replaces;         /* it replaces another store, and has not continued from there yet */
    uint64_t generation;   /* of the union, to which the store's state belongs */
    uint64_t used;         /* epochs up to it were used by data that was set aside */
    /* by the medium's clock, ns: nothing is acknowledged before; 0: no limit */
    int64_t opens;
};

/* The kernel's data about the wall clock, read once a second. */
struct kernel_clock {
    int64_t max_error; /* ns, at the last check; 0: none */
    int64_t base;      /* the last value set by a time daemon */
    int64_t based_at;  /* CLOCK_BOOTTIME, ns, when that was seen */
};

/* The thread of clock_bounds.c. */
struct timekeeper {
    struct node_clock *clock;
    pthread_t thread;
    bool is_started;
    struct event event; /* signalled when it must end */
    _Atomic bool stops;
    /* Only for the thread: */
    struct kernel_clock kernel;
    struct node_clock_status said; /* the last status; the part of it that was logged */
    uint64_t era;
    int64_t vouch_at;    /* CLOCK_BOOTTIME, ns */
    int64_t lacks_since; /* also CLOCK_BOOTTIME: since when there is no bound; 0: there is one */
    bool has_said_lack;
};

/* The thread of look.c. */
struct looker {
    struct prefix prefix; /* the common prefix; its newest head is from the last check */
    pthread_t thread;
    bool is_started;
    struct event event; /* signalled when it must end */
    _Atomic bool stops, is_behind, is_open;
    _Atomic uint64_t next_generation; /* of the union, if the store is behind it */
    _Atomic bool may_tell;            /* a check found that the stay has not ended */
    int64_t opens;                    /* CLOCK_BOOTTIME ns; 0: not known yet */
    uint64_t era;                     /* of the clock, at the last check; the thread's */
    int64_t heard_at;                 /* monotonic: when the heartbeat is due */
    struct writer_entry entry;        /* written again as heartbeat */
    void (*on_open)(void *arg, int64_t opens);
    void *arg;
    char why[128];    /* why the last check failed; the thread's */
    int64_t aside_at; /* monotonic: when to measure STORE/aside again */
    _Atomic uint64_t aside_bytes, aside_only_there_bytes;
};

/* roll.c */
struct roll_call {
    struct cairn_mutex lock;   /* a leaf; guards the next fields */
    pthread_t thread;          /* of the last look */
    bool is_started;           /* it must be joined */
    struct roll_before before; /* of that look */
    struct roll last;
};

struct hearer {
    void (*fn)(void *arg);
    void *arg;
};

/* Notifications of union heads. */
struct news {
    struct cairn_mutex lock; /* a leaf */
    pthread_cond_t changed;
    struct hearer hearers[NODE_HEARERS];
    unsigned calls;            /* in progress */
    _Atomic int64_t active_at; /* monotonic ns: last activity of any node; 0: not known */
    _Atomic uint32_t nodes;    /* that write, as the newest head says */
    uint64_t run; /* the newest run of the newest head; 0: not known. Merger's thread only */
};

struct node {
    struct commit *commit;
    struct local *local;
    struct remote_options options;
    struct tier *own;
    struct prefix common;
    struct merger *merger; /* NULL: not started */
    struct node_file file;
    uint8_t store[16];              /* the store's id, set before the superblock exists */
    struct cairn_mutex blocks_lock; /* a leaf: guards file.blocks while other threads may read it */
    int64_t reserve_at;             /* monotonic ns: no earlier */
    struct feeder feeder;
    struct roll_call roll;
    struct news news;
    struct looker looker;
    struct timekeeper timekeeper;
    _Atomic uint64_t told_round;
    _Atomic bool may_leave;
    int64_t opened_at; /* monotonic ns */
    bool goes_on;      /* the stay of an earlier daemon */
    bool is_new;       /* the store joins for the first time */
    /* operations acknowledged by the earlier daemon may be lost with its stage */
    bool is_lost;
};

/* Ends early, with false, if the store stops. */
bool node_pause(void *node, int64_t ms);
/* -ENOENT: the file does not exist. */
CAIRN_MUST_CHECK int node_file_read(struct node *node);
CAIRN_MUST_CHECK int node_file_write(const struct node *node);
/* Completes the leaving of a node that was about to leave: afterwards its file has no stay. */
CAIRN_MUST_CHECK int node_end_stay(struct node *node);
/* As node_take_place(), without options.replaces: chooses a node that is over, if this store should
 * take its place; else does nothing. -EUSERS: it should, and no node is over. */
CAIRN_MUST_CHECK int node_choose_place(struct node *node, char **ret_text);
/* -ESTALE: concurrently joining nodes with lower numbers have used up the room in heads. */
CAIRN_MUST_CHECK int node_check_room(struct node *node);
/* Gives up the reserved numbers, with which nothing was numbered: the store looks for another
 * place. */
CAIRN_MUST_CHECK int node_give_up_place(struct node *node);
/* Gives a new store the identity of options.replaces, in memory only: the file is not written
 * yet. */
CAIRN_MUST_CHECK int node_take_place(struct node *node, char **ret_text);
/* -ESTALE: another store has the number of this node. */
CAIRN_MUST_CHECK int node_check_place(struct node *node, char **ret_text);
/* -EBUSY: a copy of this store is the same node, and its last stay is not over. */
CAIRN_MUST_CHECK int node_check_copies(struct node *node, char **ret_text);
/* convert.c: the prefix of one writer becomes one of several nodes. Its state becomes that of this
 * node, which has left. */
#define CONVERTED_NODE NODE_BLOCK
CAIRN_MUST_CHECK int node_convert(struct node *node, char **ret_text);
/* CONVERTED_NODE, if the prefix was converted and no store has taken the place yet; else 0. */
CAIRN_MUST_CHECK int node_converted_place(struct node *node, uint64_t *ret_place);
void roll_call_init(struct node *node);
/* Waits for the end of a roll call; the tier is interrupted, or answers. */
void roll_call_done(struct node *node);
void news_init(struct news *news);
void news_done(struct news *news);
/* Notes activity of this node that others will see. */
void node_note_work(struct node *node);
/* Was any node active in the last minute, as far as this one knows? Where many write: this one, in
 * the last seconds. */
bool node_is_active(void *node);
/* Handles a newer union head reported by a merger. */
void node_note_head(const struct head *head, void *node);
/* --- clock_bounds.c */
void timekeeper_init(struct node *node);
CAIRN_MUST_CHECK int timekeeper_start(struct node *node);
void timekeeper_done(struct node *node);
/* A time that has certainly passed on all nodes, ns since 1970; negative: not known. */
int64_t node_time_passed(void *node);
/* The time, as well as it is known. */
int64_t node_time(struct node *node);
/* `newest`: the newest round reported by any node. If it is in the future, no round up to it is
 * reported. */
void node_skip_rounds_told(struct node *node, uint64_t newest);
/* Fills the feed's fields about the clock, and about its last round; NULL: no round. */
void node_describe_clock(const struct node *node, const struct rounds_span *span,
                         struct feed *feed);
/* Why no rounds are reported; "": they are. Any thread. */
void node_clock_trouble(struct node *node, char *buf, size_t size);
void looker_init(struct node *node);
void looker_done(struct node *node);
/* `entry`: the content of writers/NUMBER, which this daemon writes again and again. */
CAIRN_MUST_CHECK int looker_start(struct node *node, const struct writer_entry *entry);
void looker_stop(struct node *node);
/* Reads the newest readable head into prefix->head. */
CAIRN_MUST_CHECK int looker_read_newest(struct prefix *prefix);
/* Has another node, or a person, ended the stay? */
CAIRN_MUST_CHECK int looker_find_end(struct prefix *prefix, uint64_t stay, bool *ret_ended);
/* Reserves numbers; if the stay is over, for a new stay. */
CAIRN_MUST_CHECK int node_begin_stay(struct node *node, char **ret_text);
void feeder_init(struct feeder *feeder);
void feeder_done(struct feeder *feeder);
