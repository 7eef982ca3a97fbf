// SPDX-License-Identifier: Apache-2.0
/* Reads small XML answers with expat: reports every element with its text, named by the path of
 * elements above it. Pure. */
#pragma once

#include "base/base.h"

/* Calls `fn` at the end of each element with "Root/Child/Leaf" and its text, also for elements that
 * contain others (""). Namespace prefixes are dropped. `fn` returns 0, or a -errno that ends the
 * parse. -EPROTO: not well-formed, deeper than 16 elements, a document type, a text over 64 KiB. */
CAIRN_MUST_CHECK int xml_read(const char *text, size_t len,
                              int (*fn)(const char *path, const char *value, void *arg), void *arg);
