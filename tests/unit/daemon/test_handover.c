// SPDX-License-Identifier: Apache-2.0
/* What a mount hands to another version of cairn: two versions have to agree on it, so that it is
 * pinned by a golden file. */
#include "../base/golden.h"

#include <cjson/cJSON.h>
#include <sys/mman.h>

#include "../expect.h"
#include "daemon/control.h"
#include "daemon/handover.h"
#include "stage/stage.h"

static struct mount_options options;

static void begin(void)
{
    char *error = NULL;
    options_init(&options);
    assert_i64(options_set_list(&options,
                                "stage=64M,attr_timeout=1500ms,noatime,log=/a\\,log,remote=dir:/r",
                                false, &error),
               0);
    assert_i64(options_finish(&options, &error), 0);
}

static void end(void)
{
    options_done(&options);
}

TestSuite(handover, .init = begin, .fini = end);

static struct holder_link a_holder_link(void)
{
    struct holder_link holder_link = {.link_fd = 7,
                                      .lock_fd = 6,
                                      .deaths = 2,
                                      .died_at = 123456789,
                                      .last_death = "signal 6",
                                      .upgrades = 1,
                                      .upgrade_tries = 3};
    holder_link.adopted.fd = 5;
    holder_link.adopted.passport.init_len = 104;
    for (size_t i = 0; i < 104; i++)
        holder_link.adopted.passport.init[i] = (uint8_t)i;
    for (size_t i = 0; i < FRONT_ANSWER_LEN; i++)
        holder_link.adopted.passport.answer[i] = (uint8_t)(255 - i);
    holder_link.adopted.passport.device = 42;
    holder_link.adopted.passport.mmap_shared = 1;
    return holder_link;
}

static cJSON *read_json(int fd)
{
    char text[65536] = "";
    cr_assert_gt(pread(fd, text, sizeof text - 1, 0), 0);
    cJSON *state = cJSON_Parse(text);
    cr_assert(cJSON_IsObject(state));
    return state;
}

/* As a version that is called 1.0 writes it, with its stage of version 1. */
static char *written(void)
{
    struct holder_link holder_link = a_holder_link();
    struct handover_source from = {.store = "/nvme/store",
                                   .mountpoint = "/mnt/ckpt",
                                   .options = &options,
                                   .holder_link = &holder_link,
                                   .child = 77,
                                   .served_at = 99};
    int fd;
    assert_i64(handover_write(&from, &fd), 0);
    cJSON *state = read_json(fd);
    assert_str(cJSON_GetStringValue(cJSON_GetObjectItem(state, "version")), CAIRN_VERSION);
    cJSON_ReplaceItemInObject(state, "version", cJSON_CreateString("1.0"));
    cJSON_DeleteItemFromObject(state, "stage_version");
    control_add_u64(state, "stage_version", 1);
    char *text = cJSON_PrintUnformatted(state);
    cJSON_Delete(state);
    (void)close(fd);
    return text;
}

static int from_text(const char *text)
{
    int fd = memfd_create("handover", MFD_CLOEXEC);
    assert_i64(io_pwrite_full(fd, text, strlen(text), 0), 0);
    return fd;
}

static char *golden(void)
{
    size_t len;
    return golden_read("handover", &len);
}

Test(handover, is_written_as_ever)
{
    _cleanup_free_ char *text = written();
    golden_compare("handover", text, strlen(text));
}

Test(handover, of_an_older_version_is_read)
{
    _cleanup_free_ char *text = golden();
    _cleanup_close_ int fd = from_text(text);
    struct handover h;
    struct holder_link holder_link = a_holder_link();
    char *error = NULL;
    assert_i64(handover_read(fd, &h, &error), 0, "%s", error);
    assert_str(h.store, "/nvme/store");
    assert_str(h.mountpoint, "/mnt/ckpt");
    cr_assert(h.child == 77 && h.served_at == 99 && !h.stops);
    cr_assert(h.holder_link.is_adopting && h.holder_link.is_upgrade && h.holder_link.link_fd == 7 &&
              h.holder_link.lock_fd == 6 && h.holder_link.adopted.fd == 5);
    cr_assert(h.holder_link.deaths == 2 && h.holder_link.died_at == 123456789 &&
              h.holder_link.upgrades == 1 && h.holder_link.upgrade_tries == 3);
    assert_str(h.holder_link.last_death, "signal 6");
    assert_str(h.holder_link.version_before, "1.0");
    cr_assert_arr_eq(&h.holder_link.adopted.passport, &holder_link.adopted.passport,
                     sizeof holder_link.adopted.passport);
    _cleanup_free_ char *before = options_print(&options), *after = options_print(&h.options);
    assert_str(before, after);
    handover_done(&h);
}

/* The golden state with one of its members changed is refused, in a line that says `word`; NULL: it
 * is left out. */
static void expect_refusal(const char *member, cJSON *value, const char *word)
{
    _cleanup_free_ char *text = golden();
    cJSON *state = cJSON_Parse(text);
    cJSON_DeleteItemFromObject(state, member);
    if (value)
        cJSON_AddItemToObject(state, member, value);
    _cleanup_free_ char *changed = cJSON_PrintUnformatted(state);
    cJSON_Delete(state);
    _cleanup_close_ int fd = from_text(changed);
    struct handover h;
    _cleanup_free_ char *error = NULL;
    assert_i64(handover_read(fd, &h, &error), -EPROTO, "%s", member);
    cr_assert_not_null(error);
    cr_assert_not_null(strstr(error, word), "%s: '%s' does not say '%s'", member, error, word);
    cr_assert_null(strchr(error, '\n'));
}

static cJSON *number(uint64_t value)
{
    cJSON *holder = cJSON_CreateObject();
    control_add_u64(holder, "n", value);
    cJSON *item = cJSON_DetachItemFromObject(holder, "n");
    cJSON_Delete(holder);
    return item;
}

Test(handover, of_a_newer_format_is_refused_by_name)
{
    _cleanup_free_ char *mine =
        xasprintf("the handover has format %u; version %s supports formats up to %u",
                  HANDOVER_FORMAT + 1, CAIRN_VERSION, HANDOVER_FORMAT);
    _cleanup_free_ char *stage = xasprintf("stage has version %u; version %s of cairn",
                                           stage_format_version() + 1, CAIRN_VERSION);
    expect_refusal("format", number(HANDOVER_FORMAT + 1), mine);
    expect_refusal("format", NULL, "format 0");
    expect_refusal("stage_version", number(stage_format_version() + 1), stage);
    expect_refusal("options", cJSON_CreateString("stage=64M,of_tomorrow=1"), "of_tomorrow");
}

Test(handover, that_is_not_whole_is_refused)
{
    static const char *const members[] = {"store",    "mountpoint",    "child",   "served_at",
                                          "passport", "deaths",        "died_at", "last_death",
                                          "upgrades", "upgrade_tries", "version"};
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        expect_refusal(members[i], NULL, "incomplete");
    expect_refusal("options", NULL, "missing");
    _cleanup_close_ int none = from_text("{");
    struct handover h;
    _cleanup_free_ char *error = NULL;
    assert_i64(handover_read(none, &h, &error), -EPROTO);
    assert_str(error, "no handover was found");
}
