// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "base/hex.h"
#include "base/vector.h"
#include "tier/s3/credentials_source.h"
#include "tier/s3/internal.h"
#include "tier/s3/sign.h"
#include "tier/xml.h"

#define EMPTY_PAGES_MAX 100u

struct found {
    char *key; /* as received: with the prefix, perhaps encoded */
    uint64_t len;
    int64_t modified_ns;
};

struct page {
    VECTOR(struct found) found;
    struct found next; /* being parsed */
    char *token;
    bool is_list, is_encoded, is_truncated;
};

static void page_done(struct page *page)
{
    for (size_t i = 0; i < page->found.count; i++)
        free(page->found.at[i].key);
    vector_free(&page->found);
    free(page->next.key);
    free(page->token);
    *page = (struct page){0};
}

static int end_object(struct page *page)
{
    if (!page->next.key)
        return -EPROTO;
    vector_add(&page->found, page->next);
    page->next = (struct found){0};
    return 0;
}

static int read_length(struct page *page, const char *value)
{
    char *end;
    errno = 0;
    page->next.len = strtoull(value, &end, 10);
    return errno == 0 && end != value && *end == '\0' && *value != '-' ? 0 : -EPROTO;
}

static void replace_text(char **text, const char *value)
{
    free(*text);
    *text = xstrdup(value);
}

static int on_element(const char *path, const char *value, void *arg)
{
    static const char root[] = "ListBucketResult";
    struct page *page = arg;
    if (strncmp(path, root, sizeof root - 1) != 0)
        return -EPROTO;
    path += sizeof root - 1;
    page->is_list = true;
    if (strcmp(path, "/Contents") == 0 || strcmp(path, "/CommonPrefixes") == 0)
        return end_object(page);
    if (strcmp(path, "/Contents/Size") == 0)
        return read_length(page, value);
    if (strcmp(path, "/Contents/Key") == 0 || strcmp(path, "/CommonPrefixes/Prefix") == 0)
        replace_text(&page->next.key, value);
    else if (strcmp(path, "/Contents/LastModified") == 0 &&
             s3_time_parse(value, &page->next.modified_ns) < 0)
        page->next.modified_ns = 0;
    else if (strcmp(path, "/NextContinuationToken") == 0)
        replace_text(&page->token, value);
    else if (strcmp(path, "/EncodingType") == 0)
        page->is_encoded = strcmp(value, "url") == 0;
    else if (strcmp(path, "/IsTruncated") == 0)
        page->is_truncated = strcmp(value, "true") == 0;
    return 0;
}

/* Decodes in place. '+' means a blank; a real '+' is encoded as %2B. */
static int decode_key(char *text)
{
    char *to = text;
    for (; *text; text++) {
        if (*text != '%') {
            *to++ = *text == '+' ? ' ' : *text;
            continue;
        }
        int high = hex_digit(text[1]), low = high < 0 ? -1 : hex_digit(text[2]);
        if (low < 0 || (high == 0 && low == 0))
            return -EPROTO;
        *to++ = (char)(high << 4 | low);
        text += 2;
    }
    *to = '\0';
    return 0;
}

struct walk {
    struct s3 *s3;
    const char *directory, *after;
    char *key_prefix; /* common to all keys: prefix and directory, '/' at its end */
    size_t own_len;   /* length of the prefix in it, '/' included */
    char *last;       /* the last object of earlier pages; NULL: none */
    bool is_level;    /* deeper keys are grouped into one name with '/' at its end */
    int (*fn)(const struct tier_object *object, void *arg);
    void *arg;
};

static void add_param(FILE *out, const char *name, const char *value)
{
    _cleanup_free_ char *encoded = s3_uri_encode(value, false);
    (void)fprintf(out, "&%s=%s", name, encoded);
}

/* Continues with the server's token or, without one, after the last name. */
static char *make_query(const struct walk *w, const char *token)
{
    char *text;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    check(out);
    const char *after = w->last ? w->last : w->after;
    (void)fputs("list-type=2&encoding-type=url&max-keys=1000", out);
    add_param(out, "prefix", w->key_prefix);
    if (w->is_level)
        add_param(out, "delimiter", "/");
    if (token) {
        add_param(out, "continuation-token", token);
    } else if (after) {
        _cleanup_free_ char *key = xasprintf("%.*s%s", (int)w->own_len, w->key_prefix, after);
        add_param(out, "start-after", key);
    }
    bool complete = !ferror(out) && fclose(out) == 0;
    check(complete);
    return text;
}

