// SPDX-License-Identifier: Apache-2.0
/* A prefix in a directory, with nodes that write it by feeds alone, at rounds that a test makes
 * pass, and mergers. The medium's clock is that of the test (stopped_time.h). */
#pragma once

#include "format/feed.h"
#include "nodes/merger.h"
#include "peers.h"

#define ROUND_NS (2ll * 1000000000)
#define CLOCK_ERROR_NS 50000000ll
#define FIRST_ROUND 1000u

enum { WORLD_NODES = 4, WORLD_ROUNDS = 400, WORLD_NUMBERS = 256 };

struct world_node {
    struct world *world;
    struct peer peer;             /* its epoch is that of the stay */
    uint32_t node;                /* number */
    struct bytes pending;         /* operations that it did not tell */
    uint64_t noted[WORLD_ROUNDS]; /* its newest operation at each round; 0: it was not there */
    uint64_t from, hi;            /* told up to this operation, and round */
    uint8_t hash[32];             /* of its newest feed */
    uint64_t joined;              /* how often */
    bool is_there, has_left;
    bool is_dead;                     /* what it did not tell is nowhere */
    bool is_still;                    /* it went back, and does nothing more */
    uint64_t generation;              /* in which it tells */
    void (*forge)(struct feed *feed); /* its next feed says something else */
};

struct world_op {
    int64_t time;
    uint64_t stay, seq;
    uint32_t node;
    uint8_t *bytes;
    size_t len;
};

struct world {
    char path[64];
    struct tier *tier; /* of the nodes, and below that of the mergers */
    struct remote_options remote;
    struct superblock sb;
    uint64_t round;
    int64_t time;                   /* of the newest operation */
    uint64_t numbers;               /* of writers/, that were given out */
    uint32_t owners[WORLD_NUMBERS]; /* which node has each */
    struct world_node nodes[WORLD_NODES];
    VECTOR(struct world_op) ops;
    uint64_t checked;                                    /* heads */
    bool keeps_nothing;                                  /* mergers read each feed again */
    void (*on_head)(const struct head *head, void *arg); /* of mergers that are made from now on */
};

/* What the mergers' tier does besides. */
struct odd {
    int64_t ahead;                  /* its clock is wrong */
    int lost_answer;                /* 0, or what is said of the next head, which is created */
    bool fails_heads;               /* none is created */
    void (*before_head)(void *arg); /* called once, right before a head is created */
    void (*before_sync)(void *arg); /* the same, before the next sync() */
    void *arg;
    const char *hidden; /* lists lack this object */
    int64_t slow_ns;    /* each read of a feed takes so much longer */
};
extern struct odd odd;

void world_open(struct world *w);
void world_close(struct world *w);

/* The store of node i reserves a number, and tells nothing yet. */
void world_join(struct world *w, unsigned i);
/* Operations of nodes, at random. */
void world_work(struct world *w, struct seeded *seeded, unsigned steps);
/* The next round comes. */
void world_tick(struct world *w);
/* Node i tells what it did up to a round, which passed. */
void world_tell(struct world *w, unsigned i, uint64_t round);
/* The next round comes, and all nodes tell what they did up to it. */
void world_tell_round(struct world *w);
/* Node i tells the rest, and that it leaves. */
void world_leave(struct world *w, unsigned i);

/* Node i is lost with its machine. */
void world_die(struct world *w, unsigned i);
/* Node i goes back to what the head has of it, and tells in the head's generation. */
void world_set_aside(struct world *w, unsigned i, const struct head *head);

/* A time at which the newest round has passed for sure. */
int64_t world_now(const struct world *w);
/* A merger of a store of its own. */
struct merger *world_merger(struct world *w, unsigned store, int64_t lease_ns, int64_t grace_ns);
/* One turn, now; it must not fail, and no operation be one that no state allows. */
void world_turn(struct world *w, struct merger *merger);

uint64_t world_newest_head(const struct world *w);
void world_read_head(const struct world *w, uint64_t number, struct head *ret);
/* All heads that came since: each is the state that all nodes had at its round. */
void world_check(struct world *w);
/* The same where a feed is lost that a row names. */
void world_check_but_totals(struct world *w);
/* The file was written now. */
void world_stamp(const char *path);
/* Of an object; to be freed. */
char *world_path(const struct world *w, const char *format, ...) CAIRN_PRINTF(2, 3);
bool world_has(const struct world *w, const char *object);
size_t world_count(const struct world *w, const char *directory);
