// SPDX-License-Identifier: Apache-2.0
/* Why a call failed, in words, beside its errno: noted where that is decided, read where a client
 * is answered. A text of the calling thread, as errno is: a thread that answers clears it before
 * the work begins, so that it never is another call's. */
#pragma once

#include "base/base.h"

#define CAUSE_MAX 400

void cause_clear(void);
void cause_note(const char *fmt, ...) CAIRN_PRINTF(1, 2);

/* "": none was noted. Valid until the thread notes or clears. */
const char *cause_text(void);
