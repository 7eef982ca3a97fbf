/* The service: one store, mounted and served. Everything inside a mount process that is not its life cycle
 * (locks on the store, signals, the background: lifecycle.h) or its control socket (control.h).
 *
 * The caller of each function below that names a store holds STORE/lock. */
#pragma once

#include <cjson/cJSON.h>

#include "base/base.h"
#include "daemon/options.h"

struct service;

struct service_error {
    int exit_code; /* of `cairn mount`: 1 usage or permission, 2 system, 32 mount failure */
    char *text;    /* one line: what is wrong and what to do; the caller frees it */
};

/* Opens the store (makes its superblock if the folder holds none), recovers, mounts. On success the mount is
 * recovered, mounted and answering. On failure everything that was opened is closed again, nothing is
 * mounted, and *ret_error is set. `store` and `mountpoint` are absolute and without symbolic links; `options`
 * must outlive the service. */
CAIRN_MUST_CHECK int service_start(const char *store, const char *mountpoint,
                                   const struct mount_options *options, struct service **ret,
                                   struct service_error *ret_error);

/* Blocks until unmounted from outside or stopped; then drains to NVMe and unmounts. 0 or -errno. */
CAIRN_MUST_CHECK int service_run(struct service *service);

/* Begins to drain and end: service_run() returns when that is done. Async-signal-safe; any thread; more than
 * once is fine. */
void service_stop(struct service *service);

/* NULL is fine. After service_run() has returned. */
void service_free(struct service *service);

/* Answers one request of the control socket; `service` is a struct service. Several threads at once. Returns
 * a new object, owned by the caller; never NULL. Numbers that may pass 10^15 go through control_add_u64().
 *   {"verb":"status"}                        -> the status object (docs/operations.md)
 *   {"verb":"need","ino":N,"level":"nvme"}   -> {"seq":S,"bytes":B}: all on that path is at the level when
 * the horizon is at S or later
 *   {"verb":"horizon"}                       -> {"nvme":S,"newest":S2,"missing_bytes":B}, and "error" when
 * there is one
 *   {"verb":"urgent","on":true|false}        -> {}: lifts limits while somebody waits; asked for again by
 * each poll, so a waiter that dies must not leave it on for more than a few seconds
 *   {"verb":"drain"}                         -> {"seq":S}: seals everything; S is what must be reached
 *   {"verb":"ping"}                          -> {"pid":N}
 * An error is {"error":"text","errno":N}. */
cJSON *service_handle(const cJSON *request, void *service);

/* Recounts and verifies a store that nobody has mounted. `report` is called for each line to show. Returns
 * the number of problems or -errno. */
CAIRN_MUST_CHECK int service_fsck(const char *store,
                                  void (*report)(const char *line, bool is_problem, void *arg), void *arg);

/* The part of the status object that can be told without a mount. Caller frees with cJSON_Delete(). */
CAIRN_MUST_CHECK int service_offline_status(const char *store, cJSON **ret_status);
