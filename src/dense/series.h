// SPDX-License-Identifier: Apache-2.0
/* Series of files: paths that differ only in numbers, like those of checkpoints. Pure.
 *
 * /run7/step50/rank3.pt   is in the series   /run#/step50/rank3.pt
 *                                            /run7/step#/rank3.pt
 *                                            /run7/step50/rank#.pt
 *
 * A number is a sequence of digits. Equal ones change together (global_step50/step50.pt); in
 * addition there is a series in which all numbers of one name change (epoch=1-step=200.ckpt). Only
 * the content shows in which series the files are alike. */
#pragma once

#include "base/base.h"
#include "format/record.h"

#define SERIES_MAX 16u        /* per path; if there are more, the first ones */
#define SERIES_NUMBERS_MAX 8u /* that change in one series */

struct series {
    char *path; /* with a byte from 1 to SERIES_NUMBERS_MAX in place of each number that changes */
    size_t directory_len; /* the common directory of its members; 0: the root */
    size_t prefix_len;    /* length before the number, in the first name that differs */
};

/* Finds the series of an absolute path, those with directories nearer to the root first. Returns
 * the number; the caller frees each with series_done(). */
unsigned series_of(const char *path, struct series ret[SERIES_MAX]);
void series_done(struct series *series);

/* The first name that differs, in the members' directory; its first prefix_len bytes are common. */
static inline const char *series_prefix(const struct series *series)
{
    return series->path + series->directory_len + 1;
}

/* The path of the member with this name in the directory; the caller frees it. NULL: no member can
 * have the name. */
char *series_member(const struct series *series, const char *name);

/* Walks the possible names of members in their directory, in byte order, even if that has names of
 * many series: find the first existing name not before this one, pass it to series_member(), and
 * continue from series_next_name(). */
#define SERIES_NAME_LEN (NAME_LEN_MAX + 1u) /* room for a name, or a position between names */
void series_first_name(const struct series *series, char ret_name[SERIES_NAME_LEN + 1]);
/* `name` begins with the series' prefix. Moves it to the position after it, skipping names that
 * certainly belong to no member. False: no more names. */
bool series_next_name(const struct series *series, char name[SERIES_NAME_LEN + 1]);
