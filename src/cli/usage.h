// SPDX-License-Identifier: Apache-2.0
/* What a verb takes, read out of its usage text and the table of mount options: these are the one place that tells it, for people,
 * for completion and for the tests of the man pages. One thread.
 *
 * A line of help that begins with two blanks and a dash is a flag: "  -l, --level stage|nvme   text", with letter or name or both,
 * then what its value is, if it has one, then two blanks or more and the text. A value in small letters is one of these words. */
#pragma once

#include "cli/cli.h"

struct usage_flag {
    char letter; /* '\0': none */
    char *name;  /* without dashes; NULL: none */
    char *value; /* "TIME", or words: "stage|nvme"; NULL: takes none */
    char *help;  /* one line */
};

struct usage {
    struct usage_flag *flags;
    size_t flag_count;
    char **operands; /* each word of the synopsis that is no flag: "PATH", "MOUNTPOINT", "bash" */
    size_t operand_count;
};

void usage_read(const struct verb *verb, struct usage *ret);
void usage_done(struct usage *usage);

/* "a|b": words to choose from, not the name of a kind of value. */
bool usage_is_words(const char *value);
