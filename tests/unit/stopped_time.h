// SPDX-License-Identifier: Apache-2.0
/* Time that stands still unless a test lets it pass, or code that is tested waits for a while: so
 * that no machine is too slow for a lease of a second. The test is linked with stopped_time.c and
 * -Wl,--wrap=clock_gettime,--wrap=event_wait. That holds for our own code: shared libraries, the
 * timeouts of other waits and the kernel's file times follow the real clock. */

#pragma once

#include <stdint.h>

/* Until the end of the test (which is a process). Before, time is the real one. */
void time_stop(void);
void time_pass(int64_t ns);
