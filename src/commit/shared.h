// SPDX-License-Identifier: Apache-2.0
/* The store, as its components share it. Only commit/, remote/, fetch/ and store/ include this;
 * each of the other fields is for one of them. Includes all headers of commit/ for the others,
 * except run_file.h. */
#pragma once

#include <stdatomic.h>

#include "base/event.h"
#include "base/lock.h"
#include "base/pool.h"
#include "base/rate_limit.h"
#include "codec/hash.h"
#include "commit/commit.h"
#include "commit/history.h"
#include "commit/horizon.h"
#include "commit/journal.h"
#include "commit/new_view.h"
#include "commit/packs.h"
#include "commit/past_views.h"
#include "commit/read.h"
#include "commit/room.h"
#include "commit/session.h"
#include "commit/upkeep.h"
#include "format/object.h"
#include "tier/tier.h"

/* State of each component. */
struct dense;
struct node;
struct remote;
struct fetch;
struct store_own;

/* The store, as shared by all components. */
struct store {
    struct local local;
    struct commit commit;  /* the objects of commit/ */
    struct dense *dense;   /* NULL: the store has no remote */
    struct node *node;     /* NULL: no other node writes the remote's prefix */
    struct remote *remote; /* NULL: none */
    struct fetch *fetch;
    struct past_views *past; /* earlier states that are open */
    struct store_own *own;   /* private to store/ */
};
