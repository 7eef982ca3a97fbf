// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "tier/s3/internal.h"
#include "tier/xml.h"

#define BATCH_MAX 1000 /* of DeleteObjects */

int s3_remove(struct tier *tier, const char *object)
{
    struct s3_request q = {.method = "DELETE", .object = object};
    _cleanup_(http_response_done) struct http_response response = {0};
    int r = s3_call(s3_of(tier), &q, &response);
    return r == -ENOENT ? 0 : r;
}

static int remove_singly(struct s3 *s3, const char *const *objects, size_t count)
{
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++)
        r = s3_remove(&s3->tier, objects[i]);
    return r;
}

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("<>&\"'", *text))
            (void)fprintf(out, "&#%d;", *text);
        else
            (void)fputc(*text, out);
    }
}

static char *make_body(const struct s3 *s3, const char *const *objects, size_t count,
                       size_t *ret_len)
{
    char *text;
    FILE *out = open_memstream(&text, ret_len);
    check(out);
    (void)fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
                "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>",
                out);
    for (size_t i = 0; i < count; i++) {
        (void)fputs("<Object><Key>", out);
        put_escaped(out, s3->place.prefix);
        (void)fputs(*s3->place.prefix ? "/" : "", out);
        put_escaped(out, objects[i]);
        (void)fputs("</Key></Object>", out);
    }
    (void)fputs("</Delete>", out);
    bool complete = !ferror(out) && fclose(out) == 0;
    check(complete);
    return text;
}

struct refusals {
    struct s3 *s3;
    const char *const *objects;
    size_t count;
    char *key, *code;
    const char **again; /* some of `objects`, to be removed one by one */
    size_t again_count;
    bool is_result;
    int error; /* the first error that is not worth a retry */
};

static const char *find_object(const struct refusals *f)
{
    const char *prefix = f->s3->place.prefix;
    size_t len = strlen(prefix);
    if (!f->key || (len && (strncmp(f->key, prefix, len) != 0 || f->key[len] != '/')))
        return NULL;
    const char *name = f->key + (len ? len + 1 : 0);
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->objects[i], name) == 0)
            return f->objects[i];
    return NULL;
}

static int end_refusal(struct refusals *f)
{
    const char *object = find_object(f);
    const struct s3_rule *rule = s3_rule_of(200, f->code ? f->code : "");
    if (!object)
        return -EPROTO;
    if (rule->error == -ENOENT)
        return 0;
    if (rule->action == S3_FAIL) {
        f->error = f->error ? f->error : rule->error;
        s3_set_error(f->s3, "DELETE", object, "answered %s%s%s", f->code ? f->code : "",
                     rule->advice ? "; " : "", rule->advice ? rule->advice : "");
    } else if (f->again_count < f->count) {
        f->again[f->again_count++] = object;
    }
    return 0;
}

static int on_element(const char *path, const char *value, void *arg)
{
    struct refusals *f = arg;
    f->is_result |= strncmp(path, "DeleteResult", 12) == 0;
    if (strcmp(path, "DeleteResult/Error") == 0) {
        int r = end_refusal(f);
        free(f->key);
        free(f->code);
        f->key = f->code = NULL;
        return r;
    }
    char **text = strcmp(path, "DeleteResult/Error/Key") == 0    ? &f->key
                  : strcmp(path, "DeleteResult/Error/Code") == 0 ? &f->code
                                                                 : NULL;
    if (text) {
        free(*text);
        *text = xstrdup(value);
    }
    return 0;
}

static int settle_refusals(struct s3 *s3, const char *const *objects, size_t count,
                           const struct http_response *response)
{
    struct refusals f = {.s3 = s3, .objects = objects, .count = count};
    _cleanup_free_ const char **again = xcalloc(count, sizeof *again);
    f.again = again;
    int r = response->text.count ? xml_read(response->text.at, response->text.count, on_element, &f)
                                 : -EPROTO;
    free(f.key);
    free(f.code);
    if (r < 0 || !f.is_result) {
        s3_set_error(s3, "POST", "?delete", "the response does not say what was deleted");
        return -EPROTO;
    }
    r = remove_singly(s3, f.again, f.again_count);
    return f.error ? f.error : r;
}

static int remove_batch(struct s3 *s3, const char *const *objects, size_t count)
{
    size_t len;
    _cleanup_free_ char *body = make_body(s3, objects, count, &len);
    struct s3_request q = {
        .method = "POST",
        .query = "delete=",
        .headers = {"Content-Type: application/xml"},
        .body = body,
        .body_len = len,
        .wants_md5 = true,
    };
    _cleanup_(http_response_done) struct http_response response = {0};
    TRY(s3_call(s3, &q, &response));
    return settle_refusals(s3, objects, count, &response);
}

static bool deletes_singly(struct s3 *s3)
{
    LOCK_SCOPE(&s3->locked.lock);
    return s3->locked.single_deletes;
}

int s3_remove_many(struct tier *tier, const char *const *objects, size_t count)
{
    struct s3 *s3 = s3_of(tier);
    while (count > 0) {
        size_t batch = (size_t)min_u64(count, BATCH_MAX);
        int r = deletes_singly(s3) ? -EOPNOTSUPP : remove_batch(s3, objects, batch);
        if (r == -EOPNOTSUPP) {
            mutex_lock(&s3->locked.lock);
            s3->locked.single_deletes = true;
            mutex_unlock(&s3->locked.lock);
            r = remove_singly(s3, objects, batch);
        }
        if (r < 0)
            return r;
        objects += batch;
        count -= batch;
    }
    return 0;
}
