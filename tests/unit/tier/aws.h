// SPDX-License-Identifier: Apache-2.0
/* A home directory and an environment in which nothing of AWS is set, for the tests of credentials.
 */
#pragma once

#include "base/base.h"

void aws_begin(void);
void aws_end(void);

/* Writes HOME/name with a text in the manner of printf(); the directory .aws is there. */
void aws_write(const char *name, const char *fmt, ...) CAIRN_PRINTF(2, 3);

/* HOME/name; caller frees. */
char *aws_path(const char *name);
