// SPDX-License-Identifier: Apache-2.0
#include "daemon/handover.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/hex.h"
#include "base/io.h"
#include "base/text.h"
#include "daemon/control.h"
#include "stage/stage.h"

#define STATE_MAX (256 * KIB)

/* --- writing ---------------------------------------------------------------------------------- */

static void add_hex_bytes(cJSON *object, const char *name, const uint8_t *bytes, size_t len)
{
    _cleanup_free_ char *text = xmalloc(2 * len + 1);
    hex_print(text, bytes, len);
    (void)cJSON_AddStringToObject(object, name, text);
}

static void add_passport(cJSON *state, const struct front_passport *passport)
{
    cJSON *object = cJSON_AddObjectToObject(state, "passport");
    add_hex_bytes(object, "init", passport->init, passport->init_len);
    add_hex_bytes(object, "answer", passport->answer, sizeof passport->answer);
    control_add_u64(object, "device", passport->device);
    control_add_u64(object, "mmap_shared", passport->mmap_shared);
}

static void add_fd(cJSON *object, const char *name, int fd)
{
    if (fd >= 0)
        control_add_u64(object, name, (uint64_t)fd);
}

static void add_holder_link(cJSON *state, const struct holder_link *holder_link)
{
    add_fd(state, "fuse_fd", holder_link->adopted.fd);
    add_fd(state, "lock_fd", holder_link->lock_fd);
    add_fd(state, "link_fd", holder_link->link_fd);
    control_add_u64(state, "deaths", holder_link->deaths);
    if (holder_link->view_deaths) /* an older version does not count them, and ignores the field */
        control_add_u64(state, "view_deaths", holder_link->view_deaths);
    control_add_u64(state, "died_at", (uint64_t)holder_link->died_at);
    (void)cJSON_AddStringToObject(state, "last_death", holder_link->last_death);
    control_add_u64(state, "upgrades", holder_link->upgrades);
    control_add_u64(state, "upgrade_tries", holder_link->upgrade_tries);
}

static cJSON *make_state(const struct handover_source *from)
{
    cJSON *state = cJSON_CreateObject();
    _cleanup_free_ char *options = options_print(from->options);
    control_add_u64(state, "format", HANDOVER_FORMAT);
    (void)cJSON_AddStringToObject(state, "version", CAIRN_VERSION);
    control_add_u64(state, "stage_version", stage_format_version());
    (void)cJSON_AddStringToObject(state, "store", from->store);
    (void)cJSON_AddStringToObject(state, "mountpoint", from->mountpoint);
    (void)cJSON_AddStringToObject(state, "options", options);
    (void)cJSON_AddBoolToObject(state, "foreground", from->options->foreground);
    (void)cJSON_AddBoolToObject(state, "stops", from->stops);
    control_add_u64(state, "child", (uint64_t)from->child);
    control_add_u64(state, "served_at", (uint64_t)from->served_at);
    add_passport(state, &from->holder_link->adopted.passport);
    add_holder_link(state, from->holder_link);
    return state;
}

