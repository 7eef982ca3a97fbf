// SPDX-License-Identifier: Apache-2.0
/* cairn top: the rates of the tiers of a mount, a picture per interval, and below it the lines of
 * `cairn status`. On a terminal each picture replaces the one before. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/clock.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/status.h"

#define TIMEOUT_MS 15000
#define PAST 40u /* rates that a row shows, one an interval */
#define LABEL_WIDTH 18
#define RATE_WIDTH 12
#define KEY_Q 'q'

struct top_request {
    int64_t interval_ns;
    uint64_t count; /* pictures; 0: no end */
};

/* A counter of bytes, and its growth a second in the last intervals, the newest at `next` - 1. */
struct flow {
    const char *label, *group, *field;
    double past[PAST], most;
    size_t next;
};

struct screen {
    bool is_terminal, is_utf8;
    struct termios before;
};

/* --- the terminal ----------------------------------------------------------------------------- */

static bool locale_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *locale = getenv(names[i]);
        if (locale && *locale)
            return strstr(locale, "UTF-8") || strstr(locale, "utf8");
    }
    return false;
}

/* The other screen, without cursor and line wrap; keys come without a line end. */
static void screen_open(struct screen *screen)
{
    screen->is_utf8 = locale_is_utf8();
    screen->is_terminal = isatty(STDOUT_FILENO) && tcgetattr(STDIN_FILENO, &screen->before) == 0;
    if (!screen->is_terminal)
        return;
    struct termios raw = screen->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    (void)printf("\033[?1049h\033[?25l\033[?7l");
}

static void screen_close(const struct screen *screen)
{
    if (!screen->is_terminal)
        return;
    (void)printf("\033[?7h\033[?25h\033[?1049l");
    (void)fflush(stdout);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &screen->before);
}

static size_t screen_rows(void)
{
    struct winsize size = {0};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

/* As many of its lines as there is room for. Nothing blinks: each line writes over the old one. */
static void screen_show(const struct screen *screen, const char *picture)
{
    if (!screen->is_terminal) {
        (void)fputs(picture, stdout);
        (void)fflush(stdout);
        return;
    }
    (void)printf("\033[H");
    for (size_t left = screen_rows() - 1; left > 0 && *picture; left--) {
        size_t len = strcspn(picture, "\n");
        (void)printf("%.*s\033[K\n", (int)len, picture);
        picture += len + (picture[len] == '\n');
    }
    (void)printf("\033[J");
    (void)fflush(stdout);
}

/* Until then, an interrupt, or the key that ends it. False: it is to end. */
static bool screen_wait(const struct screen *screen, int64_t until)
{
    struct pollfd input = {.fd = screen->is_terminal ? STDIN_FILENO : -1, .events = POLLIN};
    for (int64_t left; !interrupted() && (left = until - clock_monotonic_ns()) > 0;) {
        char key = 0;
        if (poll(&input, 1, (int)(left / MS_NS) + 1) <= 0)
            continue;
        if (read(STDIN_FILENO, &key, 1) <= 0 || key == KEY_Q)
            return false;
    }
    return !interrupted();
}

/* --- flows ------------------------------------------------------------------------------------ */

static double rate_of(const struct flow *flow, const cJSON *before, const cJSON *now,
                      double seconds)
{
    uint64_t old = json_count(json_part(before, flow->group), flow->field),
             new = json_count(json_part(now, flow->group), flow->field);
    return new > old &&seconds > 0 ? (double)(new - old) / seconds : 0;
}

static void note_rate(struct flow *flow, double rate)
{
    flow->past[flow->next++ % PAST] = rate;
    flow->most = rate > flow->most ? rate : flow->most;
}

/* The last intervals, each as a bar: the highest is the most since the command began. */
static void print_past(const struct flow *flow, bool is_utf8)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[] = {" ", ".", ".", ":", ":", "-", "=", "+", "#"};
    for (size_t i = 0; i < PAST; i++) {
        double rate = flow->past[(flow->next + i) % PAST];
        double share = flow->most > 0 ? rate / flow->most : 0;
        size_t level = share > 0 ? 1 + (size_t)(share * 7) : 0;
        (void)printf("%s", (is_utf8 ? blocks : plain)[level > 8 ? 8 : level]);
    }
}

