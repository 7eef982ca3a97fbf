// SPDX-License-Identifier: Apache-2.0
#include "codec/tensors.h"

#include "base/vector.h"
#include "codec/chunker.h"
#include "format/le.h"

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

/* Skips the byte `want`, with white space around it. NULL: another byte is there. */
static const uint8_t *parse_json_byte(const uint8_t *p, const uint8_t *end, uint8_t want)
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

/* `p` is directly behind the key: ":[a,b]". */
static bool parse_offsets(const uint8_t *p, const uint8_t *end, struct tensor *ret_t)
{
    p = parse_json_byte(p, end, ':');
    p = parse_json_byte(p, end, '[');
    p = parse_number(p, end, &ret_t->start);
    p = parse_json_byte(p, end, ',');
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

static const uint8_t *skip_space_back(const uint8_t *first, const uint8_t *end)
{
    while (end > first && (end[-1] == ' ' || end[-1] == '\n' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    return end;
}

/* Steps back over the byte `want`, with white space around it, that ends at `end` and lies behind
 * `first`. NULL: another byte is there. */
static const uint8_t *parse_byte_back(const uint8_t *first, const uint8_t *end, uint8_t want)
{
    if (!end)
        return NULL;
    end = skip_space_back(first, end);
    return end > first && end[-1] == want ? skip_space_back(first, end - 1) : NULL;
}

/* FNV-1a; never 0. */
static uint64_t hash_of(const uint8_t *p, const uint8_t *end)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (; p < end; p++)
        h = (h ^ *p) * 0x100000001b3ull;
    return h ? h : 1;
}

/* Returns the hash of the name of the object that contains the key at `key`: "NAME":{... A tensor
 * contains no other object. */
static uint64_t name_before(const uint8_t *first, const uint8_t *key)
{
    const uint8_t *brace = memrchr(first, '{', (size_t)(key - first));
    const uint8_t *end = parse_byte_back(first, brace, ':');
    if (!end || end == first || end[-1] != '"')
        return 0;
    const uint8_t *begin = --end;
    while (begin > first && (begin[-1] != '"' || (begin - 1 > first && begin[-2] == '\\')))
        begin--;
    return begin > first ? hash_of(begin, end) : 0;
}

DEFINE_VECTOR(tensors, struct tensor);

static struct tensors find_tensors(const uint8_t *header, size_t len)
{
    static const char key[] = "\"data_offsets\"";
    struct tensors tensors = {0};
    const uint8_t *end = header + len, *last = header + 8;
    for (const uint8_t *p = last; (p = memmem(p, (size_t)(end - p), key, sizeof key - 1));) {
        const uint8_t *at = p;
        p += sizeof key - 1;
        struct tensor t = {0};
        if (!parse_offsets(p, end, &t))
            continue;
        t.name = name_before(last, at);
        t.start += len;
        t.end += len;
        vector_add(&tensors, t);
        last = p;
    }
    vector_sort(&tensors, by_start);
    return tensors;
}

void tensors_list(const uint8_t *header, size_t len, struct tensor **ret_tensors, size_t *ret_count)
{
    struct tensors tensors = find_tensors(header, len);
    *ret_tensors = tensors.at;
    *ret_count = tensors.count;
}

void tensors_parse(const uint8_t *header, size_t len, uint64_t **ret_anchors, size_t *ret_count)
{
    _cleanup_vector_ struct tensors tensors = find_tensors(header, len);
    uint64_t *anchors = xcalloc(2 * tensors.count, sizeof *anchors);
    uint64_t last = 0;
    size_t count = 0;
    for (size_t i = 0; i < tensors.count; i++) {
        const struct tensor *t = &tensors.at[i];
        /* No writer makes tensors that overlap: the first one is kept. */
        if (t->start < last)
            continue;
        bool large = t->end - t->start >= CHUNKER_SEGMENT_MIN;
        if ((large || t->start - last >= CHUNKER_WRITE_MIN) && t->start > last)
            anchors[count++] = last = t->start;
        if (large)
            anchors[count++] = last = t->end;
    }
    *ret_anchors = anchors;
    *ret_count = count;
}
