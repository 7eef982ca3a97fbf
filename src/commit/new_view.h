// SPDX-License-Identifier: Apache-2.0
/* A view that a live mount cannot repair: its database takes no changes, or has damaged rows, even
 * after it was opened again. Journal and anchor contain all its data, but only a start can rebuild
 * it: with `STORE/view.anew` the next start does, whatever it finds in the view. */
#pragma once

#include "base/base.h"

struct local;

/* Does STORE/view.anew require this start to rebuild the view? */
bool new_view_is_asked(const struct local *local);
/* The rebuilt view is durable: removes STORE/view.anew. */
CAIRN_MUST_CHECK int new_view_settled(const struct local *local);
