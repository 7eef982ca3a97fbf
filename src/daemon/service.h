// SPDX-License-Identifier: Apache-2.0
/* The service: one store, mounted and served. It is everything inside a mount process except its
 * life cycle (locks on the store, signals, the background: lifecycle.h) and its control socket
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
    bool (*cancelled)(void *arg); /* returns true to end a start that waits; NULL: never */
    /* Called about once a second while the end writes data that is not on NVMe, or (`remote`) not
     * in the remote; NULL: not needed */
    void (*ending)(uint64_t bytes_left, bool remote, void *arg);
    /* Called by service_serve() about once a second while there is no holder; NULL: not needed */
    void (*holder_ended)(void *arg);
    void *progress_arg;                    /* of all callbacks */
    const struct holder_link *holder_link; /* NULL: there is no holder */
};

/* Opens the store (creates its superblock if the directory has none), recovers, mounts. On success
 * the mount is recovered, mounted and answering. On failure everything that was opened is closed
 * again, nothing is mounted, and *ret_error is set. */
CAIRN_MUST_CHECK int service_start(const struct service_plan *plan, struct service **ret,
                                   struct service_error *ret_error);

/* Blocks until unmounted from outside or stopped; then writes everything to NVMe and unmounts. 0 or
 * -errno. */
CAIRN_MUST_CHECK int service_serve(struct service *service);

/* Begins to drain and end: service_serve() returns when this is done. Async-signal-safe; any
 * thread; may be called more than once. */
void service_stop(struct service *service);

/* The state for a successor: see front_passport(). */
struct front_passport;
void service_passport(struct service *service, struct front_passport *ret, int *ret_fd);

/* Called after service_serve() has returned. NULL: no effect. */
void service_free(struct service *service);

/* Answers one request of the control socket; `service` is a struct service. Several threads at
 * once. Returns a new object, owned by the caller; never NULL. Numbers that may exceed 10^15 are
 * added with control_add_u64().
 *
 *   {"verb":"status"}
 *      -> the status object (man cairn-status)
 *   {"verb":"need","ino":N,"level":"nvme"|"remote"}
 *      -> {"seq":S,"generation":G,"bytes":B}: everything below the inode is at the level when its
 *         horizon is at S or later, in that generation (of several nodes, else 0)
 *   {"verb":"horizon"}
 *      -> {"nvme":S,"newest":S2,"generation":G,"missing_bytes":B}, and "error" when there is
 *         one; with a remote "remote":S, "remote_missing_bytes", "remote_state", and
 *         "remote_error" while it is unreachable or another writer has it
 *   {"verb":"urgent","on":true|false}
 *      -> {}: lifts limits while a client waits, with "level":"remote" those of the upload too;
 *         requested again by each poll, so that after a waiter's death the limits are lifted for a
 *         few seconds at most
 *   {"verb":"drain"}
 *      -> {"seq":S,"generation":G}: seals everything; the horizon must reach S. With
 *         "level":"remote","at_end":true|false the end of the service waits for the remote, or does
 *         not
 *   {"verb":"job_start","kind":"scrub"|"gc","local":B,"remote":B,"rate":BYTES,"dry_run":B}
 *      -> {"number":N}: begins work in the background, one at a time
 *   {"verb":"job","from":L}
 *      -> of the last job "number", "running", "cancelled", "failed", "lines" from line L on,
 *         "line_count", and counts
 *   {"verb":"job_cancel"}
 *      -> {}
 *   {"verb":"name","kind":"create"|"rename"|"delete","name":"N","new":"N2","seq":S,"local":B}
 *      -> {"number":N,"local":B}: adds a name for a state that has operation S, or changes or
 *         removes a name; in the background, one at a time. "local": is it of the store?
 *   {"verb":"named","local":B}
 *      -> of the last such request "number", "running", "failed", "head", "published_s"
 *   {"verb":"kept"}
 *      -> {"heads":[{"head":N,"bytes":B}]}: heads that stay longer than the grace, and the bytes of
 *         packs that no other head needs, at the last pass of gc
 *   {"verb":"nodes","look":true|false,"end":EPOCH}
 *      -> of the last inquiry of all nodes that write the remote "number", "running", "failed",
 *         "lease_s", "settled", "waits_for", "union", "nodes": see struct roll. "look" begins
 *         another inquiry; so does "end", which ends that epoch before
 *   {"verb":"rejoin","pid":N}
 *      -> {}: the process group of that process counts as begun now; without "pid" that of the
 *         requesting process
 *   {"verb":"upgrade","binary":"path"}
 *      -> {}: the mount will continue with that program, soon. The status then counts one more
 *         attempt, and shows whether it failed
 *   {"verb":"ping"}
 *      -> {"pid":N,"log":"path"}, without "log" if it is STORE/log (whose path need not be UTF-8)
 *   {"verb":"warm","ino":N,"evict":true|false}
 *      -> {"job":J}: fetches everything below the inode onto NVMe, or drops the copies there
 *   {"verb":"warm_status","job":J,"cancel":true|false}
 *      -> {"ended":B,"total_bytes":B,"done_bytes":B,...}: see struct warm_status
 *   {"verb":"metrics"}
 *      -> {"text":"the same in the text format of Prometheus"}
 *   {"verb":"look","ino":N}
 *      -> "path", "type", "size_bytes", "level"... of one file or directory
 *   {"verb":"survey","todo":["dINO:AT","fINO:AT",...]}
 *      -> a portion of the list: "done":K items, the last of them continues as "rest" if that
 *         exists; "found":["KINDINO:SIZE:LINKS:STAGED",...] in directories (KIND d, f or o),
 *         "chunks":["NAME:REFERENCES:USES:LENGTH:RAW:STORED:WHERE",...] of files (USES of the
 *         references are this part's, of LENGTH bytes; WHERE: 1 NVMe + 2 remote),
 *         "inline_bytes":B, of which "inline_remote_bytes":B are in the remote, too
 *   {"verb":"extents","ino":N,"at":OFFSET}
 *      -> "file":"SIZE:MTIME" (ns) of a regular file, which may be of an earlier state (in the
 *         verbs below, too); "extents":["OFFSET:LENGTH:RAW:STORED",...] in order, without its
 *         holes: these bytes lie in a chunk of RAW bytes that is stored in STORED; "at":OFFSET if
 *         there are more
 *   {"verb":"differ","ino":N,"other":M}
 *      -> "file" and "other" of the two; "ranges":["OFFSET:LENGTH",...] in which they differ
 *         according to the names of chunks, including ranges that were not compared in the time of
 *         a request. EAGAIN for both verbs: some of the content is in no chunk yet
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

/* Returns the part of the status object that is known without a mount. Caller frees with
 * cJSON_Delete(). */
CAIRN_MUST_CHECK int service_offline_status(const char *store, cJSON **ret_status);

/* Returns the control file of the stage that the last daemon of a store left (caller frees). NULL:
 * when that daemon ended, everything that it had acknowledged was on NVMe. */
CAIRN_MUST_CHECK int service_left_stage(const char *store, char **ret_stage);

/* Returns the number of changes that are on NVMe and in no published head of the remote, and the
 * most bytes that they may have. The caller holds STORE/lock. */
CAIRN_MUST_CHECK int service_unpublished(const char *store, uint64_t *ret_changes,
                                         uint64_t *ret_bytes);
