/* A tier in a folder of its own, for the tests. */
#pragma once

#include "tier/tier.h"

extern struct tier *tier;
extern char store[64];

void store_open(void);
void store_close(void);

/* A tmpfs of `mib` MiB instead. False: that takes root; the test says so and ends. */
bool store_open_small(unsigned mib);

/* Buffer of `len` bytes, aligned and padded as put() wants it; caller frees. */
void *content_new(size_t len, uint64_t seed);
void put_ok(const char *object, size_t len, uint64_t seed);
void expect_content(const char *object, size_t len, uint64_t seed);
unsigned files_in(const char *folder);
