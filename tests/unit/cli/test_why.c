// SPDX-License-Identifier: Apache-2.0
/* `cairn du --why` over the answers of a daemon, which are given here: what is added up, and whose
 * the bases are said to be. */
#include "cli/why.h"

#include "../expect.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "daemon/control.h"

#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define C "cccccccccccccccccccccccccccccccc"
#define D "dddddddddddddddddddddddddddddddd"

/* --- in the place of the socket --------------------------------------------------------------- */

static const char *survey_reply;
static const char *users_replies[3];
static unsigned asked_users;
static char users_chunks[3][200];

int ask_daemon(const char *command, const char *store, const char *name, cJSON *request,
               cJSON **ret_reply)
{
    (void)command;
    (void)store;
    const char *reply = survey_reply;
    if (strcmp(name, "users") == 0) {
        _cleanup_free_ char *chunks =
            cJSON_PrintUnformatted(cJSON_GetObjectItem(request, "chunks"));
        (void)snprintf(users_chunks[asked_users], sizeof users_chunks[0], "%s", chunks);
        reply = users_replies[asked_users++];
    }
    cJSON_Delete(request);
    *ret_reply = cJSON_Parse(reply);
    cr_assert_not_null(*ret_reply);
    return 0;
}

int complain_answer(const char *command, const char *store)
{
    (void)command;
    (void)store;
    return CLI_FAILED;
}

int complain(const char *name, const char *fmt, ...)
{
    (void)name;
    (void)fmt;
    return CLI_FAILED;
}

void interrupt_catch(bool once)
{
    (void)once;
}

bool interrupt_sleep_ms(unsigned ms)
{
    (void)ms;
    return true;
}

int target_of_path(const struct command *command, const char *path, struct target *ret_target,
                   uint64_t *ret_ino)
{
    (void)command;
    (void)path;
    (void)ret_target;
    *ret_ino = 0;
    return CLI_FAILED;
}

void target_done(struct target *target)
{
    (void)target;
}

/* --- tests ------------------------------------------------------------------------------------ */

static const struct command du = {.name = "du"};

/* The file /run/b of four chunks: A shared with others, B as it is, C a difference to D, D a
 * rounded image's twin of A and B. */
static struct survey_sum walk(int expected)
{
    struct survey_sum sum;
    cJSON *root =
        cJSON_Parse("{\"path\":\"/run/b\",\"type\":\"file\",\"ino\":5,\"size_bytes\":4000,"
                    "\"links\":1}");
    survey_reply = "{\"done\":1,\"found\":[],\"chunks\":["
                   "\"" A ":2:1:1000:1000:900:3:2:900:2\","
                   "\"" B ":1:1:1000:1000:800:1:2\","
                   "\"" C ":1:1:1000:1000:700:3:2:300:4:" D "\","
                   "\"" D ":1:1:1000:1000:500:2:3:500:3:" A ":" B "\"]}";
    expect_i64(survey_walk(&du, "/store", root, &sum), expected);
    cJSON_Delete(root);
    return sum;
}

Test(why, forms_are_those_of_the_tier)
{
    struct survey_sum sum = walk(CLI_OK);
    expect_u64(sum.unique_bytes, 4000);
    expect_u64(sum.stored_bytes, 900 + 800 + 700 + 500);
    expect_u64(sum.nvme_bytes, 900 + 800 + 700);
    expect_u64(sum.remote_bytes, 900 + 300 + 500);
    expect_u64(sum.freed_nvme_bytes, 800 + 700);
    expect_u64(sum.freed_remote_bytes, 300 + 500);
    expect_u64(sum.nvme_forms[ENCODING_FX].raw, 3000);
    expect_u64(sum.nvme_forms[ENCODING_FX].stored, 2400);
    expect_u64(sum.nvme_forms[ENCODING_TWIN].raw, 0);
    expect_u64(sum.remote_forms[ENCODING_DX].raw, 1000);
    expect_u64(sum.remote_forms[ENCODING_DX].stored, 300);
    expect_u64(sum.remote_forms[ENCODING_TWIN].stored, 500);
    expect_u64(sum.remote_forms[ENCODING_FX].raw, 1000);
    expect_u64(sum.shared_bytes, 1000);
    assert_u64(sum.shared.count, 1);
    expect_str(sum.shared.at[0].name, A);
    assert_u64(sum.bases.count, 3);
    expect_str(sum.bases.at[0].name, A);
    expect_str(sum.bases.at[2].name, D);
    expect_u64(sum.bases.at[2].encoding, ENCODING_DX);
}

static void expect_path(const cJSON *array, int i, const char *path, double share)
{
    const cJSON *one = cJSON_GetArrayItem(array, i);
    cr_assert_not_null(one);
    const char *is = json_text(one, "path");
    expect_str(is ? is : "none", path);
    cr_expect_float_eq(cJSON_GetObjectItem(one, "share")->valuedouble, share, 0.001);
}

