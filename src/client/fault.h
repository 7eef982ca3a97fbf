// SPDX-License-Identifier: Apache-2.0
/* Reads of memory that others may unmap at any time, e.g. a source that the training frees.
 *
 * Handlers of SIGSEGV and SIGBUS, for the whole process, end such a read with an error. Other
 * faults are passed on to the previous handlers. Copying a source through the kernel first
 * (process_vm_readv) would need no handler, but 2.5 times the CPU time of a save on a mount. */
#pragma once

#include "base/base.h"

/* Installs the handlers, once per process. A handler installed later is called first: it should
 * call the earlier one, or restore it and raise the signal again (Python's faulthandler does). */
void fault_install(void);

/* Unblocks the two signals in the calling thread: a fault whose signal is blocked ends the process.
 * For our own threads: a caller's thread that blocks them has its reasons, and no protection. */
void fault_admit(void);

/* Calls reads(arg). -EFAULT, without cause: it read memory that does not exist. In that case it is
 * abandoned in the middle, so it must not take a lock, allocate, or call functions that do. Not
 * nested. */
CAIRN_MUST_CHECK int fault_try(void (*reads)(void *arg), void *arg);