static int fetch_page(struct walk *w, const char *token, struct page *page)
{
    _cleanup_free_ char *query = make_query(w, token);
    struct s3_request q = {.method = "GET", .query = query};
    _cleanup_(http_response_done) struct http_response response = {0};
    TRY(s3_call(w->s3, &q, &response));
    int r = response.text.count ? xml_read(response.text.at, response.text.count, on_element, page)
                                : -EPROTO;
    if (r == 0 && page->is_list)
        return 0;
    s3_set_error(w->s3, "GET", w->directory, "the response is not a list of objects; %s",
                 s3_advice_of_errno(-EPROTO));
    return -EPROTO;
}

/* Checks the order, on which callers rely so as not to miss an object: a server that does not sort
 * is detected here. */
static int give_object(struct walk *w, struct found *found, bool is_encoded)
{
    int r = is_encoded ? decode_key(found->key) : 0;
    if (r < 0 || strncmp(found->key, w->key_prefix, strlen(w->key_prefix)) != 0) {
        s3_set_error(w->s3, "GET", w->directory, "the list contains a name that was not requested");
        return -EPROTO;
    }
    struct tier_object object = {found->key + w->own_len, found->len, found->modified_ns};
    if (w->is_level) /* objects and groups are two separate lists */
        return *object.name ? w->fn(&object, w->arg) : 0;
    if (w->last && strcmp(object.name, w->last) <= 0) {
        s3_set_error(w->s3, "GET", w->directory, "the list is out of order at %s", object.name);
        return -EPROTO;
    }
    replace_text(&w->last, object.name);
    /* created by consoles to show a directory */
    bool is_marker = object.name[strlen(object.name) - 1] == '/';
    if (is_marker || (w->after && strcmp(object.name, w->after) <= 0))
        return 0;
    return w->fn(&object, w->arg);
}

/* Returns 1 if the callback ended the list. */
static int give_page(struct walk *w, struct page *page)
{
    int r = 0;
    for (size_t i = 0; i < page->found.count && r == 0; i++)
        r = give_object(w, &page->found.at[i], page->is_encoded);
    return r;
}

/* A page that announces another one must have names or a new token, and at most EMPTY_PAGES_MAX - 1
 * pages in a row may be without names. */
static bool list_goes_on(const struct page *page, const char *token, unsigned *empty_pages)
{
    *empty_pages = page->found.count ? 0 : *empty_pages + 1;
    if (*empty_pages == EMPTY_PAGES_MAX)
        return false;
    return page->token ? !token || strcmp(page->token, token) != 0 : page->found.count > 0;
}

static int walk_pages(struct walk *w)
{
    _cleanup_free_ char *token = NULL;
    unsigned empty_pages = 0;
    for (;;) {
        struct page page = {0};
        int r = fetch_page(w, token, &page);
        if (r == 0)
            r = give_page(w, &page);
        bool more = r == 0 && page.is_truncated;
        bool goes_on = list_goes_on(&page, token, &empty_pages);
        free(token);
        token = page.token;
        page.token = NULL;
        page_done(&page);
        if (!more)
            return r;
        if (!goes_on) {
            s3_set_error(w->s3, "GET", w->directory, "the list does not end");
            return -EPROTO;
        }
    }
}

/* If the server sends no tokens, only the first page can be listed: there is no name to continue
 * after. */
int s3_list_level(struct tier *tier, const char *directory,
                  int (*fn)(const struct tier_object *object, void *arg), void *arg)
{
    struct s3 *s3 = s3_of(tier);
    const char *prefix = s3->place.prefix;
    struct walk w = {.s3 = s3, .directory = directory, .fn = fn, .arg = arg, .is_level = true};
    const char *between = *prefix && *directory ? "/" : "", *end = *prefix || *directory ? "/" : "";
    w.key_prefix = xasprintf("%s%s%s%s", prefix, between, directory, end);
    w.own_len = strlen(w.key_prefix);
    int r = walk_pages(&w);
    free(w.key_prefix);
    return r < 0 ? r : 0;
}

int s3_list(struct tier *tier, const char *directory, const char *after,
            int (*fn)(const struct tier_object *object, void *arg), void *arg)
{
    struct s3 *s3 = s3_of(tier);
    const char *prefix = s3->place.prefix;
    struct walk w = {.s3 = s3, .directory = directory, .after = after, .fn = fn, .arg = arg};
    w.own_len = *prefix ? strlen(prefix) + 1 : 0;
    w.key_prefix = xasprintf("%s%s%s/", prefix, *prefix ? "/" : "", directory);
    int r = walk_pages(&w);
    free(w.key_prefix);
    free(w.last);
    return r < 0 ? r : 0;
}
