// SPDX-License-Identifier: Apache-2.0
/* What the verbs of `cairn` share. One thread. */
#pragma once

#include <cjson/cJSON.h>

#include "base/base.h"
#include "daemon/options.h"

/* Exit codes of the verbs other than mount (mount(8)'s) and fsck (fsck(8)'s). */
enum cli_exit { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_NOT_MET = 3, CLI_INTERRUPTED = 130 };

struct verb {
    const char *name;
    const char *synopsis; /* what follows "cairn NAME" */
    const char *summary;  /* one line */
    const char *help;     /* flags and exit codes; read by cli/usage.h */
    int usage_exit;
    int (*run)(const struct verb *verb, int argc, char **argv); /* argv[0] is the verb */
    void (*more_help)(void);                                    /* NULL: none */
    bool (*takes)(const struct option_spec *spec); /* which options of a mount are flags of the verb, too; NULL: none */
};

/* The verbs, in the order of the help text; ends with an entry without a name. */
extern const struct verb verb_table[];

int verb_mount(const struct verb *verb, int argc, char **argv);
int verb_umount(const struct verb *verb, int argc, char **argv);
int verb_status(const struct verb *verb, int argc, char **argv);
int verb_info(const struct verb *verb, int argc, char **argv);
int verb_du(const struct verb *verb, int argc, char **argv);
int verb_stats(const struct verb *verb, int argc, char **argv);
int verb_metrics(const struct verb *verb, int argc, char **argv);
int verb_log(const struct verb *verb, int argc, char **argv);
int verb_wait(const struct verb *verb, int argc, char **argv);
int verb_ls(const struct verb *verb, int argc, char **argv);
int verb_cp(const struct verb *verb, int argc, char **argv);
int verb_adopt(const struct verb *verb, int argc, char **argv);
int verb_fsck(const struct verb *verb, int argc, char **argv);
int verb_scrub(const struct verb *verb, int argc, char **argv);
int verb_warmup(const struct verb *verb, int argc, char **argv);
int verb_evict(const struct verb *verb, int argc, char **argv);
int verb_upgrade(const struct verb *verb, int argc, char **argv);
int verb_gc(const struct verb *verb, int argc, char **argv);
/* helper.c: as mount(8) and umount(8) call them. */
int mount_helper(const struct verb *verb, int argc, char **argv);
int umount_helper(const struct verb *verb, int argc, char **argv);
int verb_completion(const struct verb *verb, int argc, char **argv);

/* mount.c: every option of a mount is a flag of `cairn mount`. */
void mount_options_help(void);
bool mount_takes(const struct option_spec *spec);
/* source.c: those that say how a remote is reached. */
void source_flags_help(void);
bool source_takes(const struct option_spec *spec);

/* One line on standard error: "cairn VERB: ...". */
void complain(const char *verb, const char *fmt, ...) CAIRN_PRINTF(2, 3);

/* The same for a wrong argument; returns the exit code to end with. */
int complain_usage(const struct verb *verb, const char *fmt, ...) CAIRN_PRINTF(2, 3);

/* What getopt_long() found wrong (`found` is '?' or ':'), said like that. */
int complain_option(const struct verb *verb, int found, char **argv);

/* Of a verb whose one flag is --json: takes it, and leaves optind at the first argument. CLI_OK, or the code to end with. */
CAIRN_MUST_CHECK int take_json(const struct verb *verb, int argc, char **argv, bool *ret_json);

/* As control_request(), and waits for a daemon that is only starting: it holds the store already. */
CAIRN_MUST_CHECK int request_patiently(const char *store, const cJSON *request, int timeout_ms, cJSON **ret_reply);

/* Sends {"verb":name, ...} to the daemon of `store`; `request` (may be NULL) holds what goes with it and is
 * freed. Says what went wrong; -errno then. An "error" in the reply is one. */
CAIRN_MUST_CHECK int ask_daemon(const char *verb, const char *store, const char *name, cJSON *request,
                                cJSON **ret_reply);

/* The same where the daemon may end meanwhile: -ESHUTDOWN then, and nothing is said. */
CAIRN_MUST_CHECK int ask_daemon_or_end(const char *verb, const char *store, const char *name, cJSON *request, cJSON **ret_reply);

/* What an error of control_request() means to a user. */
const char *daemon_trouble(int r);

/* "512 B", "1.5 GiB" */
struct human {
    char text[32];
};
struct human human_bytes(uint64_t bytes);
/* "0.4 s", "3 min 20 s", "2 h 5 min" */
struct human human_seconds(double seconds);
