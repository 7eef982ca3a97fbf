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

/* The newest feed of the stay that landed. */
struct last_feed {
    uint64_t to, hi, head;
    uint8_t hash[HASH_LEN]; /* zeros: there is none */
};

struct feeder {
    struct cairn_mutex lock; /* LOCK_WAITERS: of `stops` and `trouble` */
    pthread_cond_t changed;
    bool stops;
    char trouble[256];
    /* The uploader's thread alone: */
    bool has_begun; /* `last` is known */
    bool is_over;   /* nothing more is told: the trouble says why */
    struct last_feed last;
    int64_t put_at;          /* monotonic ns, when the last feed was put; 0: none by this daemon */
    struct bytes records;    /* of the feed that is next, with lengths and counts */
    uint32_t record_count;   /* of these */
    uint64_t from, cut;      /* of the feed that is next; cut 0: it is not prepared */
    bool is_published;       /* its head is there */
    struct rounds_span span; /* at which its cut was made */
    int64_t cut_at;          /* monotonic ns */
    int64_t carry_ns;        /* from the last cut to its head */
};

/* STORE/node. */
struct node_file {
    uint64_t stay;         /* 0: it left */
    bool leaves;           /* its last feed may be there already, or come to be there */
    uint64_t wanted;       /* a block that is being reserved; 0: none */
    struct numbers blocks; /* ascending; the first is the number of the node */
    bool replaces;         /* it takes the place of another store, and has not gone on from there */
    uint64_t generation;   /* of the union, that the store's state belongs to */
    uint64_t used;         /* epochs up to it were used by what was set aside */
    int64_t opens;         /* by the medium's clock, ns: nothing is acknowledged before; 0: any */
};

/* What the kernel says of the wall clock, from one second to the next. */
struct kernel_clock {
    int64_t max_error; /* ns, as of the last look; 0: none */
    int64_t base;      /* what a time daemon said of it last */
    int64_t based_at;  /* CLOCK_BOOTTIME, ns, when that was seen */
};

/* The thread of clock_bounds.c. */
struct timekeeper {
    struct node_clock *clock;
    pthread_t thread;
    bool is_started;
    struct event event; /* it is to end */
    _Atomic bool stops;
    /* The thread's: */
    struct kernel_clock kernel;
    struct node_clock_status said; /* the last status; of it, what the log has */
    uint64_t era;
    int64_t vouch_at;    /* CLOCK_BOOTTIME, ns */
    int64_t lacks_since; /* the same: there is no bound; 0: there is */
    bool has_said_lack;
};

/* The thread of look.c. */
struct looker {
    struct prefix prefix; /* the common one; its newest head is that of the last look */
    pthread_t thread;
    bool is_started;
    struct event event; /* it is to end */
    _Atomic bool stops, is_behind, is_open;
    _Atomic uint64_t next_generation; /* of the union that it is behind */
    _Atomic bool may_tell;            /* a look found the stay not ended */
    int64_t opens;                    /* CLOCK_BOOTTIME ns; 0: not known yet */
    uint64_t era;                     /* of the clock, at the last look; the thread's */
    int64_t heard_at;                 /* monotonic: when the heartbeat is due */
    struct writer_entry entry;        /* that is written again */
    void (*on_open)(void *arg, int64_t opens);
    void *arg;
    char why[128];    /* the last look failed; the thread's */
    int64_t aside_at; /* monotonic: when STORE/aside is measured again */
    _Atomic uint64_t aside_bytes, aside_only_there_bytes;
};

/* roll.c */
struct roll_call {
    struct cairn_mutex lock;   /* a leaf; guards: */
    pthread_t thread;          /* of the last look */
    bool is_started;           /* it is to be joined */
    struct roll_before before; /* of that look */
    struct roll last;
};

struct hearer {
    void (*fn)(void *arg);
    void *arg;
};

/* News of the union. */
struct news {
    struct cairn_mutex lock; /* a leaf */
    pthread_cond_t changed;
    struct hearer hearers[NODE_HEARERS];
    unsigned calls;            /* under way */
    _Atomic int64_t active_at; /* monotonic ns: a node did something; 0: not known */
    uint64_t run; /* the newest of the newest head; 0: not known. The merger's thread alone */
};

