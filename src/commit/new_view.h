// SPDX-License-Identifier: Apache-2.0
/* A view that a live mount cannot mend. Its database takes no change, or gives damaged rows,
 * whatever is opened anew; the journal and the anchor have all that it said. Only a start makes it
 * anew: with `STORE/view.anew` the next one does, whatever it finds in the view. */
#pragma once

#include "base/base.h"

struct local;

/* Does STORE/view.anew ask this start for a new view? */
bool new_view_is_asked(const struct local *local);
/* The view is new, and durable: nothing asks any more. */
CAIRN_MUST_CHECK int new_view_settled(const struct local *local);
