// SPDX-License-Identifier: Apache-2.0
/* The service: one store, mounted and served. Everything inside a mount process that is not its
 * life cycle (locks on the store, signals, the background: lifecycle.h) or its control socket
 * (control.h).
 *
 * The caller of each function below that names a store holds STORE/lock. */
#pragma once

#include <cjson/cJSON.h>

#include "base/text.h"
#include "daemon/options.h"

struct service;
struct holder_link;

struct service_error {
    int exit_code; /* of `cairn mount`: 1 usage or permission, 2 system, 32 mount failure */
    char *text;    /* one line: the error and its remedy; the caller frees it */
};

/* Sets the message to the user, one line; returns `r`. */
#define service_fail(error, code, r, ...)                                                          \
    ((error)->exit_code = (code), text_fail(&(error)->text, (r), __VA_ARGS__))

/* The store to serve, and the mountpoint. Paths are absolute and without symbolic links; all
 * strings must outlive the service. */
struct service_plan {
    const char *store, *mountpoint;
    const struct mount_options *options;
    /* reports the reason why the start waits; NULL: not needed */
    void (*progress)(const char *line, void *arg);
    bool (*cancelled)(void *arg); /* a start that waits for others gives up; NULL: never */
    /* Called about once a second while the end writes data that is not on NVMe, or (`remote`) not
     * in the remote; NULL: not needed */
    void (*ending)(uint64_t bytes_left, bool remote, void *arg);
    /* Called by service_serve() about once a second while there is no holder; NULL: not needed */
    void (*holder_ended)(void *arg);
    void *progress_arg;                    /* of all of them */
    const struct holder_link *holder_link; /* NULL: there is no holder */
};

/* Opens the store (makes its superblock if the directory holds none), recovers, mounts. On success
 * the mount is recovered, mounted and answering. On failure everything that was opened is closed
 * again, nothing is mounted, and *ret_error is set. */
CAIRN_MUST_CHECK int service_start(const struct service_plan *plan, struct service **ret,
                                   struct service_error *ret_error);

/* Blocks until unmounted from outside or stopped; then drains to NVMe and unmounts. 0 or -errno. */
CAIRN_MUST_CHECK int service_serve(struct service *service);

/* Begins to drain and end: service_serve() returns when that is done. Async-signal-safe; any
 * thread; more than once is fine. */
void service_stop(struct service *service);

/* The state for a successor: see front_passport(). */
struct front_passport;
void service_passport(struct service *service, struct front_passport *ret, int *ret_fd);

/* NULL is fine. After service_serve() has returned. */
void service_free(struct service *service);

