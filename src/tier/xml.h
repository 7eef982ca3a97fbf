// SPDX-License-Identifier: Apache-2.0
/* Small XML answers, read with expat: every element that holds text only, with the names of all
 * elements that it is in. Pure. */
#pragma once

#include "base/base.h"

/* `fn` gets "Root/Child/Leaf" and the text in it when the element ends, also for elements that hold
 * others (""). Prefixes of namespaces are dropped. It returns 0 or a -errno that ends the parse.
 * -EPROTO: not well-formed, deeper than 16 elements, a document type, a text over 64 KiB. */
CAIRN_MUST_CHECK int xml_read(const char *text, size_t len,
                              int (*fn)(const char *path, const char *value, void *arg), void *arg);
