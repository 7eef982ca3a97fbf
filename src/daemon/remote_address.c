// SPDX-License-Identifier: Apache-2.0
#include "daemon/remote_address.h"

#include <ctype.h>

#include "base/text.h"

#define BUCKET_MIN 3
#define BUCKET_MAX 255 /* old names are longer than those allowed today */
#define PREFIX_MAX 512 /* keys have at most 1024 bytes, and ours follow the prefix */

bool remote_address_is(const char *text)
{
    return strncmp(text, "s3://", 5) == 0 || strncmp(text, "dir:", 4) == 0;
}

static bool has_control(const char *text)
{
    while (*text && !iscntrl((unsigned char)*text))
        text++;
    return *text != '\0';
}

static char *without_slashes(const char *text)
{
    text += strspn(text, "/");
    size_t len = strlen(text);
    while (len > 0 && text[len - 1] == '/')
        len--;
    return xasprintf("%.*s", (int)len, text);
}

static bool is_bucket(const char *name)
{
    size_t len = strlen(name);
    if (len < BUCKET_MIN || len > BUCKET_MAX || !isalnum((unsigned char)name[0]))
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("._-", *name))
            return false;
    return true;
}

/* `rest`: BUCKET[/PREFIX] */
static int parse_s3(const char *rest, struct remote_address *ret, char **ret_error)
{
    size_t len = strcspn(rest, "/");
    ret->kind = REMOTE_KIND_S3;
    ret->bucket = xasprintf("%.*s", (int)len, rest);
    ret->prefix = without_slashes(rest + len);
    if (strpbrk(ret->bucket, "@:"))
        return text_fail(
            ret_error, -EINVAL,
            "option remote: credentials, host and port are not allowed in s3://BUCKET/PREFIX; "
            "credentials are found as AWS tools do, the host is option endpoint_url");
    if (!is_bucket(ret->bucket))
        return text_fail(ret_error, -EINVAL,
                         "option remote: '%s' is not a bucket name; give s3://BUCKET/PREFIX",
                         ret->bucket);
    if (strlen(ret->prefix) > PREFIX_MAX || has_control(ret->prefix) || strstr(ret->prefix, "//"))
        return text_fail(ret_error, -EINVAL,
                         "option remote: the prefix in bucket %s is too long, or has // or control "
                         "characters in it; give s3://BUCKET/PREFIX",
                         ret->bucket);
    ret->text = xasprintf("s3://%s%s%s", ret->bucket, *ret->prefix ? "/" : "", ret->prefix);
    return 0;
}

static int parse_dir(const char *path, struct remote_address *ret, char **ret_error)
{
    ret->kind = REMOTE_KIND_DIR;
    if (*path == '\0' || has_control(path))
        return text_fail(ret_error, -EINVAL, "option remote: dir: without a path; give dir:/PATH");
    _cleanup_free_ char *directory = *path == '/' ? xstrdup("") : getcwd(NULL, 0);
    if (!directory)
        return text_fail(
            ret_error, -EINVAL,
            "option remote=dir:%s: the working directory no longer exists; give dir:/PATH", path);
    _cleanup_free_ char *inner = without_slashes(path);
    if (*inner == '\0')
        return text_fail(
            ret_error, -EINVAL,
            "option remote=dir:/: the root directory cannot be a remote; give dir:/PATH");
    ret->path = xasprintf("%s/%s", directory, inner);
    ret->text = xasprintf("dir:%s", ret->path);
    return 0;
}

int remote_address_parse(const char *text, struct remote_address *ret, char **ret_error)
{
    *ret = (struct remote_address){0};
    int r;
    if (strncmp(text, "s3://", 5) == 0)
        r = parse_s3(text + 5, ret, ret_error);
    else if (strncmp(text, "dir:", 4) == 0)
        r = parse_dir(text + 4, ret, ret_error);
    else
        r = text_fail(ret_error, -EINVAL,
                      "option remote: unknown scheme; give s3://BUCKET/PREFIX or dir:/PATH");
    if (r < 0)
        remote_address_done(ret);
    return r;
}

void remote_address_done(struct remote_address *address)
{
    free(address->text);
    free(address->bucket);
    free(address->prefix);
    free(address->path);
    *address = (struct remote_address){0};
}
