// SPDX-License-Identifier: Apache-2.0
/* SIGINT and SIGTERM, which end the waits of a command, and not the process. */
#pragma once

#include <stdbool.h>

/* Handles the signals from now on. `once`: a second one ends the process. */
void interrupt_catch(bool once);

bool interrupted(void);

/* Sleeps until an interrupt. False: there was one. */
bool interrupt_sleep_ms(unsigned ms);
