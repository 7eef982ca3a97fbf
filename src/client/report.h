// SPDX-License-Identifier: Apache-2.0
/* Reports this process's lanes to a CairnFS mount, for `cairn status`: one sum over all lanes, as
 * the attribute user.cairn.lane of files written there. A failed report does not fail the save;
 * outside CairnFS nothing is reported. Any thread, without locks; each report is one call of the
 * filesystem. */
#pragma once

#include "client/draft.h"

/* Reports while the draft is written: at most once a second. */
void report_progress(const struct draft *draft);

/* Reports that the draft's save gets its name now, or has failed: before any caller here is
 * informed, as a caller may unmount then. `directory` from report_open_directory(). `is_counted`:
 * the lane's numbers include it already. */
void report_end(const struct draft *draft, int directory, int error, const char *cause,
                bool is_counted);

/* Opens the directory of a draft that is about to be closed; -1: nothing to report to. The caller
 * closes it. */
int report_open_directory(const struct draft *draft);
