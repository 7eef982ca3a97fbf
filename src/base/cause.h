// SPDX-License-Identifier: Apache-2.0
/* Why a call failed, in words, beside its errno: noted where that is decided, read where a client
 * is answered. A text of the calling thread, as errno is: a thread that answers clears it before
 * the work begins, so that it never is another call's. A text that is too long ends with " ...",
 * behind a whole word. */
#pragma once

#include <stdarg.h>

#include "base/base.h"

#define CAUSE_MAX 1024 /* also of the last error of a tier and of the remote */

void cause_clear(void);
void cause_note(const char *fmt, ...) CAIRN_PRINTF(1, 2);

/* Formats a line for people, of which the beginning counts. */
void cause_format(char *buf, size_t size, const char *fmt, ...) CAIRN_PRINTF(3, 4);
void cause_vformat(char *buf, size_t size, const char *fmt, va_list ap);

/* "": none was noted. Valid until the thread notes or clears. */
const char *cause_text(void);
