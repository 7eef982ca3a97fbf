// SPDX-License-Identifier: Apache-2.0
#include "tier/s3/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>

void s3_secret_free(char **secret)
{
    if (*secret)
        OPENSSL_cleanse(*secret, strlen(*secret));
    free(*secret);
    *secret = NULL;
}

char *s3_secret_join(const char *a, const char *b)
{
    char *joined = xmalloc(strlen(a) + strlen(b) + 1);
    strcpy(stpcpy(joined, a), b);
    return joined;
}

bool s3_secret_is_plain(const char *text)
{
    if (!text || *text == '\0')
        return false;
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

/* Reads to the end or to `size` bytes. Returns the number of bytes or -errno. */
static ssize_t read_all(int fd, char *to, size_t size)
{
    size_t len = 0;
    while (len < size) {
        ssize_t n = read(fd, to + len, size - len);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            break;
        if (n > 0)
            len += (size_t)n;
    }
    return (ssize_t)len;
}

int s3_secret_read(const char *path, size_t max, char **ret_text, size_t *ret_len)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    /* one extra byte, to detect a file that is too long; a pipe has no length */
    char *text = xmalloc(max + 1);
    ssize_t len = read_all(fd, text, max + 1);
    if (len < 0 || (size_t)len > max) {
        OPENSSL_cleanse(text, max + 1);
        free(text);
        return len < 0 ? (int)len : -EFBIG;
    }
    text[len] = '\0';
    *ret_text = text;
    if (ret_len)
        *ret_len = (size_t)len;
    return 0;
}
