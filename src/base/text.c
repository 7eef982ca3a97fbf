// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <time.h>

#include <limits.h>

size_t text_control_len(const char *text, unsigned *ret_code)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t len = text_utf8_len(text);
    *ret_code = p[0];
    if (len == 0)
        return p[0] >= 0x80 && p[0] < 0xa0;
    if (len == 1)
        return p[0] < 0x20 || p[0] == 0x7f;
    if (len == 2)
        *ret_code = (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    if (len == 3)
        *ret_code = (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    bool is_c1 = len == 2 && *ret_code < 0xa0;
    bool is_bidi = len == 3 && ((*ret_code >= 0x2028 && *ret_code <= 0x202e) ||
                                (*ret_code >= 0x2066 && *ret_code <= 0x2069));
    return is_c1 || is_bidi ? len : 0;
}

void text_list_add(struct text_list *list, const char *item)
{
    if (list->count++ >= TEXT_LIST_NAMED)
        return;
    _cleanup_free_ char *before = list->text;
    list->text = before ? xasprintf("%s, %s", before, item) : xstrdup(item);
}

char *text_list_take(struct text_list *list)
{
    const struct text_list all = *list;
    *list = (struct text_list){0};
    if (all.count <= TEXT_LIST_NAMED)
        return all.text;
    _cleanup_free_ char *named = all.text;
    return xasprintf("%s and %zu more", named, all.count - TEXT_LIST_NAMED);
}

void text_hide_controls(char *text)
{
    char *to = text;
    unsigned code;
    for (size_t len; *text; text += len) {
        bool hidden = text_control_len(text, &code) > 0;
        len = max_u64(text_utf8_len(text), 1);
        memmove(to, text, len);
        if (hidden)
            *to = '?';
        to += hidden ? 1 : len;
    }
    *to = '\0';
}

void text_vprint(FILE *out, const char *fmt, va_list ap)
{
    _cleanup_free_ char *text = NULL;
    check(vasprintf(&text, fmt, ap) >= 0);
    text_hide_controls(text);
    (void)fprintf(out, "%s\n", text);
}

void text_print(FILE *out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    text_vprint(out, fmt, ap);
    va_end(ap);
}

void text_print_lines(FILE *out, const char *text)
{
    _cleanup_free_ char *lines = xstrdup(text);
    char *rest = lines;
    for (char *line = strsep(&rest, "\n"); line && (rest || *line); line = strsep(&rest, "\n"))
        text_print(out, "%s", line);
}

size_t text_utf8_len(const char *text)
{
    /* First bytes of sequences of 2 to 4, and the range of their second byte: excludes surrogates
     * and overlong forms. */
    static const struct {
        unsigned char from, to, second_from, second_to;
        size_t len;
    } forms[] = {{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                 {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
                 {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
                 {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    const unsigned char *p = (const unsigned char *)text;
    if (*p < 0x80)
        return *p ? 1 : 0;
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        if (*p < forms[i].from || *p > forms[i].to)
            continue;
        if (p[1] < forms[i].second_from || p[1] > forms[i].second_to)
            return 0;
        for (size_t k = 2; k < forms[i].len; k++)
            if ((p[k] & 0xc0) != 0x80)
                return 0;
        return forms[i].len;
    }
    return 0;
}

/* Longer words are not compared: edit_distance() has a buffer of this size. */
#define GUESS_LEN_MAX 40u

static bool same_letter(char a, char b)
{
    return a == b || ((a == '-' || a == '_') && (b == '-' || b == '_'));
}

/* How many letters to add, remove, replace or swap to turn `a` into `b`. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned rows[3][GUESS_LEN_MAX + 1];
    size_t a_len = strlen(a), b_len = strlen(b);
    if (a_len >= GUESS_LEN_MAX || b_len >= GUESS_LEN_MAX)
        return UINT_MAX;
    for (unsigned j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (unsigned i = 1; i <= a_len; i++) {
        const unsigned *before = rows[(i - 1) % 3], *two_before = rows[(i + 1) % 3];
        unsigned *row = rows[i % 3];
        row[0] = i;
        for (unsigned j = 1; j <= b_len; j++) {
            bool same = same_letter(a[i - 1], b[j - 1]);
            uint64_t least = min_u64(before[j] + 1, row[j - 1] + 1);
            least = min_u64(least, before[j - 1] + !same);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                least = min_u64(least, two_before[j - 2] + 1);
            row[j] = (unsigned)least;
        }
    }
    return rows[a_len % 3][b_len];
}

/* At most one letter in three may differ. */
void text_guess_try(struct text_guess *guess, const char *candidate)
{
    check(guess->word && candidate);
    unsigned distance = edit_distance(guess->word, candidate);
    if (distance > (strlen(guess->word) + 1) / 3 || (guess->best && distance >= guess->distance))
        return;
    guess->best = candidate;
    guess->distance = distance;
}

int text_fail(char **ret_text, int r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    check(vasprintf(ret_text, fmt, ap) >= 0);
    va_end(ap);
    return r;
}

void text_time(int64_t ns, char buf[TEXT_TIME_LEN])
{
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm tm;
    if (!gmtime_r(&seconds, &tm) || strftime(buf, TEXT_TIME_LEN, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        (void)snprintf(buf, TEXT_TIME_LEN, "%lld", (long long)seconds);
}
