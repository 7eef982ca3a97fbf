// SPDX-License-Identifier: Apache-2.0
/* Series of files: paths that differ in numbers alone, as those of checkpoints do. Pure.
 *
 *     /run7/step50/rank3.pt   is of the series   /run#/step50/rank3.pt
 *                                                /run7/step#/rank3.pt
 *                                                /run7/step50/rank#.pt
 *
 * A number is a stretch of digits. Equal ones change together (global_step50/step50.pt), and so do
 * all of one name, besides (epoch=1-step=200.ckpt). Which series is the one in which files are
 * alike, their content has to say. */
#pragma once

#include "base/base.h"
#include "format/record.h"

#define SERIES_MAX 16u        /* of one path; of a path with more of them the first ones */
#define SERIES_NUMBERS_MAX 8u /* that change in one series */

struct series {
    char *path; /* with a byte from 1 to SERIES_NUMBERS_MAX for each number that changes */
    size_t directory_len; /* its members' paths begin with this; 0: the root */
    size_t prefix_len;    /* of the first name that differs: its bytes before the number */
};

/* The series that an absolute path is of, those whose directories are nearer to the root first.
 * Returns how many; the caller frees each with series_done(). */
unsigned series_of(const char *path, struct series ret[SERIES_MAX]);
void series_done(struct series *series);

/* The name in the members' directory that differs: where its first bytes begin, prefix_len of them.
 */
static inline const char *series_prefix(const struct series *series)
{
    return series->path + series->directory_len + 1;
}

/* The member that has this name in the directory: its path, which the caller frees. NULL: no member
 * can have it. */
char *series_member(const struct series *series, const char *name);

/* Walking through the names that members can have in their directory, in the order of bytes, where
 * that has the names of many series: seek the first name that is not before this one, give it to
 * series_member(), go on from series_next_name(). */
#define SERIES_NAME_LEN (NAME_LEN_MAX + 1u) /* of a name, or of a place between names */
void series_first_name(const struct series *series, char ret_name[SERIES_NAME_LEN + 1]);
/* `name` begins with the series' prefix; it becomes the place behind it, and behind all of which
 * it is certain that no member has them. False: there is no more. */
bool series_next_name(const struct series *series, char name[SERIES_NAME_LEN + 1]);
