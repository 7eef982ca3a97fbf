// SPDX-License-Identifier: Apache-2.0
/* Removes secrets from text that leaves the machine: values that are known to be secret, and text
 * that looks like a secret. One thread. */
#pragma once

#include "base/vector.h"

struct redact {
    VECTOR(char *) secrets; /* owned, wiped at the end */
};

/* Learns values whose names suggest keys, secrets, tokens or passwords, and the passwords of URLs:
 * from an environment ("NAME=VALUE\0..."), or from a configuration file ("name = value"). */
void redact_learn_environment(struct redact *redact, const char *block, size_t len);
void redact_learn_file(struct redact *redact, const char *path);

/* Returns the text without secrets; caller frees. */
char *redact_text(const struct redact *redact, const char *text);
void redact_done(struct redact *redact);
