// SPDX-License-Identifier: Apache-2.0
/* ~/.aws/config and ~/.aws/credentials. A zero byte is where the second file begins. */
#include <sys/mman.h>

#include "base/io.h"
#include "fuzz.h"
#include "tier/s3/profiles.h"

static int config_fd, credentials_fd;

static int open_file(const char *variable)
{
    char path[64];
    int fd = memfd_create(variable, MFD_CLOEXEC);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    check(fd >= 0 && setenv(variable, path, 1) == 0);
    return fd;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    config_fd = open_file("AWS_CONFIG_FILE");
    credentials_fd = open_file("AWS_SHARED_CREDENTIALS_FILE");
    return 0;
}

static void put(int fd, const uint8_t *data, size_t size)
{
    check(ftruncate(fd, 0) == 0 && (size == 0 || io_pwrite_full(fd, data, size, 0) == 0));
}

static void ask(const struct s3_profiles *profiles)
{
    static const char *const names[] = {"default", "p", "other", ""};
    static const char *const keys[] = {"aws_access_key_id", "aws_secret_access_key", "region",
                                       "s3.endpoint_url", "role_arn"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        bool has = s3_profiles_has(profiles, names[i]);
        for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
            const char *value = s3_profiles_get(profiles, names[i], keys[k]);
            check(!value || (has && *value));
            value = s3_profiles_get_service(profiles, names[i], keys[k]);
            check(!value || *value);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t len = zero ? (size_t)(zero - data) : size;
    struct s3_profiles *profiles;
    char *error = NULL;
    put(config_fd, data, len);
    put(credentials_fd, data + len + (zero != NULL), size - len - (zero != NULL));
    if (s3_profiles_read(&profiles, &error) == 0) {
        ask(profiles);
        s3_profiles_free(profiles);
    } else {
        check(error && !strchr(error, '\n'));
    }
    free(error);
    return 0;
}