int handover_write(const struct handover_source *from, int *ret_fd)
{
    cJSON *state = make_state(from);
    _cleanup_free_ char *text = cJSON_PrintUnformatted(state);
    cJSON_Delete(state);
    _cleanup_close_ int fd = memfd_create("cairn-handover", MFD_CLOEXEC);
    if (fd < 0 || !text)
        return text ? -errno : -ENOMEM;
    int r = io_pwrite_full(fd, text, strlen(text), 0);
    if (r == 0)
        *ret_fd = take_fd(&fd);
    return r;
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool get_text(const cJSON *object, const char *name, char **ret)
{
    const char *text = json_text(object, name);
    if (text)
        *ret = xstrdup(text);
    return text != NULL;
}

static bool copy_text(const cJSON *object, const char *name, char *to, size_t capacity)
{
    const char *text = json_text(object, name);
    (void)snprintf(to, capacity, "%s", text ? text : "");
    return text != NULL;
}

static bool get_bytes(const cJSON *object, const char *name, uint8_t *to, size_t max,
                      size_t *ret_len)
{
    const char *text = json_text(object, name);
    size_t len = text ? strlen(text) : 0;
    if (len == 0 || len % 2 || len / 2 > max || !hex_read(to, text, len / 2))
        return false;
    *ret_len = len / 2;
    return true;
}

static bool get_passport(const cJSON *state, struct front_passport *ret)
{
    const cJSON *object = json_part(state, "passport");
    size_t init_len, answer_len;
    uint64_t mmap_shared;
    if (!get_bytes(object, "init", ret->init, sizeof ret->init, &init_len) ||
        !get_bytes(object, "answer", ret->answer, sizeof ret->answer, &answer_len) ||
        answer_len != sizeof ret->answer || !control_get_u64(object, "device", &ret->device) ||
        !control_get_u64(object, "mmap_shared", &mmap_shared))
        return false;
    ret->init_len = (uint32_t)init_len;
    ret->mmap_shared = mmap_shared != 0;
    return true;
}

/* Returns -1 if there is none. */
static int get_fd(const cJSON *object, const char *name)
{
    uint64_t fd;
    return control_get_u64(object, name, &fd) && fd <= INT_MAX ? (int)fd : -1;
}

static bool get_unsigned(const cJSON *object, const char *name, unsigned *ret)
{
    uint64_t value = 0;
    bool known = control_get_u64(object, name, &value);
    *ret = (unsigned)value;
    return known;
}

static bool get_holder_link(const cJSON *state, struct holder_link *ret)
{
    uint64_t died_at;
    *ret = (struct holder_link){.is_adopting = true, .is_upgrade = true};
    ret->adopted.fd = get_fd(state, "fuse_fd");
    ret->lock_fd = get_fd(state, "lock_fd");
    ret->link_fd = get_fd(state, "link_fd");
    if (!get_passport(state, &ret->adopted.passport) ||
        !get_unsigned(state, "deaths", &ret->deaths) ||
        !control_get_u64(state, "died_at", &died_at) ||
        !get_unsigned(state, "upgrades", &ret->upgrades) ||
        !get_unsigned(state, "upgrade_tries", &ret->upgrade_tries) ||
        !copy_text(state, "last_death", ret->last_death, sizeof ret->last_death) ||
        !copy_text(state, "version", ret->version_before, sizeof ret->version_before))
        return false;
    /* an older version does not count them */
    (void)get_unsigned(state, "view_deaths", &ret->view_deaths);
    ret->died_at = (int64_t)died_at;
    return true;
}

static int get_options(const cJSON *state, struct mount_options *o, char **ret_text)
{
    const char *list = json_text(state, "options");
    char *error = NULL;
    int r = list ? options_set_list(o, list, false, &error) : -EINVAL;
    o->foreground = json_true(state, "foreground");
    if (r == 0)
        r = options_finish(o, &error);
    if (r < 0)
        *ret_text = xasprintf("invalid mount options: %s", error ? error : "they are missing");
    free(error);
    return r < 0 ? -EPROTO : 0;
}

static int get_handover(const cJSON *state, struct handover *ret, char **ret_text)
{
    uint64_t format = 0, stage_version = 0, child = 0, served_at = 0;
    if (!control_get_u64(state, "format", &format) || format == 0 || format > HANDOVER_FORMAT)
        return text_fail(ret_text, -EPROTO,
                         "the handover has format %llu; version %s supports formats up to %u",
                         (unsigned long long)format, CAIRN_VERSION, HANDOVER_FORMAT);
    if (!control_get_u64(state, "stage_version", &stage_version) ||
        stage_version > stage_format_version())
        return text_fail(
            ret_text, -EPROTO,
            "the stage has version %llu; version %s of cairn supports versions up to %u",
            (unsigned long long)stage_version, CAIRN_VERSION, stage_format_version());
    if (!get_text(state, "store", &ret->store) ||
        !get_text(state, "mountpoint", &ret->mountpoint) ||
        !get_holder_link(state, &ret->holder_link) || !control_get_u64(state, "child", &child) ||
        !control_get_u64(state, "served_at", &served_at))
        return text_fail(ret_text, -EPROTO, "the handover is incomplete");
    ret->child = (pid_t)child;
    ret->served_at = (int64_t)served_at;
    ret->stops = json_true(state, "stops");
    return get_options(state, &ret->options, ret_text);
}

int handover_read(int fd, struct handover *ret, char **ret_text)
{
    _cleanup_free_ char *text = xcalloc(1, STATE_MAX + 1);
    *ret = (struct handover){.holder_link = {.link_fd = -1, .lock_fd = -1, .adopted = {.fd = -1}}};
    options_init(&ret->options);
    ssize_t n = pread(fd, text, STATE_MAX, 0);
    cJSON *state = n > 0 ? cJSON_Parse(text) : NULL;
    int r = -EPROTO;
    if (cJSON_IsObject(state))
        r = get_handover(state, ret, ret_text);
    else
        *ret_text = xstrdup("no handover was found");
    cJSON_Delete(state);
    if (r < 0)
        handover_done(ret);
    return r;
}

void handover_done(struct handover *h)
{
    free(h->store);
    free(h->mountpoint);
    options_done(&h->options);
    h->store = h->mountpoint = NULL;
}

void handover_inherit_fds(const struct holder_link *holder_link, int state_fd, bool inherit)
{
    const int fds[] = {holder_link->adopted.fd, holder_link->lock_fd, holder_link->link_fd,
                       state_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            (void)fcntl(fds[i], F_SETFD, inherit ? 0 : FD_CLOEXEC);
}
