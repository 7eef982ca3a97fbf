// SPDX-License-Identifier: Apache-2.0
#include "cli/redact.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>

#define REMOVED "[removed]"
#define SECRET_LEN_MIN 6u  /* shorter values would match everywhere */
#define SECRET_KEY_LEN 40u /* of AWS */
#define TOKEN_LEN_MIN 100u /* session tokens are longer */
#define FILE_MAX_LEN (1u << 20)

/* --- known secrets ---------------------------------------------------------------------------- */

static bool names_secret(const char *name, size_t len)
{
    static const char *const words[] = {"key", "secret", "token", "passw", "credential", "auth"};
    for (size_t at = 0; at < len; at++)
        for (size_t i = 0; i < ARRAY_LEN(words); i++)
            if (len - at >= strlen(words[i]) &&
                strncasecmp(name + at, words[i], strlen(words[i])) == 0)
                return true;
    return false;
}

static void redact_add(struct redact *redact, const char *value, size_t len)
{
    /* a path of a file that contains a secret */
    bool is_path = *value == '/' && access(value, F_OK) == 0;
    if (len < SECRET_LEN_MIN || is_path)
        return;
    char *copy = xmalloc(len + 1);
    memcpy(copy, value, len);
    copy[len] = '\0';
    vector_add(&redact->secrets, copy);
}

/* Finds "user:password" of a URL, behind its "://". */
static bool find_userinfo(const char *url, const char **ret_begin, const char **ret_end)
{
    const char *begin = strstr(url, "://");
    if (!begin)
        return false;
    begin += 3;
    const char *end = NULL;
    for (const char *c = begin; *c && !isspace((unsigned char)*c) && !strchr("\"'", *c); c++)
        end = *c == '@' ? c : end;
    *ret_begin = begin;
    *ret_end = end;
    return end != NULL;
}

static void redact_learn(struct redact *redact, const char *name, size_t name_len,
                         const char *value)
{
    const char *begin, *end;
    if (names_secret(name, name_len))
        redact_add(redact, value, strlen(value));
    if (!find_userinfo(value, &begin, &end))
        return;
    const char *colon = memchr(begin, ':', (size_t)(end - begin));
    if (colon)
        redact_add(redact, colon + 1, (size_t)(end - colon - 1));
}

void redact_learn_environment(struct redact *redact, const char *block, size_t len)
{
    for (const char *at = block; at < block + len; at += strlen(at) + 1) {
        const char *value = strchr(at, '=');
        if (value)
            redact_learn(redact, at, (size_t)(value - at), value + 1);
    }
}

void redact_learn_file(struct redact *redact, const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0, read = 0;
    ssize_t n;
    while (file && read < FILE_MAX_LEN && (n = getline(&line, &size, file)) > 0) {
        read += (size_t)n;
        char *value = strchr(line, '=');
        if (!value)
            continue;
        size_t name_len = (size_t)(value - line);
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, " \t\r\n")] = '\0';
        redact_learn(redact, line, name_len, value);
    }
    if (line)
        explicit_bzero(line, size);
    free(line);
    if (file)
        (void)fclose(file);
}

void redact_done(struct redact *redact)
{
    for (size_t i = 0; i < redact->secrets.count; i++) {
        explicit_bzero(redact->secrets.at[i], strlen(redact->secrets.at[i]));
        free(redact->secrets.at[i]);
    }
    vector_free(&redact->secrets);
}

/* --- guessed secrets -------------------------------------------------------------------------- */

static bool is_base64(char c)
{
    return isalnum((unsigned char)c) || c == '+' || c == '/' || c == '=';
}

static size_t base64_len(const char *at)
{
    size_t len = 0;
    while (is_base64(at[len]))
        len++;
    return len;
}

/* An AWS secret key, or a session token. Names of objects are hexadecimal, and paths begin with a
 * slash. */
static size_t len_of_opaque(const char *text, const char *at)
{
    size_t len = at > text && is_base64(at[-1]) ? 0 : base64_len(at);
    bool upper = false, lower = false;
    if ((len != SECRET_KEY_LEN && len < TOKEN_LEN_MIN) || *at == '/')
        return 0;
    for (size_t i = 0; i < len; i++) {
        upper |= isupper((unsigned char)at[i]) != 0;
        lower |= islower((unsigned char)at[i]) != 0;
    }
    return upper && lower ? len : 0;
}

/* Returns the length of "name=" or "name: " before a secret; 0: the name is no name of a secret. */
static size_t len_of_naming(const char *at)
{
    static const char *const names[] = {
        "secret_access_key", "secretaccesskey", "password", "passwd",
        "signature",         "authorization",   "secret",   "token"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        size_t len = strlen(names[i]);
        if (strncasecmp(at, names[i], len) != 0)
            continue;
        len += strspn(at + len, "\"' ");
        if (at[len] != '=' && at[len] != ':')
            continue;
        len++;
        return len + strspn(at + len, "\"' ");
    }
    return 0;
}

static size_t len_of_known(const struct redact *redact, const char *at)
{
    size_t longest = 0;
    for (size_t i = 0; i < redact->secrets.count; i++) {
        size_t len = strlen(redact->secrets.at[i]);
        if (len > longest && strncmp(at, redact->secrets.at[i], len) == 0)
            longest = len;
    }
    return longest;
}

/* Returns the bytes of the secret that begins here; 0: none. *ret_kept: bytes of its name before
 * it. */
static size_t len_of_secret(const struct redact *redact, const char *text, const char *at,
                            size_t *ret_kept)
{
    const char *begin, *end;
    size_t len = len_of_known(redact, at);
    *ret_kept = 0;
    if (len || (len = len_of_opaque(text, at)))
        return len;
    if (strncmp(at, "://", 3) == 0 && find_userinfo(at, &begin, &end)) {
        *ret_kept = 3;
        return (size_t)(end - begin);
    }
    *ret_kept = len_of_naming(at);
    /* A scheme, a blank, and the secret. */
    bool is_header = strncasecmp(at, "authorization", strlen("authorization")) == 0;
    const char *after = is_header ? "\"'\r\n" : "\"'&,; \t\r\n";
    return *ret_kept ? strcspn(at + *ret_kept, after) : 0;
}

char *redact_text(const struct redact *redact, const char *text)
{
    char *result = NULL;
    size_t size = 0, kept;
    FILE *out = open_memstream(&result, &size);
    check(out);
    for (const char *at = text; *at;) {
        size_t len = len_of_secret(redact, text, at, &kept);
        if (len) {
            (void)fwrite(at, 1, kept, out);
            (void)fputs(REMOVED, out);
            at += kept + len;
        } else {
            (void)fputc(*at++, out);
        }
    }
    bool complete = fclose(out) == 0;
    check(complete);
    return result;
}
