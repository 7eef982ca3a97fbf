// SPDX-License-Identifier: Apache-2.0
/* What an S3 answers: lists of objects (several pages), what was deleted, errors, and what STS
 * gives. The first byte says which; a zero byte ends an answer. The answers take the place of
 * s3_call(), so what goes over the network is not part of it. */
#include "tier/s3/credentials_sts.c"

#include "fuzz.h"
#include "tier/s3/internal.h"

#define PREFIX "runs/a"
#define CALLS_MAX 16u

static struct input answers;
static unsigned calls;

int s3_call(struct s3 *s3, const struct s3_request *request, struct http_response *ret_response)
{
    (void)s3, (void)request;
    const uint8_t *end = answers.left ? memchr(answers.at, 0, answers.left) : NULL;
    size_t len = end ? (size_t)(end - answers.at) : answers.left;
    *ret_response = (struct http_response){.status = 200};
    if (calls++ == CALLS_MAX)
        return -ETIMEDOUT;
    ret_response->text.at = len ? text_copy(answers.at, len) : NULL;
    ret_response->text.count = len;
    (void)input_bytes(&answers, end ? len + 1 : len);
    return 0;
}

void s3_set_error(struct s3 *s3, const char *method, const char *object, const char *fmt, ...)
{
    (void)s3, (void)method, (void)object, (void)fmt;
}

static int on_object(const struct tier_object *object, void *arg)
{
    char **last = arg;
    check(strncmp(object->name, "packs/", 6) == 0);
    check(!*last || strcmp(object->name, *last) > 0);
    free(*last);
    *last = xstrdup(object->name);
    return 0;
}

static void list(struct s3 *s3)
{
    char *last = NULL;
    (void)s3_list(&s3->tier, "packs", NULL, on_object, &last);
    free(last);
}

static void remove_some(struct s3 *s3)
{
    static const char *const objects[] = {"packs/1", "packs/2", "runs/<&>", "heads/1"};
    (void)s3_remove_many(&s3->tier, objects, ARRAY_LEN(objects));
}

static bool is_plain(const char *text)
{
    while (*text && (unsigned char)*text >= ' ' && *text != 127)
        text++;
    return *text == '\0';
}

static void read_error(struct input *in)
{
    struct s3_error error;
    long status = input_u16(in);
    char *text = text_copy(in->at, in->left);
    bool is_error = s3_error_parse(text, in->left, &error);
    check(is_error || (!*error.code && !*error.message && !*error.region));
    check(is_plain(error.code) && is_plain(error.message) && is_plain(error.region));
    check(s3_rule_of(status, error.code)->error <= 0);
    free(text);
}

static void read_sts(struct input *in)
{
    struct s3_credentials credentials = {0};
    char *text = text_copy(in->at, in->left), *error = NULL;
    struct http_response response = {.status = 200, .text = {.at = text, .count = in->left}};
    if (read_sts_answer(&response, "test", &credentials, &error) == 0)
        check(s3_secret_is_plain(credentials.key_id) && s3_secret_is_plain(credentials.secret) &&
              !error);
    else
        check(error && is_plain(error) && !credentials.key_id);
    s3_credentials_done(&credentials);
    free(error);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct s3 s3 = {.place = {.prefix = (char[]){PREFIX}}};
    struct input in = {data, size};
    uint8_t what = input_u8(&in);
    calls = 0;
    answers = in;
    mutex_init(&s3.locked.lock, LOCK_LEAF);
    switch (what % 4) {
    case 0:
        list(&s3);
        break;
    case 1:
        remove_some(&s3);
        break;
    case 2:
        read_error(&in);
        break;
    default:
        read_sts(&in);
    }
    mutex_done(&s3.locked.lock);
    return 0;
}