static void print_flow(const struct flow *flow, bool is_utf8)
{
    char now[48];
    double rate = flow->past[(flow->next - 1) % PAST];
    (void)snprintf(now, sizeof now, "%s/s", human_bytes((uint64_t)rate).text);
    (void)printf("  %-*s%*s  |", LABEL_WIDTH, flow->label, RATE_WIDTH, now);
    print_past(flow, is_utf8);
    (void)printf("|  at most %s/s\n", human_bytes((uint64_t)flow->most).text);
}

static bool is_shown(const struct flow *flow, const cJSON *status)
{
    const char *state = json_text(json_part(status, "remote"), "state");
    return strcmp(flow->group, "remote") != 0 || (state && strcmp(state, "none") != 0);
}

/* --- the picture ------------------------------------------------------------------------------ */

struct top {
    struct flow flows[5];
    struct screen screen;
    cJSON *before;
    int64_t sampled; /* monotonic ns */
};

static void print_picture(const struct top *top, cJSON *now, const char *store)
{
    for (size_t i = 0; i < ARRAY_LEN(top->flows); i++)
        if (is_shown(&top->flows[i], now))
            print_flow(&top->flows[i], top->screen.is_utf8);
    (void)printf("\n");
    status_print(now, store, false);
    if (top->screen.is_terminal)
        (void)printf("\n  q ends\n");
}

/* status_print() writes to standard output: meanwhile that is a buffer in memory. */
static void show_picture(const struct top *top, cJSON *now, const char *store)
{
    char *picture = NULL;
    size_t len;
    FILE *terminal = stdout, *memory = open_memstream(&picture, &len);
    if (!memory)
        return;
    stdout = memory;
    print_picture(top, now, store);
    stdout = terminal;
    (void)fclose(memory);
    screen_show(&top->screen, picture);
    free(picture);
}

/* The first answer is only the base of the first comparison. */
static int sample(struct top *top, const char *store)
{
    cJSON *now = NULL;
    int r = ask_patiently(store, "status", TIMEOUT_MS, &now);
    if (r < 0)
        return r;
    int64_t at = clock_monotonic_ns();
    double seconds = (double)(at - top->sampled) / 1e9;
    for (size_t i = 0; i < ARRAY_LEN(top->flows) && top->before; i++)
        note_rate(&top->flows[i], rate_of(&top->flows[i], top->before, now, seconds));
    if (top->before)
        show_picture(top, now, store);
    cJSON_Delete(top->before);
    top->before = now;
    top->sampled = at;
    return 0;
}

static int run(struct top *top, const struct top_request *request, const char *store)
{
    int64_t at = clock_monotonic_ns();
    TRY(sample(top, store));
    for (uint64_t shown = 0; request->count == 0 || shown < request->count; shown++) {
        at += request->interval_ns;
        if (!screen_wait(&top->screen, at))
            break;
        TRY(sample(top, store));
    }
    return 0;
}

static int execute_top(struct call *call)
{
    struct top top = {
        .flows = {{.label = "written", .group = "mount", .field = "written_bytes_total"},
                  {.label = "read", .group = "mount", .field = "read_bytes_total"},
                  {.label = "to NVMe", .group = "nvme", .field = "written_bytes_total"},
                  {.label = "uploaded", .group = "remote", .field = "uploaded_bytes_total"},
                  {.label = "fetched", .group = "remote", .field = "fetched_bytes_total"}}};
    const char *store = call->target.store;
    interrupt_catch(false);
    screen_open(&top.screen);
    int r = run(&top, call->request, store);
    screen_close(&top.screen);
    cJSON_Delete(top.before);
    if (r < 0)
        return complain(call->command->name, "store %s: %s", store, daemon_trouble(r));
    return interrupted() && !top.screen.is_terminal ? CLI_INTERRUPTED : CLI_OK;
}

#define FIELD(f) offsetof(struct top_request, f)
const struct command top_command = {
    .name = "top",
    .summary = "show what flows through the tiers of a mount, once a second",
    .flags =
        (const struct flag[]){
            {FLAG_OF('i', "interval", FLAG_TIME, FIELD(interval_ns)), .argument = "TIME",
             .help = "show it every TIME instead of every second", .min = SECOND_NS / 10},
            {FLAG_OF('n', "count", FLAG_COUNT, FIELD(count)), .argument = "N",
             .help = "exit after N times", .min = 1},
            {0}},
    REQUEST(struct top_request, .interval_ns = SECOND_NS),
    .target = TARGET_MOUNT,
    .operands = operands_mount,
    .exits = EXITS_INTERRUPTED("N times are over, or q was pressed", "the daemon does not answer"),
    .execute = execute_top,
};
