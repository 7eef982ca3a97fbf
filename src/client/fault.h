// SPDX-License-Identifier: Apache-2.0
/* Reads of memory that others may unmap in the middle: a source that the training frees.
 *
 * Handlers of SIGSEGV and SIGBUS, of the process, end such a read with an error. Faults elsewhere
 * go on to the handlers that were there before. To copy a source by the kernel first
 * (process_vm_readv) would need no handler, and 2.5 times the CPU time of a save on a mount. */
#pragma once

#include "base/base.h"

/* Puts the handlers there, once in a process. One that comes later is asked first: it should call
 * the earlier one, or put it back and raise again (Python's faulthandler does). */
void fault_install(void);

/* The calling thread unblocks the two signals: a fault whose signal is blocked ends the process.
 * For threads of ours: a caller of ours that blocks them has reasons, and no protection. */
void fault_admit(void);

/* Calls reads(arg). -EFAULT, without cause: memory that it reads was not there. It is left in the
 * middle then, so it takes no lock, allocates nothing, and calls nothing that does. Not nested. */
CAIRN_MUST_CHECK int fault_try(void (*reads)(void *arg), void *arg);
