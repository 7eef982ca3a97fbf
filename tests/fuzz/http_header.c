// SPDX-License-Identifier: Apache-2.0
/* The head of an HTTP answer, line by line, with the dates and lengths in it. */
#include "tier/http_header.h"

#include "fuzz.h"

static bool is_plain(const char *text, size_t room)
{
    size_t len = strnlen(text, room);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return false;
    return len < room;
}

static void look_at(const struct http_response *r)
{
    check(is_plain(r->etag, sizeof r->etag) && is_plain(r->region, sizeof r->region));
    check(is_plain(r->request_id, sizeof r->request_id) &&
          is_plain(r->content_type, sizeof r->content_type));
    check(r->content_length >= -1 && r->retry_after_ns >= 0 &&
          r->retry_after_ns <= 86400ll * 1000000000);
    check(r->date_ns >= 0 && r->modified_ns >= 0);
    check(r->range_end == 0 ? r->range_start == 0 : r->range_start < r->range_end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_response response = {.content_length = -1, .range_total = UINT64_MAX};
    while (size > 0) {
        const uint8_t *newline = memchr(data, '\n', size);
        size_t len = newline ? (size_t)(newline - data) + 1 : size;
        uint8_t *line = exact_copy(data, len);
        http_header_line(&response, (char *)line, len);
        look_at(&response);
        free(line);
        data += len;
        size -= len;
    }
    return 0;
}