Test(why, a_daemon_that_does_not_know_forms_of_the_remote_is_understood)
{
    struct survey_sum sum;
    cJSON *root =
        cJSON_Parse("{\"path\":\"/f\",\"type\":\"file\",\"ino\":5,\"size_bytes\":1,\"links\":1}");
    survey_reply = "{\"done\":1,\"found\":[],\"chunks\":[\"" A ":1:1:10:10:5:3:2\"]}";
    expect_i64(survey_walk(&du, "/store", root, &sum), CLI_OK);
    expect_u64(sum.remote_bytes, 5);
    expect_u64(sum.remote_forms[ENCODING_FX].stored, 5);
    static const char *const bad[] = {":1:9", ":1:", "x", ":1:9:" A ":" A ":" A ":" A ":" A,
                                      ":1:9:ab"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        _cleanup_free_ char *reply =
            xasprintf("{\"done\":1,\"found\":[],\"chunks\":[\"" A ":1:1:10:10:5:%d:2%s\"]}",
                      i ? 3 : 1, bad[i]);
        survey_reply = reply;
        expect_i64(survey_walk(&du, "/store", root, &sum), CLI_FAILED, "%s", bad[i]);
    }
    cJSON_Delete(root);
}

Test(why, files_of_bases_and_shared_chunks_are_told)
{
    struct survey_sum sum = walk(CLI_OK);
    cJSON *root = cJSON_Parse("{\"path\":\"/run/b\"}"), *why = cJSON_CreateObject();
    /* In two portions; no other file has D. Of A the file itself says nothing new. */
    users_replies[0] = "{\"at\":7,\"users\":[{\"chunk\":0,\"path\":\"/run/b\"}]}";
    users_replies[1] =
        "{\"users\":[{\"chunk\":1,\"path\":\"/run/a\"},{\"chunk\":0,\"path\":\"/x\"}]}";
    users_replies[2] =
        "{\"users\":[{\"chunk\":0,\"path\":\"/run/b\"},{\"chunk\":0,\"path\":\"/run/bc\"}]}";
    expect_i64(why_report(&du, "/store", root, &sum, why), CLI_OK);
    expect_str(users_chunks[0], "[\"" A "\",\"" B "\",\"" D "\"]");
    expect_str(users_chunks[1], users_chunks[0]);
    expect_str(users_chunks[2], "[\"" A "\"]");
    const cJSON *bases = json_part(why, "bases");
    const cJSON *twin = json_part(bases, "twin"), *dx = json_part(bases, "dx");
    expect_u64((uint64_t)cJSON_GetArraySize(twin), 2);
    bool first = strcmp(json_text(cJSON_GetArrayItem(twin, 0), "path"), "/run/b") == 0;
    expect_path(twin, first ? 0 : 1, "/run/b", 0.5);
    expect_path(twin, first ? 1 : 0, "/run/a", 0.5);
    expect_u64((uint64_t)cJSON_GetArraySize(dx), 1);
    expect_path(dx, 0, "none", 1);
    expect_path(json_part(why, "shared_with"), 0, "/run/bc", 1);
    expect_u64(json_count(why, "shared_bytes"), 1000);
    cJSON_Delete(root);
    cJSON_Delete(why);
}

Test(why, answers_that_make_no_sense_are_no_answers)
{
    struct survey_sum sum = walk(CLI_OK);
    cJSON *root = cJSON_Parse("{\"path\":\"/run/b\"}"), *why = cJSON_CreateObject();
    static const char *const bad[] = {"{\"users\":[{\"chunk\":3,\"path\":\"/a\"}]}",
                                      "{\"users\":[{\"chunk\":0}]}", "{\"at\":0,\"users\":[]}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        asked_users = 0;
        users_replies[0] = bad[i];
        expect_i64(why_report(&du, "/store", root, &sum, why), CLI_FAILED, "%s", bad[i]);
    }
    cJSON_Delete(root);
    cJSON_Delete(why);
}

Test(why, a_sample_has_the_smallest_names)
{
    struct survey_sum sum;
    cJSON *root =
        cJSON_Parse("{\"path\":\"/f\",\"type\":\"file\",\"ino\":5,\"size_bytes\":1,\"links\":1}");
    cJSON *reply = cJSON_Parse("{\"done\":1,\"found\":[]}"),
          *rows = cJSON_AddArrayToObject(reply, "chunks");
    for (unsigned i = 0; i < 1000; i++) {
        _cleanup_free_ char *row =
            xasprintf("%032x:1:1:10:10:5:2:4:5:4:%032x", i, 1000 + i * 7 % 500);
        cJSON_AddItemToArray(rows, cJSON_CreateString(row));
    }
    _cleanup_free_ char *text = cJSON_PrintUnformatted(reply);
    survey_reply = text;
    expect_i64(survey_walk(&du, "/store", root, &sum), CLI_OK);
    assert_u64(sum.bases.count, SURVEY_SAMPLE_MAX);
    for (unsigned i = 0; i < SURVEY_SAMPLE_MAX; i++) {
        _cleanup_free_ char *name = xasprintf("%032x", 1000 + i);
        expect_str(sum.bases.at[i].name, name);
        expect_u64(sum.bases.at[i].bytes, 20);
    }
    cJSON_Delete(reply);
    cJSON_Delete(root);
}
