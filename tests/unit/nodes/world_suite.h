// SPDX-License-Identifier: Apache-2.0
/* For a suite whose tests begin with two nodes and a merger, which they may replace. */
#pragma once

#include "../expect.h"
#include "../shell.h"
#include "../stopped_time.h"
#include "world.h"

#define LEASE_NS (60ll * 1000000000)
#define GRACE_NS (3600ll * 1000000000)

static struct world w;
static struct merger *merger, *other;
static struct seeded seeded;

static void setup(void)
{
    world_open(&w);
    time_stop();
    seeded.state = test_number("CAIRN_TESTS_SEED", 1);
    other = NULL;
    merger = world_merger(&w, 1, LEASE_NS, GRACE_NS);
    world_join(&w, 0);
    world_join(&w, 1);
}

static void check_heads(void)
{
    world_check(&w);
}

static void teardown(void)
{
    merger_free(merger);
    merger_free(other);
    world_close(&w);
}

static void begin_with(int64_t lease_ns, int64_t grace_ns)
{
    merger_free(merger);
    merger = world_merger(&w, 1, lease_ns, grace_ns);
}
