// SPDX-License-Identifier: Apache-2.0
#include "cli/ask.h"

#include <time.h>

#include "cli/command.h"
#include "daemon/control.h"
#include "daemon/store_directory.h"

#define ASK_TIMEOUT_MS 30000
#define STARTING_MS 10000
#define STARTING_STEP_MS 50

const char *daemon_trouble(int r)
{
    switch (r) {
    case -ENOENT:
    case -ECONNREFUSED:
        return "no daemon is running; mount the store with 'cairn mount'";
    case -EACCES:
    case -EPERM:
        return "permission denied; run as root or as the user who mounted it";
    case -ETIMEDOUT:
        return "the daemon does not answer; see its log (STORE/log)";
    case -ECONNRESET:
    case -EPIPE:
        return "the daemon has exited; mount the store again to recover all that was written";
    case -EBADMSG:
        return "cannot parse the daemon's answer; is it another version of cairn?";
    default:
        return strerror(-r);
    }
}

int complain_answer(const char *command, const char *store)
{
    return complain(command, "store %s: %s", store, daemon_trouble(-EBADMSG));
}

static bool is_no_daemon(int r)
{
    return r == -ENOENT || r == -ECONNREFUSED || r == -ECONNRESET || r == -EPIPE;
}

static int request_patiently(const char *store, const cJSON *request, int timeout_ms,
                             cJSON **ret_reply)
{
    for (int waited = 0;; waited += STARTING_STEP_MS) {
        pid_t holder;
        int r = control_request(store, request, timeout_ms, ret_reply);
        /* If the daemon died during the request, a successor may continue. */
        if (!is_no_daemon(r) || waited >= STARTING_MS ||
            store_directory_lock_holder(store, &holder) != STORE_IS_HELD)
            return r;
        (void)nanosleep(&(struct timespec){.tv_nsec = STARTING_STEP_MS * 1000000}, NULL);
    }
}

int ask_patiently(const char *store, const char *name, int timeout_ms, cJSON **ret_reply)
{
    _cleanup_json_ cJSON *request = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(request, "verb", name);
    return request_patiently(store, request, timeout_ms, ret_reply);
}

static int ask_store(const char *command, const char *store, const char *name, cJSON *request,
                     bool may_end, cJSON **ret_reply)
{
    if (!request)
        request = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(request, "verb", name);
    cJSON *reply = NULL;
    int r = request_patiently(store, request, ASK_TIMEOUT_MS, &reply);
    cJSON_Delete(request);
    if (may_end && is_no_daemon(r))
        return -ESHUTDOWN;
    if (r < 0) {
        complain(command, "store %s: %s", store, daemon_trouble(r));
        return r;
    }
    const char *error = json_text(reply, "error");
    /* The reply to "horizon" has an "error" of its own, the last one of writeback, which is no
     * answer to the request. */
    if (error && json_part(reply, "errno")) {
        complain(command, "store %s: %s", store, error);
        cJSON_Delete(reply);
        return -EREMOTEIO;
    }
    *ret_reply = reply;
    return 0;
}

int ask_daemon(const char *command, const char *store, const char *name, cJSON *request,
               cJSON **ret_reply)
{
    return ask_store(command, store, name, request, false, ret_reply);
}

int ask_daemon_or_end(const char *command, const char *store, const char *name, cJSON *request,
                      cJSON **ret_reply)
{
    return ask_store(command, store, name, request, true, ret_reply);
}
