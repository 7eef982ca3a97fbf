// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "daemon/options.h"

/* Words of other filesystems, and the option that does it here. */
static const char *const other_words[][2] = {
    {"compress", "reduce"},  {"compression", "reduce"},     {"readonly", "ro"},
    {"read_only", "ro"},     {"cache_size", "stage"},       {"size", "nvme"},
    {"url", "remote"},       {"bucket", "remote"},          {"endpoint", "endpoint_url"},
    {"read_cache", "stage"}, {"timeout", "remote_timeout"},
};

char *option_unknown(const char *name)
{
    struct text_guess guess = {.word = name};
    for (const struct option_spec *spec = option_table; spec->name; spec++)
        if (spec->help)
            text_guess_try(&guess, spec->name);
    for (size_t i = 0; i < ARRAY_LEN(other_words); i++) {
        struct text_guess other = {.word = name};
        text_guess_try(&other, other_words[i][0]);
        if (other.best && other.distance == 0)
            guess.best = other_words[i][1];
    }
    return guess.best ? xasprintf("unknown option '%s'; did you mean %s?", name, guess.best)
                      : xasprintf("unknown option '%s'; 'cairn help mount' lists all", name);
}
