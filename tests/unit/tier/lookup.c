// SPDX-License-Identifier: Apache-2.0
#include "lookup.h"

#include "../expect.h"
#include "aws.h"
#include "web.h"

struct lookup lookup;

void lookup_begin(void)
{
    aws_begin();
    struct http_options options = {
        .connections = 8, .stall_ns = 5000000000, .user_agent = "cairn-test"};
    assert_i64(http_open(&options, &lookup.http), 0);
}

static void forget(void)
{
    s3_credentials_close(lookup.source);
    s3_credentials_done(&lookup.found);
    free(lookup.error);
    lookup.error = NULL;
}

void lookup_end(void)
{
    forget();
    http_close(lookup.http);
    web_close();
    aws_end();
}

int lookup_get(const char *profile)
{
    forget();
    lookup.source = s3_credentials_open(profile, lookup.http);
    return s3_credentials_get(lookup.source, NULL, &lookup.found, &lookup.error);
}

void lookup_expect_error(const char *profile, int expected, const char *words)
{
    int r = lookup_get(profile);
    assert_i64(r, expected, "%d instead of %d: %s", r, expected, lookup.error ? lookup.error : "");
    cr_assert_not_null(lookup.error);
    cr_assert_not_null(strstr(lookup.error, words), "'%s' does not say '%s'", lookup.error, words);
}
