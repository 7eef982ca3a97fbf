// SPDX-License-Identifier: Apache-2.0
/* What is searched: bounds, variants of the protocol, and bugs planted in it. All are set once, by
 * the command line, before the search. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct bounds {
    unsigned nodes;
    unsigned rounds; /* K */
    unsigned crashes;
    unsigned zombies; /* verdicts on sessions that live: these were paused or cut off, or the
                         verdict is wrong */
    unsigned joins;
    unsigned leaves;   /* stays that end by themselves */
    unsigned restarts; /* daemons that die, and go on with the same stay */
};

struct rules {
    /* Variants: all hold. */
    bool marks; /* idle sessions hold nobody back; else each counts from joining to leaving */
    bool old_marks_hold; /* a mark (a session) of an older generation holds the cut back, too */
    bool start_skew;     /* a job may end by itself; the next one starts at different times */
    bool no_deletions;
    bool two_mergers;
    bool entries_go; /* who has left deletes writers/EPOCH */
    bool keep_all;   /* values that nothing reads any more tell states apart */
    /* Planted bugs. */
    bool no_lease; /* a writer numbers however old its last look is */
    bool settle; /* instead of the lease: a process starts only where its node is open and not ended
                  */
    bool no_claim;        /* ended/EPOCH is not put before sessions are listed */
    bool claims_unseen;   /* look() reads heads only: mark() alone looks for ended/EPOCH */
    bool no_mark;         /* an operation does not wait until the mark has landed */
    bool no_window;       /* clocks are wrong by up to a round */
    bool no_eio;          /* processes from before an END go on */
    bool no_rendezvous;   /* a job's processes act before all of them have started */
    bool no_second_look;  /* a joiner does not look at the head again */
    bool old_feeds_count; /* feeds of an ended generation are merged */
    bool dead_left_out;   /* a dead session holds no cut back, and ends no generation */
    bool ended_dropped;   /* unmerged feeds of an ended session are not merged */
    bool lost_goes_on;    /* a session that lost its stage goes on in its epoch */
    bool feeds_first;     /* the merger lists feeds before sessions and marks */
    bool late_clock;      /* the merger reads the clock after it has listed sessions */
    bool leave_early;     /* LEAVES while an operation is numbered and not published */
    bool numbers_after_leave;
    bool join_unlisted; /* a stay numbers before writers/NUMBER is there */
    bool leave_unseen;  /* the next daemon goes on with a stay whose LEAVES is there, or lands later
                         */
    bool late_delete;   /* marks are named by EPOCH alone: a DELETE that lands late removes the next
                           one */
};

extern struct bounds bounds;
extern struct rules rules;

/* False: there is no such option. */
bool rules_set(const char *name);
/* False: there is no such bound. */
bool bounds_set(const char *name, unsigned value);
void rules_print(FILE *file);

/* Sessions that there can be. */
unsigned rules_sessions(void);
/* Is ended/EPOCH put before sessions are listed? */
bool rules_claim(void);
