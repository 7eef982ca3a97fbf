// SPDX-License-Identifier: Apache-2.0
#include "codec/chunker.h"

#include "codec/rope.h"
#include "codec/directory.h"
#include "codec/tensors.h"
#include "format/chunk.h"
#include "format/le.h"

enum kind {
    KIND_UNKNOWN = 0,
    KIND_PLAIN,
    KIND_SAFETENSORS,
    KIND_ZIP_BOOKKEEPING, /* a zip; the last border is not within a tensor */
    KIND_ZIP_TENSOR,      /* a zip; the last border is within the tensor that begins at `anchor`, or
                             begins it */
};

/* The descriptor that torch writes behind an entry's data: "PK\7\8", crc32, and both sizes in 4 or
 * in 8 bytes each. */
#define DESCRIPTOR 0x08074b50u
#define DESCRIPTOR_LEN 16u
#define DESCRIPTOR64_LEN 24u

struct chunking {
    struct chunker *state;
    const struct chunker_input *in;
    struct rope rope;
    uint64_t last; /* last border, or the start of the content */
    uint64_t *borders;
    size_t count, max;
};

void chunker_done(struct chunker *state)
{
    free(state->tensors);
    free(state->markers);
    *state = (struct chunker){0};
}

void chunker_look_ahead(struct chunker *state, const struct iovec *iov, size_t iov_count)
{
    struct rope rope;
    rope_init(&rope, iov, iov_count, 0);
    check(state->kind == KIND_UNKNOWN && !state->markers);
    (void)directory_read(&rope, &state->markers, &state->marker_count);
}

static void add_border(struct chunking *c, uint64_t at)
{
    check(at > c->last && at <= c->rope.end && at - c->last <= CHUNK_SIZE_MAX && c->count < c->max);
    c->borders[c->count++] = c->last = at;
}

/* Adds the borders of the grid up to and including `upto`. A chunk that began with content of an
 * earlier call does not get longer by this. */
static void add_grid(struct chunking *c, uint64_t upto)
{
    for (;;) {
        uint64_t next =
            c->state->anchor + ((c->last - c->state->anchor) / CHUNK_SIZE_MAX + 1) * CHUNK_SIZE_MAX;
        if (next > upto)
            return;
        add_border(c, next);
    }
}

/* A border at `at`, where a new grid begins. */
static void set_anchor(struct chunking *c, uint64_t at)
{
    add_grid(c, at);
    if (at > c->last)
        add_border(c, at);
    c->state->anchor = at;
}

static void finish_chunks(struct chunking *c)
{
    add_grid(c, c->rope.end);
    if (c->rope.end > c->last)
        add_border(c, c->rope.end);
}

/* Finds the first marker that begins in [from, limit) and of which all bytes are in memory. */
static bool find_marker(struct chunking *c, uint64_t from, uint64_t limit,
                        struct marker *ret_marker)
{
    const struct chunker *s = c->state;
    if (!s->markers)
        return rope_find_marker(&c->rope, from, limit, ret_marker);
    size_t low = 0, high = s->marker_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->markers[middle].at < max_u64(from, c->rope.start))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == s->marker_count || s->markers[low].at >= limit ||
        s->markers[low].at + MARKER_LEN > c->rope.end)
        return false;
    *ret_marker = s->markers[low];
    return true;
}

static bool descriptor_at(struct chunking *c, uint64_t at, uint64_t data_len, bool wide)
{
    uint8_t p[DESCRIPTOR64_LEN];
    size_t len = wide ? DESCRIPTOR64_LEN : DESCRIPTOR_LEN;
    if (at < c->rope.start || rope_copy(&c->rope, at, p, len) != len || get_le32(p) != DESCRIPTOR)
        return false;
    return wide ? get_le64(p + 8) == data_len : get_le32(p + 8) == data_len;
}

/* Returns the end of the data that begin at `data`, of the entry before the marker at `next`. */
static uint64_t zip_entry_end(struct chunking *c, uint64_t data, uint64_t next)
{
    for (int wide = 0; wide < 2; wide++) {
        uint64_t len = wide ? DESCRIPTOR64_LEN : DESCRIPTOR_LEN;
        if (next >= data + len && descriptor_at(c, next - len, next - len - data, wide))
            return next - len;
    }
    return next;
}

