// SPDX-License-Identifier: Apache-2.0
/* Inside the remote: its runs, of which each lies there twice, and heads that lost one. */
#pragma once

#include <stdatomic.h>

#include "prefix/prefix.h"

struct remote;
struct store;
struct view_cut;

/* One of the objects is missing or damaged. */
struct bad_run {
    uint64_t id;
    enum run_place place;
};

/* State of a remote's runs. The opening thread's, then the uploader's, but for the atomic. */
struct remote_runs {
    struct bad_run bad[HEAD_RUNS_MAX]; /* to be put again */
    size_t bad_count;
    _Atomic bool are_due; /* objects of the newest head's runs may be missing */
    int64_t due_at;       /* monotonic ns: not before */
    _Atomic enum run_scrub { RUN_SCRUB_NONE, RUN_SCRUB_ASKED, RUN_SCRUB_DONE } scrub;
    _Atomic uint64_t scrub_found, scrub_healed; /* objects */
    uint64_t unreadable_head; /* the last of which a run was found lost, and said so */
    char *shown_instead;      /* why it is not the newest state; NULL: it is, as far as is known */
};

/* --- runs.c ----------------------------------------------------------------------------------- */

/* The rows of the cut as a run: a file in STORE/runs, and in the remote. It may be merged with runs
 * of `head` that are no larger: head->runs becomes the new list. *ret_is_news false: the cut says
 * nothing that the head does not say already. */
CAIRN_MUST_CHECK int runs_publish(struct remote *remote, struct view_cut *cut, struct head *head,
                                  bool *ret_is_news, uint64_t *ret_missing);
/* Between two rounds: puts again what is missing or damaged of the newest head's runs, if that may
 * be. Trouble with it is said, and tried again. */
void runs_tick(struct remote *remote);
/* Puts it again. Run i of the newest head is known to be there in a place if bit i of seen[place]
 * says so; the others are looked for. */
CAIRN_MUST_CHECK int runs_keep(struct remote *remote, const uint64_t seen[RUN_PLACES]);

/* --- check.c ---------------------------------------------------------------------------------- */

/* Is the object there, in the length of the run, and its content, if that is read?
 * prefix_object_is_lost() of the result: no. */
CAIRN_MUST_CHECK int run_check_at(struct remote *remote, const struct run_info *info,
                                  enum run_place place, bool reads_content);

/* --- run_fetch.c ------------------------------------------------------------------------------ */

/* Makes sure that STORE/runs has all runs of the head, whole and verified. `remote` NULL: from the
 * disk alone. prefix_object_is_lost() of the result: the remote does not have one of them any more,
 * in neither place; cause_text() names it. */
CAIRN_MUST_CHECK int runs_fetch(struct store *store, struct remote *remote,
                                const struct head *head);
/* The same; *ret_run is the one that is lost. */
CAIRN_MUST_CHECK int runs_fetch_of(struct store *store, struct remote *remote,
                                   const struct head *head, uint64_t *ret_run);
bool head_names_run(const struct head *head, uint64_t id);
bool run_is_bad(const struct remote *remote, uint64_t id, enum run_place place);

/* --- whole.c ---------------------------------------------------------------------------------- */

/* The newest head between two numbers of which all runs are in STORE/runs now, where a later one
 * lacks `lost_run`. -ENOENT: there is none. */
CAIRN_MUST_CHECK int heads_find_whole(struct remote *remote, uint64_t after, uint64_t before,
                                      uint64_t lost_run, struct head *ret_head);
/* The newest head lacks a run, as `why` says: remote->prefix.head becomes a whole one after number
 * `after`, where the options allow it. Else *ret_text says what can be done (caller frees). Reads
 * alone. */
CAIRN_MUST_CHECK int heads_go_back(struct remote *remote, uint64_t after, uint64_t lost_run,
                                   const char *why, char **ret_text);
/* The same where the newest head itself is damaged, and the options allow it. */
CAIRN_MUST_CHECK int heads_go_back_from_damaged(struct remote *remote, char **ret_text);
/* The newest head that is there may not be the newest that was: a run that no head names tells.
 * Notes and logs it. For the opening thread. */
void heads_look_for_later_run(struct remote *remote);
#define HEAD_TIME_LEN 32u
/* Prints a time (ns since 1970; 0: unknown), for people. */
void head_time_text(int64_t time, char buf[HEAD_TIME_LEN]);
