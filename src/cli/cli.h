/* What the verbs of `cairn` share. One thread. */
#pragma once

#include <cjson/cJSON.h>

#include "base/base.h"

/* Exit codes of the verbs other than mount (mount(8)'s) and fsck (fsck(8)'s). */
enum cli_exit { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_NOT_MET = 3, CLI_INTERRUPTED = 130 };

struct verb {
    const char *name;
    const char *synopsis; /* what follows "cairn NAME" */
    const char *summary;  /* one line */
    const char *help;     /* flags and exit codes */
    int usage_exit;
    int (*run)(const struct verb *verb, int argc, char **argv); /* argv[0] is the verb */
    void (*more_help)(void);                                    /* NULL: none */
};

int verb_mount(const struct verb *verb, int argc, char **argv);
int verb_umount(const struct verb *verb, int argc, char **argv);
int verb_status(const struct verb *verb, int argc, char **argv);
int verb_wait(const struct verb *verb, int argc, char **argv);
int verb_fsck(const struct verb *verb, int argc, char **argv);
void mount_options_help(void);

/* One line on standard error: "cairn VERB: ...". */
void complain(const char *verb, const char *fmt, ...) CAIRN_PRINTF(2, 3);

/* The same for a wrong argument; returns the exit code to end with. */
int complain_usage(const struct verb *verb, const char *fmt, ...) CAIRN_PRINTF(2, 3);

/* What getopt_long() found wrong (`found` is '?' or ':'), said like that. */
int complain_option(const struct verb *verb, int found, char **argv);

/* Sends {"verb":name, ...} to the daemon of `store`; `request` (may be NULL) holds what goes with it and is
 * freed. Says what went wrong; -errno then. An "error" in the reply is one. */
CAIRN_MUST_CHECK int ask_daemon(const char *verb, const char *store, const char *name, cJSON *request,
                                cJSON **ret_reply);

/* What an error of control_request() means to a user. */
const char *daemon_trouble(int r);

/* "512 B", "1.5 GiB" */
struct human {
    char text[24];
};
struct human human_bytes(uint64_t bytes);
/* "0.4 s", "3 min 20 s", "2 h 5 min" */
struct human human_seconds(double seconds);
