// SPDX-License-Identifier: Apache-2.0
/* The headers of an answer that are used. Pure. */
#pragma once

#include "tier/http.h"

/* One line of an answer's head as it came, line end included, not NUL-terminated. A status line
 * begins the answer anew: what was before it was an interim one (1xx). */
void http_header_line(struct http_response *response, const char *line, size_t len);