/* Returns the offset behind which a marker may begin whose end is not in memory yet. */
static uint64_t scan_end(const struct chunking *c)
{
    if (c->in->is_last)
        return c->rope.end;
    uint64_t len = c->rope.end - c->rope.start;
    return c->rope.end - min_u64(len, MARKER_LEN - 1);
}

enum entry { ENTRY_NONE, ENTRY_SMALL, ENTRY_TENSOR, ENTRY_HOLD };

/* Judges the entry whose header lies at `m`, by the place of the next header, which shows the
 * entry's length. */
static enum entry judge_entry(struct chunking *c, const struct marker *m)
{
    uint64_t limit = m->data + CHUNKER_SEGMENT_MIN + DESCRIPTOR64_LEN;
    uint64_t end = c->rope.end;
    struct marker next;
    if (find_marker(c, m->at + 1, limit, &next)) {
        if (next.at < m->data)
            return ENTRY_NONE;
        end = zip_entry_end(c, m->data, next.at);
    } else if (scan_end(c) < limit && !c->in->is_last) {
        return ENTRY_HOLD;
    }
    if (end < m->data)
        return ENTRY_NONE;
    return end - m->data >= CHUNKER_SEGMENT_MIN ? ENTRY_TENSOR : ENTRY_SMALL;
}

/* Processes the header of an entry outside of a tensor. False: the entry cannot be judged yet. */
static bool chunk_zip_entry(struct chunking *c, const struct marker *m)
{
    add_grid(c, m->at);
    if (m->data == 0)
        return true;
    enum entry entry = judge_entry(c, m);
    if (entry == ENTRY_HOLD)
        return false;
    if (entry == ENTRY_NONE)
        return true;
    if (entry == ENTRY_TENSOR) {
        set_anchor(c, m->data);
        c->state->kind = KIND_ZIP_TENSOR;
        return true;
    }
    add_grid(c, m->data);
    if (m->data - c->last >= CHUNKER_WRITE_MIN)
        set_anchor(c, m->data);
    return true;
}

static void chunk_zip(struct chunking *c)
{
    uint64_t from = c->rope.start;
    struct marker m;
    while (find_marker(c, from, c->rope.end, &m)) {
        if (c->state->kind == KIND_ZIP_TENSOR) {
            set_anchor(c, zip_entry_end(c, c->state->anchor, m.at));
            c->state->kind = KIND_ZIP_BOOKKEEPING;
        }
        if (!chunk_zip_entry(c, &m))
            return;
        from = c->state->kind == KIND_ZIP_TENSOR ? m.data : m.at + 1;
    }
    if (c->in->is_last) {
        finish_chunks(c);
        return;
    }
    /* The descriptor of a tensor that ends may lie before a header of which only a part is in
     * memory. */
    uint64_t known = scan_end(c),
             tail = c->state->kind == KIND_ZIP_TENSOR ? DESCRIPTOR64_LEN + 1 : 0;
    add_grid(c, known > tail ? known - tail : 0);
}

static void chunk_safetensors(struct chunking *c)
{
    struct chunker *s = c->state;
    size_t i = 0;
    for (; i < s->tensor_count && s->tensors[i] <= c->rope.end; i++)
        set_anchor(c, s->tensors[i]);
    s->tensor_count -= i;
    if (i && s->tensor_count)
        memmove(s->tensors, s->tensors + i, s->tensor_count * sizeof *s->tensors);
    if (c->in->is_last)
        finish_chunks(c);
    else
        add_grid(c, c->rope.end);
}

enum write { WRITE_SMALL, WRITE_COPY, WRITE_LARGE, WRITE_HOLD };

/* `before`: length of the write before this one. */
static enum write judge_write(uint64_t len, uint64_t before, bool whole)
{
    bool may_copy = before >= CHUNKER_WRITE_MIN && before < CHUNK_SIZE_MAX;
    if (!whole && (len < CHUNKER_WRITE_MIN || (may_copy && len <= before)))
        return WRITE_HOLD;
    if (len < CHUNKER_WRITE_MIN)
        return WRITE_SMALL;
    return may_copy && len == before ? WRITE_COPY : WRITE_LARGE;
}

