// SPDX-License-Identifier: Apache-2.0
#include "dense/series.h"

#define STRETCHES_MAX 32u /* numbers examined in a path */

/* A sequence of digits in a path. */
struct stretch {
    size_t at, len;
    unsigned name;   /* index of its name in the path */
    unsigned number; /* equal for equal digits */
};

struct stretches {
    struct stretch at[STRETCHES_MAX];
    unsigned count;
    unsigned numbers; /* distinct ones */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_number(char c)
{
    return c >= 1 && c <= (char)SERIES_NUMBERS_MAX;
}

static size_t digits_at(const char *p)
{
    size_t len = 0;
    while (is_digit(p[len]))
        len++;
    return len;
}

/* The number of these digits: that of an earlier equal sequence, or the next one. */
static unsigned number_of(const char *path, const struct stretches *stretches, size_t at,
                          size_t len)
{
    for (unsigned i = 0; i < stretches->count; i++)
        if (stretches->at[i].len == len && memcmp(path + stretches->at[i].at, path + at, len) == 0)
            return stretches->at[i].number;
    return stretches->numbers;
}

static void find_stretches(const char *path, struct stretches *stretches)
{
    unsigned names = 0;
    *stretches = (struct stretches){0};
    for (size_t at = 0; path[at] && stretches->count < STRETCHES_MAX;) {
        size_t len = digits_at(path + at);
        names += path[at] == '/';
        if (len) {
            unsigned number = number_of(path, stretches, at, len);
            stretches->numbers += number == stretches->numbers;
            stretches->at[stretches->count++] = (struct stretch){at, len, names, number};
        }
        at += len ? len : 1;
    }
}

/* The sequences that change: those of some numbers, in one name or in all names. */
struct choice {
    uint32_t numbers; /* a bit for each */
    unsigned name;
    bool everywhere;
};

static bool is_chosen(const struct choice *choice, const struct stretch *stretch)
{
    return (choice->numbers >> stretch->number & 1) &&
           (choice->everywhere || stretch->name == choice->name);
}

static struct series make_series(const char *path, const struct stretches *stretches,
                                 const struct choice *choice)
{
    struct series s = {.path = xstrdup(path)};
    unsigned bytes[STRETCHES_MAX] = {0}, changing = 0;
    size_t from = 0, to = 0;
    for (unsigned i = 0; i < stretches->count; i++) {
        const struct stretch *stretch = &stretches->at[i];
        if (!is_chosen(choice, stretch))
            continue;
        if (!bytes[stretch->number])
            bytes[stretch->number] = ++changing;
        memmove(s.path + to, path + from, stretch->at - from);
        to += stretch->at - from;
        s.path[to++] = (char)bytes[stretch->number];
        from = stretch->at + stretch->len;
    }
    strcpy(s.path + to, path + from);
    check(changing > 0 && changing <= SERIES_NUMBERS_MAX);
    size_t first = 0;
    while (!is_number(s.path[first]))
        first++;
    s.directory_len = first;
    while (s.path[s.directory_len] != '/')
        s.directory_len--;
    check(first > s.directory_len);
    s.prefix_len = first - s.directory_len - 1;
    return s;
}

struct list {
    const char *path;
    const struct stretches *stretches;
    struct series *series;
    unsigned count;
};

static void add_series(struct list *list, uint32_t numbers, unsigned name, bool everywhere)
{
    const struct choice choice = {numbers, name, everywhere};
    if (list->count < SERIES_MAX)
        list->series[list->count++] = make_series(list->path, list->stretches, &choice);
}

static bool is_elsewhere(const struct stretches *stretches, unsigned number, unsigned name)
{
    for (unsigned i = 0; i < stretches->count; i++)
        if (stretches->at[i].number == number && stretches->at[i].name != name)
            return true;
    return false;
}

/* Adds the series whose members first differ in the name of sequence `i`, its first one. Returns
 * the first sequence after that name. A number that also occurs in another name may do so by
 * accident: so there is an additional series in which only this name differs. */
static unsigned add_series_of_name(struct list *list, unsigned i, uint32_t *seen)
{
    const struct stretches *stretches = list->stretches;
    unsigned name = stretches->at[i].name, count = 0;
    uint32_t all = 0;
    for (; i < stretches->count && stretches->at[i].name == name; i++) {
        uint32_t bit = 1u << stretches->at[i].number;
        if (*seen & bit)
            continue;
        *seen |= bit;
        all |= bit;
        count++;
        add_series(list, bit, name, true);
        if (is_elsewhere(stretches, stretches->at[i].number, name))
            add_series(list, bit, name, false);
    }
    if (count > 1 && count <= SERIES_NUMBERS_MAX)
        add_series(list, all, name, true);
    return i;
}

unsigned series_of(const char *path, struct series ret[SERIES_MAX])
{
    struct stretches stretches;
    struct list list = {.path = path, .stretches = &stretches, .series = ret};
    uint32_t seen = 0;
    for (const char *p = path; *p; p++)
        if (is_number(*p))
            return 0; /* a placeholder byte must not occur in a path */
    if (*path != '/')
        return 0;
    find_stretches(path, &stretches);
    for (unsigned i = 0; i < stretches.count;)
        i = add_series_of_name(&list, i, &seen);
    return list.count;
}

void series_done(struct series *series)
{
    free(series->path);
    series->path = NULL;
}

/* --- members ---------------------------------------------------------------------------------- */

/* The digits of a member for each number. */
struct digits {
    const char *at[SERIES_NUMBERS_MAX];
    size_t len[SERIES_NUMBERS_MAX];
};

/* Reads the digits at `name` for number `n`, equal at each occurrence; 0: none. */
static size_t take_digits(struct digits *digits, unsigned n, const char *name)
{
    size_t len = digits_at(name);
    check(n < SERIES_NUMBERS_MAX);
    if (digits->at[n] && (digits->len[n] != len || memcmp(digits->at[n], name, len) != 0))
        return 0;
    digits->at[n] = name;
    digits->len[n] = len;
    return len;
}

static bool match_name(const char *pattern, const char *name, struct digits *ret)
{
    for (; *pattern && *pattern != '/'; pattern++) {
        size_t len = is_number(*pattern) ? take_digits(ret, (unsigned)*pattern - 1, name)
                                         : *pattern == *name;
        if (len == 0)
            return false;
        name += len;
    }
    return *name == '\0';
}

/* Fills the digits into the path. Returns its length; `to` NULL: only the length. */
static size_t fill_digits(const char *pattern, const struct digits *digits, char *to)
{
    size_t len = 0;
    for (; *pattern; pattern++) {
        unsigned n = (unsigned)*pattern - 1;
        const char *from = is_number(*pattern) ? digits->at[n] : pattern;
        size_t more = is_number(*pattern) ? digits->len[n] : 1;
        if (to)
            memcpy(to + len, from, more);
        len += more;
    }
    if (to)
        to[len] = '\0';
    return len;
}

char *series_member(const struct series *series, const char *name)
{
    struct digits digits = {0};
    if (!match_name(series_prefix(series), name, &digits))
        return NULL;
    size_t len = fill_digits(series->path, &digits, NULL);
    char *path = xmalloc(len + 1);
    check(fill_digits(series->path, &digits, path) == len);
    return path;
}

/* --- walking through names -------------------------------------------------------------------- */

void series_first_name(const struct series *series, char ret_name[SERIES_NAME_LEN + 1])
{
    check(series->prefix_len <= NAME_LEN_MAX);
    memcpy(ret_name, series_prefix(series), series->prefix_len);
    ret_name[series->prefix_len] = '\0';
}

/* Moves past all names that begin with the bytes of `name` up to and including index `at`. */
static bool step_over(char *name, size_t at)
{
    name[at + 1] = '\0';
    while (at > 0 && (uint8_t)name[at] == UINT8_MAX)
        name[at--] = '\0';
    name[at] = (char)((uint8_t)name[at] + 1);
    return name[at] != '\0';
}

static bool step_behind(char *name)
{
    size_t len = strlen(name);
    check(len < SERIES_NAME_LEN);
    name[len] = '\x01';
    name[len + 1] = '\0';
    return true;
}

/* Finds the text after the first number of the name that differs; false: it contains another
 * number. */
static bool find_rest(const struct series *series, const char **ret)
{
    const char *first = series_prefix(series) + series->prefix_len;
    *ret = first + 1;
    for (const char *p = *ret; *p && *p != '/'; p++)
        if (is_number(*p) && *p != *first)
            return false;
    return true;
}

/* Makes the only possible name with these digits; false: it would be too long. */
static bool make_series_name(const struct series *series, size_t digits_end, const char *name,
                             char ret[SERIES_NAME_LEN + 1])
{
    size_t len = series->prefix_len, digits = digits_end - len;
    memcpy(ret, name, len);
    for (const char *p = series_prefix(series) + len; *p && *p != '/'; p++) {
        size_t more = is_number(*p) ? digits : 1;
        if (len + more > NAME_LEN_MAX)
            return false;
        memcpy(ret + len, is_number(*p) ? name + series->prefix_len : p, more);
        len += more;
    }
    ret[len] = '\0';
    return true;
}

/* Names with more digits sort in between: names with exactly these digits are skipped by the byte
 * that follows the digits. */
bool series_next_name(const struct series *series, char name[SERIES_NAME_LEN + 1])
{
    char made[SERIES_NAME_LEN + 1];
    const char *rest;
    size_t end = series->prefix_len + digits_at(name + series->prefix_len);
    if (end == series->prefix_len) {
        if (name[end] >= '0' || name[end] < 0)
            return false;
        strcpy(name + end, "0");
        return true;
    }
    if (name[end] == '\0' || !find_rest(series, &rest))
        return step_behind(name);
    char follows = *rest == '/' ? '\0' : *rest;
    if (name[end] != follows || !make_series_name(series, end, name, made) ||
        strcmp(name, made) >= 0)
        return step_over(name, end);
    strcpy(name, made);
    return true;
}
