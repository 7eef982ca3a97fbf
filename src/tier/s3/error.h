// SPDX-License-Identifier: Apache-2.0
/* The meaning of answers of S3, and of compatible servers. Pure. */
#pragma once

#include "tier/http.h"

/* The <Error> element of an answer; strings are empty if missing. Plain text, safe in a message. */
struct s3_error {
    char code[64], message[200], region[40];
};

/* Parses an answer's text. False: it contains no <Error> (and *ret_error is empty). */
bool s3_error_parse(const char *text, size_t len, struct s3_error *ret_error);

enum s3_action {
    S3_FAIL,        /* return the error */
    S3_AGAIN,       /* retry later; return the error if retries do not help */
    S3_REGION,      /* retry with the right region */
    S3_CLOCK,       /* retry with the right time */
    S3_CREDENTIALS, /* retry with new credentials */
    S3_UNSUPPORTED, /* retry without the checksum, if there was one */
};

struct s3_rule {
    const char *code;
    enum s3_action action;
    int error;
    const char *advice; /* advice for a person; may be NULL */
};

/* Returns the rule for an answer that is not a success; `code` may be "". */
const struct s3_rule *s3_rule_of(long status, const char *code);

/* Returns advice for a call without an answer; NULL: none. */
const char *s3_advice_of_errno(int error);