/* Processes the border between the write that began at `previous` and the one at write_starts[i].
 * False: hold the rest back. */
static bool chunk_write(struct chunking *c, uint64_t previous, size_t i)
{
    const struct chunker_input *in = c->in;
    uint64_t start = in->write_starts[i], before = start - previous;
    bool whole = i + 1 < in->write_count || in->is_last;
    uint64_t end = i + 1 < in->write_count ? in->write_starts[i + 1] : c->rope.end;
    enum write kind = judge_write(end - start, before, whole);
    if (kind == WRITE_LARGE || (kind == WRITE_SMALL && before >= CHUNKER_WRITE_MIN))
        set_anchor(c, start);
    else
        add_grid(c, start);
    return kind != WRITE_HOLD;
}

static void chunk_plain(struct chunking *c)
{
    const struct chunker_input *in = c->in;
    uint64_t previous = c->state->write_start;
    size_t i = 0;
    while (i < in->write_count && in->write_starts[i] <= previous)
        i++;
    bool hold = false;
    for (; i < in->write_count && !hold; i++) {
        check(in->write_starts[i] < c->rope.end && in->write_starts[i] > previous);
        hold = !chunk_write(c, previous, i);
        previous = in->write_starts[i];
    }
    if (in->is_last)
        finish_chunks(c);
    else if (!hold)
        add_grid(c, c->rope.end);
    for (i = 0; i < in->write_count && in->write_starts[i] < c->last; i++)
        c->state->write_start = max_u64(c->state->write_start, in->write_starts[i]);
}

/* False: too few bytes to tell. */
static bool begin_zip(struct chunking *c, const uint8_t *first, size_t len)
{
    static const uint8_t signature[4] = {'P', 'K', 3, 4};
    struct marker m;
    if (len < MARKER_LEN)
        return c->in->is_last || memcmp(first, signature, min_u64(len, sizeof signature)) != 0;
    if (find_marker(c, 0, 1, &m) && m.data > 0)
        c->state->kind = KIND_ZIP_BOOKKEEPING;
    return true;
}

static bool begin_safetensors(struct chunking *c, const uint8_t *first, size_t len)
{
    if (len < 9)
        return c->in->is_last;
    size_t header_len = tensors_header_len(first);
    if (header_len == 0)
        return true;
    if (c->rope.end < header_len)
        return c->in->is_last;
    _cleanup_free_ uint8_t *header = xmalloc(header_len);
    check(rope_copy(&c->rope, 0, header, header_len) == header_len);
    tensors_parse(header, header_len, &c->state->tensors, &c->state->tensor_count);
    c->state->kind = KIND_SAFETENSORS;
    return true;
}

/* Determines the kind of the file from its first bytes. False: too few bytes to tell. */
static bool begin_chunking_file(struct chunking *c)
{
    uint8_t first[MARKER_LEN];
    size_t len = c->rope.start == 0 ? rope_copy(&c->rope, 0, first, sizeof first) : 0;
    if (c->rope.start == 0) {
        if (!begin_zip(c, first, len))
            return false;
        if (c->state->kind == KIND_UNKNOWN && !begin_safetensors(c, first, len))
            return false;
    }
    if (c->state->kind == KIND_UNKNOWN)
        c->state->kind = KIND_PLAIN;
    c->state->anchor = c->state->write_start = c->rope.start;
    return true;
}

size_t chunker_find_borders(struct chunker *state, const struct chunker_input *in,
                            uint64_t *borders, size_t borders_max)
{
    struct chunking c = {
        .state = state, .in = in, .last = in->offset, .borders = borders, .max = borders_max};
    rope_init(&c.rope, in->iov, in->iov_count, in->offset);
    check(borders_max >= (c.rope.end - c.rope.start) / 512 + 16);
    if (state->kind == KIND_UNKNOWN && !begin_chunking_file(&c))
        return 0;
    check(state->anchor <= in->offset);
    if (state->kind == KIND_PLAIN)
        chunk_plain(&c);
    else if (state->kind == KIND_SAFETENSORS)
        chunk_safetensors(&c);
    else
        chunk_zip(&c);
    return c.count;
}
