// SPDX-License-Identifier: Apache-2.0
/* Options as -o takes them, sizes and times, addresses of remotes and of metrics, SOURCE:PATH. */
#include "daemon/options.h"

#include "daemon/metrics_server.h"
#include "daemon/offline.h"
#include "daemon/remote_address.h"
#include "fuzz.h"

static bool is_in_range(const struct mount_options *o, const struct option_spec *spec)
{
    const void *field = (const char *)o + spec->offset;
    uint64_t amount;
    const char *text;
    switch (spec->kind) {
    case OPTION_SIZE:
    case OPTION_DURATION:
    case OPTION_COUNT:
        memcpy(&amount, field, sizeof amount);
        return amount == 0 || (amount >= spec->min && amount <= spec->max);
    case OPTION_STRING:
    case OPTION_PATH:
        text = *(char *const *)field;
        return !text || (strlen(text) >= spec->min && strlen(text) <= spec->max);
    default:
        return true;
    }
}

static void set(const char *list)
{
    struct mount_options o;
    char *error = NULL;
    options_init(&o);
    int r = options_set_list(&o, list, false, &error);
    check((r < 0) == (error != NULL));
    for (const struct option_spec *spec = option_table; spec->name && r == 0; spec++)
        check(is_in_range(&o, spec));
    if (r == 0)
        r = options_finish(&o, &error);
    check((r < 0) == (error != NULL));
    free(error);
    options_done(&o);
}

static void amounts(const char *text)
{
    uint64_t bytes;
    int64_t ns;
    check(parse_size(text, &bytes) < 0 || bytes < (uint64_t)INT64_MAX);
    check(parse_duration(text, &ns) < 0 || ns >= 0);
}

/* What is shown of an address is that address. */
static void address(const char *text)
{
    struct remote_address a, b;
    char *error = NULL;
    if (remote_address_parse(text, &a, &error) < 0) {
        check(error && !a.text);
        free(error);
        return;
    }
    check(remote_address_parse(a.text, &b, &error) == 0 && a.kind == b.kind &&
          strcmp(a.text, b.text) == 0);
    check(a.kind == REMOTE_KIND_S3
              ? strcmp(a.bucket, b.bucket) == 0 && strcmp(a.prefix, b.prefix) == 0
              : strcmp(a.path, b.path) == 0);
    remote_address_done(&a);
    remote_address_done(&b);
}

static void metrics(const char *text)
{
    struct metrics_address a;
    if (metrics_address_parse(text, &a) < 0)
        return;
    bool is_v6 = a.socket.any.sa_family == AF_INET6;
    check(is_v6 || a.socket.any.sa_family == AF_INET);
    check((is_v6 ? a.socket.v6.sin6_port : a.socket.v4.sin_port) != 0);
}

static void source(const char *text)
{
    char *name, *path;
    offline_split(text, &name, &path);
    check(strncmp(text, name, strlen(name)) == 0 && *path);
    check(text[strlen(name)] == ':' || text[strlen(name)] == '\0');
    free(name);
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = text_copy(data, size);
    set(text);
    amounts(text);
    address(text);
    metrics(text);
    source(text);
    free(text);
    return 0;
}
