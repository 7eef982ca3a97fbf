// SPDX-License-Identifier: Apache-2.0
/* Jobs of the control socket: started, watched, cancelled. */
#include "daemon/control.h"
#include "daemon/service_internal.h"
#include "daemon/when.h"
#include "snapshots/snapshots.h"

static enum job_kind kind_of(const cJSON *request)
{
    const char *kind = json_text(request, "kind");
    return !kind                        ? JOB_NONE
           : strcmp(kind, "scrub") == 0 ? JOB_SCRUB
           : strcmp(kind, "gc") == 0    ? JOB_GC
                                        : JOB_NONE;
}

cJSON *handle_job_start(struct service *service, const cJSON *request)
{
    struct job_options options = {.kind = kind_of(request),
                                  .local = json_true(request, "local"),
                                  .remote = json_true(request, "remote"),
                                  .dry_run = json_true(request, "dry_run")};
    uint64_t number;
    (void)control_get_u64(request, "rate", &options.rate);
    if (options.kind == JOB_NONE || (!options.local && !options.remote))
        return control_error(EINVAL, "unknown job; use scrub or gc, of local, remote or both");
    if (options.remote && !options.local && !service->options->remote.address)
        return control_error(ENOTCONN, "no remote is configured");
    int r = store_job_start(service->store, &options, &number);
    if (r < 0)
        return control_error(-r, r == -EBUSY
                                     ? "another scrub or gc is running; wait until it has ended"
                                     : strerror(-r));
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "number", number);
    return reply;
}

static void add_line(const char *line, void *arg)
{
    (void)cJSON_AddItemToArray(arg, cJSON_CreateString(line));
}

static void add_counts(cJSON *reply, const struct job_counts *c)
{
    control_add_u64(reply, "bytes", c->bytes);
    control_add_u64(reply, "bytes_total", c->bytes_total);
    control_add_u64(reply, "packs", c->packs);
    control_add_u64(reply, "chunks", c->chunks);
    control_add_u64(reply, "found", c->found);
    control_add_u64(reply, "healed", c->healed);
    control_add_u64(reply, "unhealed", c->unhealed);
    control_add_u64(reply, "files", c->files);
    control_add_u64(reply, "objects", c->objects);
    control_add_u64(reply, "removed_bytes", c->removed_bytes);
}

cJSON *handle_job(struct service *service, const cJSON *request)
{
    static const char *const kinds[] = {
        [JOB_NONE] = "none", [JOB_SCRUB] = "scrub", [JOB_GC] = "gc"};
    struct job_status status;
    uint64_t from = 0;
    cJSON *reply = cJSON_CreateObject();
    cJSON *lines = cJSON_AddArrayToObject(reply, "lines");
    (void)control_get_u64(request, "from", &from);
    store_job_status(service->store, from, add_line, lines, &status);
    (void)cJSON_AddStringToObject(reply, "kind", kinds[status.kind]);
    control_add_u64(reply, "number", status.number);
    (void)cJSON_AddBoolToObject(reply, "running", status.running);
    (void)cJSON_AddBoolToObject(reply, "cancelled", status.cancelled);
    if (status.error < 0)
        (void)cJSON_AddStringToObject(reply, "failed", strerror(-status.error));
    control_add_u64(reply, "line_count", status.lines);
    add_counts(reply, &status.counts);
    return reply;
}

cJSON *handle_job_cancel(struct service *service, const cJSON *request)
{
    (void)request;
    store_job_cancel(service->store);
    return cJSON_CreateObject();
}

/* --- snapshots with names --------------------------------------------------------------------- */

static bool take_name(const cJSON *request, const char *field, char into[SNAPSHOT_NAME_MAX],
                      char **ret_text)
{
    const char *name = json_text(request, field);
    if (when_check_name(name ? name : "", ret_text) < 0)
        return false;
    memcpy(into, name, strlen(name) + 1);
    return true;
}

static cJSON *naming_refusal(int error, const struct naming *naming)
{
    const char *new = naming->kind == NAMING_RENAME ? naming->new_name : naming->name;
    _cleanup_free_ char *known = xasprintf("there is a snapshot '%s' already", new);
    const char *text = error == -EEXIST  ? known
                       : error == -EBUSY ? "another snapshot gets its name now; try again"
                       : error == -EROFS ? "this mount only reads: ask the one that writes"
                       : error == -EOPNOTSUPP
                           ? "several nodes write this remote: there are no names of its states"
                           : strerror(-error);
    return control_error(-error, text);
}

cJSON *handle_name(struct service *service, const cJSON *request)
{
    struct naming naming = {0};
    uint64_t number;
    const char *kind = json_text(request, "kind");
    _cleanup_free_ char *why = NULL;
    if (!kind || !(strcmp(kind, "create") == 0 || strcmp(kind, "rename") == 0 ||
                   strcmp(kind, "delete") == 0))
        return control_error(EINVAL, "unknown kind; use create, rename or delete");
    naming.kind = *kind == 'c' ? NAMING_CREATE : *kind == 'r' ? NAMING_RENAME : NAMING_DELETE;
    (void)control_get_u64(request, "seq", &naming.seq);
    if (!take_name(request, "name", naming.name, &why) ||
        (naming.kind == NAMING_RENAME && !take_name(request, "new", naming.new_name, &why)))
        return control_error(EINVAL, why);
    naming.is_local = json_true(request, "local");
    naming.is_local = store_naming_is_local(service->store, &naming);
    if (!naming.is_local && !remote_side_is_usable(service))
        return remote_side_refusal(service);
    int r = store_naming_start(service->store, &naming, &number);
    if (r < 0)
        return naming_refusal(r, &naming);
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "number", number);
    (void)cJSON_AddBoolToObject(reply, "local", naming.is_local);
    return reply;
}

cJSON *handle_named(struct service *service, const cJSON *request)
{
    struct naming_state state;
    store_naming_look(service->store, json_true(request, "local"), &state);
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "number", state.number);
    (void)cJSON_AddBoolToObject(reply, "running", state.running);
    if (state.error < 0)
        (void)cJSON_AddStringToObject(reply, "failed", state.text);
    control_add_u64(reply, "head", state.head);
    (void)cJSON_AddNumberToObject(reply, "published_s", (double)(state.published / 1000000) / 1000);
    return reply;
}

static void add_kept(uint64_t head, uint64_t bytes, void *arg)
{
    cJSON *one = cJSON_CreateObject();
    control_add_u64(one, "head", head);
    control_add_u64(one, "bytes", bytes);
    (void)cJSON_AddItemToArray(arg, one);
}

cJSON *handle_kept(struct service *service, const cJSON *request)
{
    (void)request;
    cJSON *reply = cJSON_CreateObject();
    store_kept_each(service->store, add_kept, cJSON_AddArrayToObject(reply, "heads"));
    return reply;
}
