// SPDX-License-Identifier: Apache-2.0
/* cairn log: prints the log file of a daemon and the file it was rotated to, filtered, and follows
 * the log. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json.h"

#define FOLLOW_MS 200
#define LINE_MAX_LEN 4096
#define PING_TIMEOUT_MS 2000

struct log_request {
    unsigned level; /* enum log_level: no lines above it */
    uint64_t lines; /* number of last lines; UINT64_MAX: all */
    bool follow, json;
};

/* "YYYY-MM-DD HH:MM:SS.mmm cairn LEVEL: TEXT" */
struct log_text {
    char time[24];
    int level;
    const char *text;
};

static int level_of(const char *word)
{
    for (int i = 0; i < LOG_LEVELS; i++)
        if (strcmp(word, log_level_words[i]) == 0)
            return i;
    return -1;
}

/* Lines of a library have another form; they count as warnings: a library prints only when
 * something is wrong. */
static struct log_text parse_line(const char *line)
{
    struct log_text t = {.level = LOG_LEVEL_WARN, .text = line};
    char day[11], clock[13], word[8];
    int at = 0;
    if (sscanf(line, "%10[0-9-] %12[0-9:.] cairn %7[a-z]: %n", day, clock, word, &at) != 3 ||
        at == 0 || level_of(word) < 0)
        return t;
    (void)snprintf(t.time, sizeof t.time, "%s %s", day, clock);
    t.level = level_of(word);
    t.text = line + at;
    return t;
}

static void show_line(const struct log_request *request, char *line)
{
    text_hide_controls(line); /* a library, or an older version, may have written it */
    struct log_text t = parse_line(line);
    if (t.level > (int)request->level)
        return;
    if (!request->json) {
        (void)printf("%s\n", line);
        return;
    }
    _cleanup_json_ cJSON *object = cJSON_CreateObject();
    if (*t.time)
        (void)cJSON_AddStringToObject(object, "time", t.time);
    (void)cJSON_AddStringToObject(object, "level", log_level_words[t.level]);
    (void)cJSON_AddStringToObject(object, "text", t.text);
    json_print_line(object);
}

static bool is_shown(const struct log_request *request, const char *line)
{
    return parse_line(line).level <= (int)request->level;
}

/* Calls `fn` for the complete lines from the present position on; a line without an end is read
 * again later. NULL: no effect. */
static void for_lines(FILE *f, void (*fn)(char *line, void *arg), void *arg)
{
    char line[LINE_MAX_LEN];
    long at;
    while (f && (at = ftell(f)) >= 0 && fgets(line, sizeof line, f)) {
        size_t len = strlen(line);
        if (len > 0 && line[len - 1] == '\n')
            line[len - 1] = '\0';
        else if (feof(f)) {
            (void)fseek(f, at, SEEK_SET);
            break;
        }
        fn(line, arg);
    }
    if (f)
        clearerr(f);
}

struct showing {
    const struct log_request *request;
    uint64_t skip; /* lines to skip before the last ones */
};

static void show_last(char *line, void *arg)
{
    struct showing *s = arg;
    if (s->skip > 0 && is_shown(s->request, line))
        s->skip--;
    else if (s->skip == 0)
        show_line(s->request, line);
}

static void count_shown(char *line, void *arg)
{
    struct showing *s = arg;
    s->skip += is_shown(s->request, line);
}

static FILE *open_log(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (fd >= 0 && !f)
        (void)close(fd);
    return f;
}

/* Returns whether the daemon has moved its log, which was full, and begun another under the
 * name. */
static bool was_replaced(FILE *f, const char *path)
{
    struct stat open_st, named;
    return fstat(fileno(f), &open_st) == 0 && stat(path, &named) == 0 &&
           (open_st.st_ino != named.st_ino || named.st_size < ftell(f));
}

static int log_follow(const struct command *command, struct showing *showing, FILE **f,
                      const char *path)
{
    while (interrupt_sleep_ms(FOLLOW_MS)) {
        bool replaced = was_replaced(*f, path);
        for_lines(*f, show_last, showing);
        (void)fflush(stdout);
        if (!replaced)
            continue;
        (void)fclose(*f);
        *f = open_log(path);
        if (!*f)
            return complain(command->name, "cannot read %s: %s", path, strerror(errno));
    }
    return CLI_INTERRUPTED;
}

static int show_log(const struct command *command, const struct log_request *request,
                    const char *path)
{
    _cleanup_free_ char *old_path = xasprintf("%s.1", path);
    FILE *f = open_log(path), *old = open_log(old_path);
    struct showing showing = {.request = request};
    int code = CLI_OK;
    if (!f)
        code = complain(command->name, "cannot read the log %s: %s", path, strerror(errno));
    if (f && request->lines != UINT64_MAX) {
        for_lines(old, count_shown, &showing);
        for_lines(f, count_shown, &showing);
        rewind(f);
        if (old)
            rewind(old);
        showing.skip -= min_u64(showing.skip, request->lines);
    }
    if (f) {
        for_lines(old, show_last, &showing);
        for_lines(f, show_last, &showing);
        (void)fflush(stdout);
    }
    if (f && request->follow)
        code = log_follow(command, &showing, &f, path);
    if (f)
        (void)fclose(f);
    if (old)
        (void)fclose(old);
    return code;
}

/* Returns the path that the daemon reports; else the one in the store. Caller frees. */
static char *path_of_log(const char *store)
{
    _cleanup_json_ cJSON *reply = NULL;
    int r = ask_patiently(store, "ping", PING_TIMEOUT_MS, &reply);
    const char *log = r == 0 ? json_text(reply, "log") : NULL;
    return log && *log ? xstrdup(log) : xasprintf("%s/log", store);
}

static int execute_log(struct call *call)
{
    _cleanup_free_ char *path = path_of_log(call->target.store);
    interrupt_catch(false);
    return show_log(call->command, call->request, path);
}

#define FIELD(f) offsetof(struct log_request, f)
static const struct flag flags[] = {
    {FLAG_OF('f', "follow", FLAG_SET, FIELD(follow)),
     .help = "print new lines as they are written"},
    {FLAG_OF('l', "level", FLAG_WORD, FIELD(level)), .argument = "error|warning|info|debug",
     .help = "leave out lines of a lower level (default debug)"},
    {FLAG_OF('n', "lines", FLAG_COUNT, FIELD(lines)), .argument = "N",
     .help = "print only the last N lines"},
    FLAG_JSON_OF("print each line as a JSON object", FIELD(json)),
    {0},
};

const struct command log_command = {
    .name = "log",
    .summary = "print the log of a daemon; without an argument, of the only mount",
    .flags = flags,
    REQUEST(struct log_request, .level = LOG_LEVEL_DEBUG, .lines = UINT64_MAX),
    .target = TARGET_ANY,
    .operands = operands_any,
    .exits = EXITS_INTERRUPTED("printed", "failed"),
    .execute = execute_log,
};
