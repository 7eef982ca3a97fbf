// SPDX-License-Identifier: Apache-2.0
/* The meaning of answers of S3, and of servers that imitate it. Pure. */
#pragma once

#include "tier/http.h"

/* The <Error> of an answer; empty strings where it has none. Plain text, fit for a message. */
struct s3_error {
    char code[64], message[200], region[40];
};

/* Reads an answer's text. False: it is no <Error> (and ret_error is empty). */
bool s3_error_parse(const char *text, size_t len, struct s3_error *ret_error);

enum s3_action {
    S3_FAIL,        /* with the error */
    S3_AGAIN,       /* later; the error if it never gets better */
    S3_REGION,      /* again with the right region */
    S3_CLOCK,       /* again with the right time */
    S3_CREDENTIALS, /* again with new credentials */
    S3_UNSUPPORTED, /* again without the checksum, if there was one */
};

struct s3_rule {
    const char *code;
    enum s3_action action;
    int error;
    const char *advice; /* what a person should do; may be NULL */
};

/* The rule for an answer that is not a success; `code` may be "". */
const struct s3_rule *s3_rule_of(long status, const char *code);

/* Advice where no answer came; NULL: none. */
const char *s3_advice_of_errno(int error);
