// SPDX-License-Identifier: Apache-2.0
/* Why a call failed, in words, beside its errno. The function that decides the errno notes the
 * cause; the function that answers the client reads it. The text belongs to the calling thread,
 * like errno. An answering thread clears it before it starts a request, so that the text is never
 * from an earlier call. A text that is too long is cut after a whole word and ends with " ...". */
#pragma once

#include <stdarg.h>

#include "base/base.h"

#define CAUSE_MAX 1024 /* also the limit for the last error of a tier and of the remote */

void cause_clear(void);
void cause_note(const char *fmt, ...) CAIRN_PRINTF(1, 2);

/* Formats a line for people. If it is too long, its end is cut. */
void cause_format(char *buf, size_t size, const char *fmt, ...) CAIRN_PRINTF(3, 4);
void cause_vformat(char *buf, size_t size, const char *fmt, va_list ap);

/* Returns "" if no cause was noted. Valid until the thread notes or clears a cause. */
const char *cause_text(void);
