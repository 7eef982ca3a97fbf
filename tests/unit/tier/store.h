// SPDX-License-Identifier: Apache-2.0
/* A tier in a place of its own, for the tests. */
#pragma once

#include "tier/tier.h"

extern struct tier *tier; /* NULL: cannot be tried here, the reason was given */
extern char store[64];

void store_open(void);     /* nvme */
void store_open_dir(void); /* a remote in a directory, in store/remote */
void store_open_s3(void);  /* in the bucket of $CAIRN_TEST_S3_ENDPOINT, under a prefix of its own */
void store_close(void);

/* A tmpfs of `mib` MiB instead. False: that takes root; the test says so and ends. */
bool store_open_small(unsigned mib);

/* Signed for the endpoint's test keys; makes the bucket. */
void s3_make_bucket(const char *endpoint, const char *bucket);

/* Options for the endpoint in the environment, with fewer connections than the tests have threads;
 * the keys go into the environment. False: there is none. */
bool s3_test_options(const char *prefix, struct s3_options *ret_options);

/* Buffer of `len` bytes, aligned and padded as put() wants it; caller frees. */
void *content_new(size_t len, uint64_t seed);
void put_ok(const char *object, size_t len, uint64_t seed);
void expect_content(const char *object, size_t len, uint64_t seed);
unsigned files_in(const char *directory);
