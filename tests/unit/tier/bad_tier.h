// SPDX-License-Identifier: Apache-2.0
/* An S3 tier whose server is the one of bad_server.h. */
#pragma once

#include "../expect.h"
#include "bad_server.h"
#include "store.h"

#define ID "x-amz-request-id: tx1\r\n"
#define END "Connection: close\r\n\r\n"
#define EMPTY(status) "HTTP/1.1 " status " S\r\n" ID "Content-Length: 0\r\n" END
#define STORED "HTTP/1.1 200 OK\r\n" ID "ETag: \"e\"\r\nContent-Length: 0\r\n" END
#define WITH_BODY(status, headers, body) "HTTP/1.1 " status " S\r\n" ID headers END body
#define ERROR_BODY(code)                                                                           \
    "<?xml version=\"1.0\"?><Error><Code>" code "</Code><Message>no</Message></Error>"
#define ERROR(status, code) WITH_BODY(status, "Content-Type: application/xml\r\n", ERROR_BODY(code))

/* Ten bytes, the first of an object. */
#define TEN WITH_BODY("206", "Content-Range: bytes 0-9/100\r\nContent-Length: 10\r\n", "0123456789")

/* What the tests change before bad_tier(). */
extern struct s3_options bad_options;

void bad_begin(void); /* for .init: keys in the environment, options with a short patience */
void bad_end(void);

/* Opens `tier` on the server. */
void bad_tier(const char *endpoint);

#define BAD_TIER(...) bad_tier(BAD_OPEN(__VA_ARGS__))

int try_put(void);
int try_put_new(void);
int try_get(void); /* the ten bytes; checks them */

/* Result, number of requests the server saw. */
#define EXPECT(call, result, requests)                                                             \
    do {                                                                                           \
        int expect_r = (call);                                                                     \
        char expect_error[512];                                                                    \
        tier->ops->last_error(tier, expect_error, sizeof expect_error);                            \
        assert_i64(expect_r, (result), "%s, not %s: %s", strerror(-expect_r), strerror(-(result)), \
                   expect_error);                                                                  \
        assert_u64(bad_count(), (requests), "%u requests: %s", bad_count(), expect_error);         \
    } while (0)

void expect_reported(const char *text);
