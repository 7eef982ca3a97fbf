// SPDX-License-Identifier: Apache-2.0
/* The requests of the control socket (service.h), each with the function that answers it. */
#include "daemon/control.h"
#include "daemon/service_internal.h"

cJSON *service_handle(const cJSON *request, void *arg)
{
    static const struct {
        const char *verb;
        cJSON *(*handle)(struct service *service, const cJSON *request);
    } verbs[] = {{"status", handle_status},
                 {"need", handle_need},
                 {"horizon", handle_horizon},
                 {"damaged", handle_damaged},
                 {"urgent", handle_urgent},
                 {"drain", handle_drain},
                 {"ping", handle_ping},
                 {"end", handle_end},
                 {"upgrade", handle_upgrade},
                 {"warm", handle_warm},
                 {"warm_status", handle_warm_status},
                 {"look", handle_look},
                 {"survey", handle_survey},
                 {"users", handle_users},
                 {"metrics", handle_metrics},
                 {"job", handle_job},
                 {"job_start", handle_job_start},
                 {"job_cancel", handle_job_cancel}};
    const char *verb = json_text(request, "verb");
    for (size_t i = 0; verb && i < ARRAY_LEN(verbs); i++)
        if (strcmp(verb, verbs[i].verb) == 0)
            return verbs[i].handle(arg, request);
    return control_error(EINVAL, "unknown verb");
}
