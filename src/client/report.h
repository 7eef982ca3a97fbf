// SPDX-License-Identifier: Apache-2.0
/* Reports this process's lanes to a CairnFS mount, for `cairn status`: one sum over all lanes, by
 * setting the attribute user.cairn.lane of files that are written there. A report that fails fails
 * no save; elsewhere than on CairnFS there is none. Any thread, no lock held; each report is one
 * call of the filesystem. */
#pragma once

#include "client/draft.h"

/* While the draft is written: at most once a second. */
void report_progress(const struct draft *draft);

/* The draft's save gets its name now, or has failed: told before any caller here is, so that a
 * caller that knows of it may unmount. `directory` as from report_open_directory(). `is_counted`:
 * the lane's numbers say so already. */
void report_end(const struct draft *draft, int directory, int error, const char *cause,
                bool is_counted);

/* The directory of a draft that is about to be closed; -1: there is none to report to. The caller
 * closes it. */
int report_open_directory(const struct draft *draft);
