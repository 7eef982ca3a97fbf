// SPDX-License-Identifier: Apache-2.0
#include "rules.h"

#include <string.h>

#include "state.h"

struct bounds bounds = {.nodes = 2, .rounds = 1};
struct rules rules;

static const struct {
    const char *name;
    bool *value;
    const char *text;
} options[] = {
    {"marks", &rules.marks, "sessions say by marks that they are not idle"},
    {"old-marks-hold", &rules.old_marks_hold, "marks of older generations hold the cut back, too"},
    {"start-skew", &rules.start_skew, "jobs end by themselves, processes start one by one"},
    {"no-deletions", &rules.no_deletions, "jobs delete no old step"},
    {"two-mergers", &rules.two_mergers, "two mergers at once"},
    {"entries-go", &rules.entries_go, "a node that has left deletes its entry in writers/"},
    {"keep-all", &rules.keep_all, "states differ by values that nothing reads any more, too"},
    {"no-lease", &rules.no_lease, "planted: numbers without a recent look"},
    {"settle", &rules.settle, "planted: no lease; processes start on settled nodes"},
    {"no-claim", &rules.no_claim, "planted: no ended/EPOCH before the listing of sessions"},
    {"claims-unseen", &rules.claims_unseen, "planted: looks read heads only, and not ended/EPOCH"},
    {"no-mark", &rules.no_mark, "planted: numbers before the mark has landed"},
    {"no-window", &rules.no_window, "planted: clocks are wrong by a round"},
    {"no-eio", &rules.no_eio, "planted: processes from before an END go on"},
    {"no-rendezvous", &rules.no_rendezvous, "planted: processes act before all have started"},
    {"no-second-look", &rules.no_second_look, "planted: a joiner does not look again"},
    {"old-feeds-count", &rules.old_feeds_count, "planted: feeds of ended generations count"},
    {"dead-left-out", &rules.dead_left_out, "planted: a death ends no generation"},
    {"ended-dropped", &rules.ended_dropped, "planted: unmerged feeds of the ended are dropped"},
    {"lost-goes-on", &rules.lost_goes_on, "planted: a session without its stage goes on"},
    {"feeds-first", &rules.feeds_first, "planted: feeds are listed before sessions"},
    {"late-clock", &rules.late_clock, "planted: the clock is read after sessions are listed"},
    {"leave-early", &rules.leave_early, "planted: LEAVES before all is published"},
    {"numbers-after-leave", &rules.numbers_after_leave, "planted: numbers after LEAVES"},
    {"join-unlisted", &rules.join_unlisted, "planted: numbers before writers/NUMBER is there"},
    {"leave-unseen", &rules.leave_unseen,
     "planted: a daemon does not see the LEAVES of the one before"},
    {"late-delete", &rules.late_delete, "planted: marks by EPOCH alone, a DELETE lands late"},
};

enum { OPTIONS = sizeof(options) / sizeof(options[0]) };

bool rules_set(const char *name)
{
    for (unsigned i = 0; i < OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0) {
            *options[i].value = true;
            rules.no_lease = rules.no_lease || rules.settle;
            return true;
        }
    return false;
}

bool bounds_set(const char *name, unsigned value)
{
    const struct {
        const char *name;
        unsigned *value;
        unsigned least, most;
    } table[] = {
        {"--nodes", &bounds.nodes, 2, NODES_MAX}, {"--rounds", &bounds.rounds, 1, 6},
        {"--crashes", &bounds.crashes, 0, 4},     {"--zombies", &bounds.zombies, 0, 4},
        {"--joins", &bounds.joins, 0, 2},         {"--leaves", &bounds.leaves, 0, 2},
        {"--restarts", &bounds.restarts, 0, 2},
    };
    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(table[i].name, name) == 0 && value >= table[i].least && value <= table[i].most) {
            *table[i].value = value;
            return rules_sessions() <= SESSIONS_MAX;
        }
    return false;
}

void rules_print(FILE *file)
{
    for (unsigned i = 0; i < OPTIONS; i++)
        (void)fprintf(file, "  %-19s %s\n", options[i].name, options[i].text);
}

unsigned rules_sessions(void)
{
    return bounds.nodes + bounds.joins;
}

bool rules_claim(void)
{
    return !rules.no_claim;
}
