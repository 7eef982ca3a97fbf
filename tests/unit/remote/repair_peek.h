// SPDX-License-Identifier: Apache-2.0
/* What other tests have to know of a remote's repair, which is remote/'s own. */
#pragma once

#include "base/base.h"

struct remote;

/* From now on nothing is written anew by itself. */
void hold_repair(struct remote *remote);
/* Is something still to be written anew? */
bool is_repair_due(struct remote *remote);
