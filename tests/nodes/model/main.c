// SPDX-License-Identifier: Apache-2.0
/* Explicit-state model of the protocol by which several nodes write one prefix.
 *
 *   model [--nodes N] [--rounds K] [--crashes N] [--zombies N] [--joins N] [--leaves N]
 *         [--restarts N] [--states MAX] [--stuck] [OPTION...]
 *
 * Searches all states within the bounds and prints one line: that the promise holds, or how it is
 * broken, with the shortest way there. --stuck: also the states from which not all gets merged
 * without further faults. Exit code: 0 holds, 1 broken or stuck, 2 wrong arguments, 3 more states
 * than --states.
 *
 * writer.c, leaving.c, store.c, job.c, merger.c: the actions, with the step of the protocol that
 * each is. state.h: of what. invariants.c: what a head must be. rules.c: options. search.c: the
 * search. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "invariants.h"
#include "rules.h"
#include "search.h"

static size_t states_max = 100 * 1000 * 1000;
static bool looks_for_stuck;

static int usage(const char *wrong)
{
    (void)fprintf(stderr,
                  "model: wrong argument %s\n"
                  "usage: model [--nodes N] [--rounds K] [--crashes N] [--zombies N] [--joins N]\n"
                  "             [--leaves N] [--restarts N] [--states MAX] [--stuck] [OPTION...]\n",
                  wrong);
    rules_print(stderr);
    return 2;
}

static bool parse_value(const char *name, const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end)
        return false;
    if (strcmp(name, "--states") == 0) {
        states_max = value;
        return true;
    }
    return bounds_set(name, (unsigned)value);
}

/* NULL: all are right. Else the first that is wrong. */
static const char *parse(int count, char **arguments)
{
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--stuck") == 0)
            looks_for_stuck = true;
        else if (strncmp(arguments[i], "--", 2) == 0) {
            if (i + 1 == count || !parse_value(arguments[i], arguments[i + 1]))
                return arguments[i];
            i++;
        } else if (!rules_set(arguments[i]))
            return arguments[i];
    }
    /* Leaving is what is there without marks. */
    return rules.marks && bounds.leaves ? "marks with --leaves" : NULL;
}

static void print_end(const struct search *search, enum search_end end)
{
    static const char *const texts[] = {"holds", "broken", "holds so far"};
    printf("%s: %zu states, %u steps, %.1f s", texts[end], search->table.count, search->depth,
           (double)clock() / CLOCKS_PER_SEC);
    printf(end == SEARCH_BROKEN ? ": %s\n" : "\n", broken_text(search->how));
    if (end == SEARCH_BROKEN)
        search_print(search, search->broken);
}

static int print_stuck(struct search *search)
{
    uint32_t first = 0;
    size_t stuck = search_stuck(search, &first);
    printf("stuck: %zu states\n", stuck);
    if (stuck)
        search_print(search, first);
    return stuck > 0;
}

int main(int count, char **arguments)
{
    static const int codes[] = {[SEARCH_HOLDS] = 0, [SEARCH_BROKEN] = 1, [SEARCH_LIMIT] = 3};
    const char *wrong = parse(count, arguments);
    if (wrong)
        return usage(wrong);
    struct search search;
    search_init(&search, states_max, looks_for_stuck);
    enum search_end end = search_run(&search);
    print_end(&search, end);
    int code = codes[end];
    if (looks_for_stuck && end == SEARCH_HOLDS)
        code = print_stuck(&search);
    search_free(&search);
    return code;
}