/* Answers one request of the control socket; `service` is a struct service. Several threads at
 * once. Returns a new object, owned by the caller; never NULL. Numbers that may pass 10^15 go
 * through control_add_u64().
 *
 *   {"verb":"status"}
 *      -> the status object (man cairn-status)
 *   {"verb":"need","ino":N,"level":"nvme"|"remote"}
 *      -> {"seq":S,"generation":G,"bytes":B}: all on that path is at the level when its horizon is
 *         at S or later, in that generation (of several nodes, else 0)
 *   {"verb":"horizon"}
 *      -> {"nvme":S,"newest":S2,"generation":G,"missing_bytes":B}, and "error" when there is
 *         one; of a remote "remote":S, "remote_missing_bytes", "remote_state", and "remote_error"
 *         while it is out of reach or lost to us
 *   {"verb":"urgent","on":true|false}
 *      -> {}: lifts limits while a client waits, with "level":"remote" those of the upload too;
 *         asked for again by each poll, so a waiter that dies must not leave it on for more than a
 *         few seconds
 *   {"verb":"drain"}
 *      -> {"seq":S,"generation":G}: seals everything; the horizon must reach S. With
 *         "level":"remote","at_end":true|false the end of the service waits for the remote, or does
 *         not
 *   {"verb":"job_start","kind":"scrub"|"gc","local":B,"remote":B,"rate":BYTES,"dry_run":B}
 *      -> {"number":N}: begins work in the background, one at a time
 *   {"verb":"job","from":L}
 *      -> of the last one "number", "running", "cancelled", "failed", "lines" from line L on,
 *         "line_count", and counts
 *   {"verb":"job_cancel"}
 *      -> {}
 *   {"verb":"name","kind":"create"|"rename"|"delete","name":"N","new":"N2","seq":S}
 *      -> {"number":N}: a snapshot gets a name, of a state that has operation S, or another one, or
 *         loses it; in the background, one at a time
 *   {"verb":"named"}
 *      -> of the last one "number", "running", "failed", "head", "published_s"
 *   {"verb":"kept"}
 *      -> {"heads":[{"head":N,"bytes":B}]}: that stay for longer than the grace, and the bytes of
 *         packs that no other head needs, when gc last looked
 *   {"verb":"nodes","look":true|false,"end":EPOCH}
 *      -> of the last look at all nodes that write the remote "number", "running", "failed",
 *         "lease_s", "settled", "waits_for", "union", "nodes": see struct roll. With "look" another
 *         one begins; with "end", too, and before it that epoch is ended
 *   {"verb":"rejoin","pid":N}
 *      -> {}: the process group of that process counts as begun now; without "pid" that of the
 *         process that asks
 *   {"verb":"upgrade","binary":"path"}
 *      -> {}: the mount goes on with that program, soon. The status then counts one try more, and
 *         says if it failed
 *   {"verb":"ping"}
 *      -> {"pid":N,"log":"path"}, without a log where it is STORE/log (whose path need not
 *         be UTF-8)
 *   {"verb":"warm","ino":N,"evict":true|false}
 *      -> {"job":J}: fetches all on that path onto NVMe, or drops the copies there
 *   {"verb":"warm_status","job":J,"cancel":true|false}
 *      -> {"ended":B,"total_bytes":B,"done_bytes":B,...}: see struct warm_status
 *   {"verb":"metrics"}
 *      -> {"text":"the same in the text format of Prometheus"}
 *   {"verb":"look","ino":N}
 *      -> "path", "type", "size_bytes", "level"... of one file or directory
 *   {"verb":"survey","todo":["dINO:AT","fINO:AT",...]}
 *      -> a portion of the list: "done":K items, the last of them to go on as "rest" if that
 *         is there; "found":["KINDINO:SIZE:LINKS:STAGED",...] in directories (KIND d, f or o),
 *         "chunks":["NAME:REFERENCES:USES:LENGTH:RAW:STORED:WHERE",...] of files (USES of the
 *         references are this part's, of LENGTH bytes; WHERE: 1 NVMe + 2 remote),
 *         "inline_bytes":B, of which "inline_remote_bytes":B are in the remote, too
 *   {"verb":"extents","ino":N,"at":OFFSET}
 *      -> "file":"SIZE:MTIME" (ns) of a regular file, which may be of an earlier state, as all from
 *         here on; "extents":["OFFSET:LENGTH:RAW:STORED",...] in order, without its holes: these
 *         bytes lie in a chunk of RAW bytes that is stored in STORED; "at":OFFSET if there is more
 *   {"verb":"differ","ino":N,"other":M}
 *      -> "file" and "other" of the two; "ranges":["OFFSET:LENGTH",...] in which they differ: as
 *         far as the names of chunks say, with what was not compared in the time that a request
 *         has. EAGAIN for both verbs: some of the content is in no chunk yet
 *   An error is {"error":"text","errno":N}. */
cJSON *service_handle(const cJSON *request, void *service);

/* Recounts and verifies a store that is not mounted. `report` is called for each line to show.
 * Returns the number of problems or -errno. */
CAIRN_MUST_CHECK int service_fsck(const char *store,
                                  void (*report)(const char *line, bool is_problem, void *arg),
                                  void *arg);

/* Truncates the journal of such a store where it is damaged, and keeps the removed part.
 * *ret_truncated: false if there was nothing to truncate. */
CAIRN_MUST_CHECK int service_repair(const char *store,
                                    void (*report)(const char *line, bool is_problem, void *arg),
                                    void *arg, bool *ret_truncated);

/* The part of the status object that can be told without a mount. Caller frees with
 * cJSON_Delete(). */
CAIRN_MUST_CHECK int service_offline_status(const char *store, cJSON **ret_status);

/* The control file of the stage that the last daemon of a store left (caller frees). NULL: that
 * daemon ended with everything that it had acknowledged on NVMe. */
CAIRN_MUST_CHECK int service_left_stage(const char *store, char **ret_stage);

/* Changes that are on NVMe and in no published head of the remote, and their bytes at most. The
 * caller holds STORE/lock. */
CAIRN_MUST_CHECK int service_unpublished(const char *store, uint64_t *ret_changes,
                                         uint64_t *ret_bytes);
