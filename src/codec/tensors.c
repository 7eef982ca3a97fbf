// SPDX-License-Identifier: Apache-2.0
#include "codec/tensors.h"

#include "base/vector.h"
#include "codec/cut.h"
#include "format/le.h"

struct tensor {
    uint64_t start, end;
};

size_t tensors_header_len(const uint8_t first[9])
{
    uint64_t len = get_le64(first);
    return len >= 2 && len <= TENSORS_HEADER_MAX - 8 && first[8] == '{' ? (size_t)len + 8 : 0;
}

static const uint8_t *skip_space(const uint8_t *p, const uint8_t *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'))
        p++;
    return p;
}

/* The byte `want`, with white space around it. NULL: not there. */
static const uint8_t *parse_byte(const uint8_t *p, const uint8_t *end, uint8_t want)
{
    if (!p)
        return NULL;
    p = skip_space(p, end);
    return p < end && *p == want ? skip_space(p + 1, end) : NULL;
}

static const uint8_t *parse_number(const uint8_t *p, const uint8_t *end, uint64_t *ret_n)
{
    if (!p || p == end || *p < '0' || *p > '9')
        return NULL;
    uint64_t n = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        if (n > INT64_MAX / 20)
            return NULL;
        n = n * 10 + (uint64_t)(*p - '0');
    }
    *ret_n = n;
    return p;
}

/* `p` is just behind the key: ":[a,b]". */
static bool parse_offsets(const uint8_t *p, const uint8_t *end, struct tensor *ret_t)
{
    p = parse_byte(p, end, ':');
    p = parse_byte(p, end, '[');
    p = parse_number(p, end, &ret_t->start);
    p = parse_byte(p, end, ',');
    p = parse_number(p, end, &ret_t->end);
    return p && ret_t->start < ret_t->end;
}

static int by_start(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

DEFINE_VECTOR(tensors, struct tensor);

static struct tensors find_tensors(const uint8_t *header, size_t len)
{
    static const char key[] = "\"data_offsets\"";
    struct tensors tensors = {0};
    const uint8_t *end = header + len;
    for (const uint8_t *p = header + 8; (p = memmem(p, (size_t)(end - p), key, sizeof key - 1));) {
        p += sizeof key - 1;
        struct tensor t;
        if (parse_offsets(p, end, &t))
            vector_add(&tensors, (struct tensor){t.start + len, t.end + len});
    }
    vector_sort(&tensors, by_start);
    return tensors;
}

void tensors_parse(const uint8_t *header, size_t len, uint64_t **ret_anchors, size_t *ret_count)
{
    _cleanup_vector_ struct tensors tensors = find_tensors(header, len);
    uint64_t *anchors = xcalloc(2 * tensors.count, sizeof *anchors);
    uint64_t last = 0;
    size_t count = 0;
    for (size_t i = 0; i < tensors.count; i++) {
        const struct tensor *t = &tensors.at[i];
        /* Tensors that overlap come from no writer: the first one counts. */
        if (t->start < last)
            continue;
        bool large = t->end - t->start >= CUT_SEGMENT_MIN;
        if ((large || t->start - last >= CUT_WRITE_MIN) && t->start > last)
            anchors[count++] = last = t->start;
        if (large)
            anchors[count++] = last = t->end;
    }
    *ret_anchors = anchors;
    *ret_count = count;
}
