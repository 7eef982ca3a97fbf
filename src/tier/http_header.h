// SPDX-License-Identifier: Apache-2.0
/* Parses the headers of an answer that this program uses. Pure. */
#pragma once

#include "tier/http.h"

/* Parses one line of an answer's head as received, with its line end, not NUL-terminated. A status
 * line starts the answer over: headers before it were those of an interim one (1xx). */
void http_header_line(struct http_response *response, const char *line, size_t len);
