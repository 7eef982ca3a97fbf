// SPDX-License-Identifier: Apache-2.0
/* Credentials as JSON, as containers, instance metadata and commands give them; times. */
#include "fuzz.h"
#include "tier/s3/credentials_source.h"
#include "tier/s3/secret.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct s3_credentials credentials = {0};
    char *text = text_copy(data, size), *error = NULL;
    int64_t ns = 0;
    if (s3_credentials_parse(text, size, "Token", "test", &credentials, &error) == 0) {
        check(s3_secret_is_plain(credentials.key_id) && s3_secret_is_plain(credentials.secret) &&
              !error);
        check(!credentials.token || s3_secret_is_plain(credentials.token));
        check(credentials.expires_ns >= 0);
    } else {
        check(error && !strpbrk(error, "\r\n") && !credentials.key_id && !credentials.secret);
    }
    check(s3_time_parse(text, &ns) < 0 || ns >= 0);
    s3_credentials_done(&credentials);
    free(error);
    free(text);
    return 0;
}
