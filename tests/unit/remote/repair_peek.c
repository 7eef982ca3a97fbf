// SPDX-License-Identifier: Apache-2.0
#include "repair_peek.h"

#include "remote/maintenance_internal.h"

void hold_repair(struct remote *remote)
{
    remote->maintenance->repair_at = INT64_MAX;
}

bool is_repair_due(struct remote *remote)
{
    return remote_repair_is_due(remote);
}
