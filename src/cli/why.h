// SPDX-License-Identifier: Apache-2.0
/* Explains the sizes of files: how their chunks are stored on NVMe and in the remote, to which
 * files the bases of these chunks belong, and which other files have the same content. One
 * thread. */
#pragma once

#include "cli/survey.h"

/* Asks the daemon to which files the chunks in the sum's samples belong. CLI_OK, or the exit code
 * after a message. With `object` the answer becomes members of it, else it is printed. */
CAIRN_MUST_CHECK int why_report(const struct command *command, const char *store, const cJSON *root,
                                const struct survey_sum *sum, cJSON *object);