struct node {
    struct commit *commit;
    struct local *local;
    struct remote_options options;
    struct tier *own;
    struct prefix common;
    struct merger *merger; /* NULL: it is not started */
    struct node_file file;
    uint8_t store[16];              /* the store's id, which it has before it has a superblock */
    struct cairn_mutex blocks_lock; /* a leaf: of file.blocks, while others may look */
    int64_t reserve_at;             /* monotonic ns: not before */
    struct feeder feeder;
    struct roll_call roll;
    struct news news;
    struct looker looker;
    struct timekeeper timekeeper;
    _Atomic uint64_t told_round;
    _Atomic bool may_leave;
    int64_t opened_at; /* monotonic ns */
    bool goes_on;      /* with a stay of a daemon before */
    bool is_new;       /* the store joins for the first time */
    bool is_lost;      /* what the daemon before acknowledged may be lost with its stage */
};

/* A wait in the common prefix ended early: the store stops. */
bool node_pause(void *node, int64_t ms);
/* -ENOENT: there is none. */
CAIRN_MUST_CHECK int node_file_read(struct node *node);
CAIRN_MUST_CHECK int node_file_write(const struct node *node);
/* A node that was leaving leaves for sure: then its file has no stay. */
CAIRN_MUST_CHECK int node_end_stay(struct node *node);
/* The same without options.replaces, of a node that is over, where it should take that one's place;
 * else nothing. -EUSERS: it should, and none is over. */
CAIRN_MUST_CHECK int node_choose_place(struct node *node, char **ret_text);
/* -ESTALE: nodes that joined at the same time, with lower numbers, are as many as a head takes. */
CAIRN_MUST_CHECK int node_check_room(struct node *node);
/* Nothing was ever numbered with what the store reserved: it looks for another place. */
CAIRN_MUST_CHECK int node_give_up_place(struct node *node);
/* A new store becomes options.replaces, as far as its file goes: it is not written yet. */
CAIRN_MUST_CHECK int node_take_place(struct node *node, char **ret_text);
/* -ESTALE: another store has the number of this node. */
CAIRN_MUST_CHECK int node_check_place(struct node *node, char **ret_text);
void roll_call_init(struct node *node);
/* Waits for the end of a look; the tier is interrupted, or answers. */
void roll_call_done(struct node *node);
void news_init(struct news *news);
void news_done(struct news *news);
/* This node did something that others are told of. */
void node_note_work(struct node *node);
/* Did any node do something in the last minute, as far as this one knows? */
bool node_is_active(void *node);
/* There is a newer union head: as a merger tells it. */
void node_note_head(const struct head *head, void *node);
/* --- clock_bounds.c */
void timekeeper_init(struct node *node);
CAIRN_MUST_CHECK int timekeeper_start(struct node *node);
void timekeeper_done(struct node *node);
/* A time that has passed for sure on all nodes, ns since 1970; negative: not known. */
int64_t node_time_passed(void *node);
/* The time, as good as it is known. */
int64_t node_time(struct node *node);
/* The newest round that any node told of: if it is to come, none is told up to it. */
void node_skip_rounds_told(struct node *node, uint64_t newest);
/* What a feed says of the clock, and of the round that it ends at; NULL: of none. */
void node_describe_clock(const struct node *node, const struct rounds_span *span,
                         struct feed *feed);
/* Why no rounds are told; "": they are. Any thread. */
void node_clock_trouble(struct node *node, char *buf, size_t size);
void looker_init(struct node *node);
void looker_done(struct node *node);
/* `entry`: what this daemon says in writers/NUMBER, again and again. */
CAIRN_MUST_CHECK int looker_start(struct node *node, const struct writer_entry *entry);
void looker_stop(struct node *node);
/* prefix->head becomes the newest head that can be read. */
CAIRN_MUST_CHECK int looker_read_newest(struct prefix *prefix);
/* Did another node, or a person, end the stay? */
CAIRN_MUST_CHECK int looker_find_end(struct prefix *prefix, uint64_t stay, bool *ret_ended);
/* Reserves numbers: where the stay is over, of the next one. */
CAIRN_MUST_CHECK int node_begin_stay(struct node *node, char **ret_text);
void feeder_init(struct feeder *feeder);
void feeder_done(struct feeder *feeder);
