// SPDX-License-Identifier: Apache-2.0
/* The lines of `cairn status`, for `cairn top`. */
#pragma once

#include <cjson/cJSON.h>

#include "base/base.h"

/* On standard output. Control characters in `status` are hidden, in place. `all`: the table of
 * figures, too. */
void status_print(cJSON *status, const char *store, bool all);
