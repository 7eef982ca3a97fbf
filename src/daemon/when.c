// SPDX-License-Identifier: Apache-2.0
#include "daemon/when.h"

#include <ctype.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "daemon/options.h"

#define FORMS                                                                                      \
    "a head's number, a snapshot's name, a time such as 2026-11-28T20:59:08Z, or how long ago, "   \
    "such "                                                                                        \
    "as 2h or 30m"

/* --- a time of RFC 3339 ----------------------------------------------------------------------- */

/* Returns two or four digits at *at, which is moved behind them and `end`; -1: they are not
 * there. */
static int take_digits(const char **at, size_t count, char end)
{
    int value = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isdigit((unsigned char)(*at)[i]))
            return -1;
        value = value * 10 + (*at)[i] - '0';
    }
    if (end && (*at)[count] != end)
        return -1;
    *at += count + (end != '\0');
    return value;
}

/* Without a fraction: the last nanosecond of the second. */
static bool take_fraction(const char **at, int64_t *ret_ns)
{
    int64_t unit = SECOND_NS / 10;
    *ret_ns = SECOND_NS - 1;
    if (**at != '.')
        return true;
    if (!isdigit((unsigned char)*++*at))
        return false;
    for (*ret_ns = 0; isdigit((unsigned char)**at); ++*at, unit /= 10)
        *ret_ns += (**at - '0') * unit;
    return true;
}

/* Parses "Z", "+02:00", with nothing behind it. */
static bool take_zone(const char *at, int64_t *ret_seconds)
{
    int sign = *at == '-' ? -1 : 1;
    *ret_seconds = 0;
    if ((*at == 'Z' || *at == 'z') && at[1] == '\0')
        return true;
    if (*at != '+' && *at != '-')
        return false;
    at++;
    int hours = take_digits(&at, 2, ':'), minutes = hours < 0 ? -1 : take_digits(&at, 2, '\0');
    *ret_seconds = sign * (hours * 3600ll + minutes * 60);
    return hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60 && *at == '\0';
}

static bool take_day(const char **at, struct tm *tm)
{
    tm->tm_year = take_digits(at, 4, '-') - 1900;
    tm->tm_mon = tm->tm_year < 70 ? -1 : take_digits(at, 2, '-') - 1;
    tm->tm_mday = tm->tm_mon < 0 ? -1 : take_digits(at, 2, '\0');
    return tm->tm_mday > 0;
}

static bool take_clock(const char **at, struct tm *tm)
{
    tm->tm_hour = take_digits(at, 2, ':');
    tm->tm_min = tm->tm_hour < 0 ? -1 : take_digits(at, 2, ':');
    tm->tm_sec = tm->tm_min < 0 ? -1 : take_digits(at, 2, '\0');
    return tm->tm_sec >= 0 && tm->tm_sec <= 60 && tm->tm_min < 60 && tm->tm_hour < 24;
}

/* timegm() treats a 31st of April as the 1st of May. */
static bool day_exists(const struct tm *asked)
{
    struct tm tm = *asked;
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    return asked->tm_mon < 12 && timegm(&tm) >= 0 && tm.tm_mon == asked->tm_mon;
}

static bool parse_time(const char *text, int64_t *ret_ns)
{
    struct tm tm = {0};
    int64_t fraction, zone;
    if (!take_day(&text, &tm) || !day_exists(&tm) || !strchr("Tt ", *text) || *text == '\0')
        return false;
    text++;
    if (!take_clock(&text, &tm) || !take_fraction(&text, &fraction) || !take_zone(text, &zone))
        return false;
    int64_t seconds = timegm(&tm) - zone;
    bool is_far = seconds >= INT64_MAX / SECOND_NS;
    *ret_ns = is_far ? INT64_MAX : seconds * SECOND_NS + fraction;
    return seconds > 0;
}

/* --- WHEN ------------------------------------------------------------------------------------- */

static bool is_number(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text);
}

static int parse_number(const char *text, struct head_choice *ret, char **ret_text)
{
    ret->number = strlen(text) < 19 ? strtoull(text, NULL, 10) : 0;
    return ret->number ? 0
                       : text_fail(ret_text, -EINVAL,
                                   "'%s' is no head's number: 'cairn history' lists them", text);
}

static int check_past(const char *text, int64_t now, const struct head_choice *choice,
                      char **ret_text)
{
    char here[TEXT_TIME_LEN];
    text_time(now, here);
    if (choice->time <= 0)
        return text_fail(ret_text, -EINVAL, "'%s' is before 1970; give %s", text, FORMS);
    /* A second that has begun here may end later. */
    if (choice->time >= now + SECOND_NS)
        return text_fail(ret_text, -EINVAL, "'%s' is in the future: it is %s here", text, here);
    return 0;
}

/* "2026-11-28" and a time behind it. */
static bool begins_as_date(const char *text)
{
    struct tm tm;
    return take_day(&text, &tm);
}

int when_check_name(const char *name, char **ret_text)
{
    int64_t age;
    if (*name == '\0')
        return text_fail(ret_text, -EINVAL, "the name is empty");
    if (strchr(name, '/'))
        return text_fail(ret_text, -EINVAL, "'%s' has a slash", name);
    if (is_number(name) || parse_duration(name, &age) == 0 || begins_as_date(name))
        return text_fail(ret_text, -EINVAL,
                         "'%s' is a number or a time, which --at would take for one", name);
    if (!snapshot_name_is_sane(name))
        return text_fail(ret_text, -EINVAL,
                         "'%s' is no name: give 1 to %u letters (a to z, A to Z), digits, '.', '-' "
                         "and '_', a letter or a digit first",
                         name, SNAPSHOT_NAME_MAX - 1);
    return 0;
}

static bool take_name(const char *text, struct head_choice *ret)
{
    _cleanup_free_ char *why = NULL;
    if (when_check_name(text, &why) < 0)
        return false;
    memcpy(ret->name, text, strlen(text) + 1);
    return true;
}

int when_parse(const char *text, int64_t now, struct head_choice *ret, char **ret_text)
{
    int64_t age;
    *ret = (struct head_choice){0};
    if (is_number(text))
        return parse_number(text, ret, ret_text);
    if (take_name(text, ret))
        return 0;
    if (parse_duration(text, &age) == 0)
        ret->time = now - age;
    else if (!parse_time(text, &ret->time))
        return text_fail(ret_text, -EINVAL,
                         "'%s' is no point in time; give %s (Z, or an offset such as "
                         "+02:00, has to be there)",
                         text, FORMS);
    return check_past(text, now, ret, ret_text);
}

char *when_print(const struct head_choice *choice)
{
    char seconds[TEXT_TIME_LEN];
    if (choice->name[0])
        return xstrdup(choice->name);
    if (choice->number)
        return xasprintf("%llu", (unsigned long long)choice->number);
    text_time(choice->time, seconds);
    return xasprintf("%.19s.%09lldZ", seconds, (long long)(choice->time % SECOND_NS));
}
