// SPDX-License-Identifier: Apache-2.0
/* Tells why files are small: how their chunks are stored on NVMe and in the remote, which files
 * the bases of these are of, and which other files have the same content. One thread. */
#pragma once

#include "cli/survey.h"

/* Asks the daemon whose the chunks in the sum's samples are. CLI_OK, or the exit code, and it was
 * said why. With `object` the answer becomes members of that, else it is printed. */
CAIRN_MUST_CHECK int why_report(const struct command *command, const char *store, const cJSON *root,
                                const struct survey_sum *sum, cJSON *object);
