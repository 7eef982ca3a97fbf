// SPDX-License-Identifier: Apache-2.0
/* In place of the service, where a test links the parts around it only: none of this is ever
 * called. */
#include "daemon/service.h"

int service_start(const struct service_plan *plan, struct service **ret,
                  struct service_error *ret_error)
{
    (void)plan, (void)ret, (void)ret_error;
    return -ENOSYS;
}

int service_serve(struct service *service)
{
    (void)service;
    return -ENOSYS;
}

void service_stop(struct service *service)
{
    (void)service;
}

void service_free(struct service *service)
{
    (void)service;
}

cJSON *service_handle(const cJSON *request, void *service)
{
    (void)request, (void)service;
    return NULL;
}

void service_passport(struct service *service, struct front_passport *ret, int *ret_fd)
{
    (void)service;
    (void)ret;
    *ret_fd = -1;
}
