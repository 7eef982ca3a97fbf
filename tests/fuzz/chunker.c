// SPDX-License-Identifier: Apache-2.0
/* Cutting of files into chunks, with the scans for tensors in zip and safetensors files: borders
 * ascend, no chunk is too long, and how the content comes (in buffers, in calls) makes no
 * difference. An input is a recipe, so that short ones make long files. */
#include "codec/chunker.h"

#include "format/chunk.h"
#include "format/le.h"
#include "fuzz.h"

#define CONTENT_MAX (1280u * 1024)
#define WRITES_MAX 512u

struct made {
    uint8_t *at;
    size_t len;
    uint64_t writes[WRITES_MAX];
    size_t write_count;
};

struct borders {
    uint64_t *at;
    size_t count;
};

static size_t room_for(const struct made *made, size_t len)
{
    return len < CONTENT_MAX - made->len ? len : CONTENT_MAX - made->len;
}

static void add(struct made *made, const void *bytes, size_t len)
{
    len = room_for(made, len);
    if (len)
        memcpy(made->at + made->len, bytes, len);
    made->len += len;
}

static void add_fill(struct made *made, uint8_t byte, size_t len)
{
    len = room_for(made, len);
    memset(made->at + made->len, byte, len);
    made->len += len;
}

static void add_entry(struct made *made, struct input *in)
{
    uint8_t header[30] = {'P', 'K', 3, 4, 0, 0, 8, 8};
    put_le16(header + 26, input_u8(in));
    put_le16(header + 28, input_u16(in));
    add(made, header, sizeof header);
    add_fill(made, 'n', get_le16(header + 26) + (size_t)get_le16(header + 28));
}

static void add_descriptor(struct made *made, struct input *in)
{
    uint8_t p[24] = {'P', 'K', 7, 8};
    uint32_t len = input_u8(in) * 4096u + input_u8(in);
    put_le32(p + 8, len);
    put_le32(p + 12, len);
    add(made, p, 16);
}

static void make(struct input *in, struct made *made)
{
    static const char key[] = "\"data_offsets\":[";
    while (in->left && made->len < CONTENT_MAX) {
        uint8_t what = input_u8(in);
        size_t len = what >> 3;
        switch (what % 8) {
        case 0:
        case 1:
        case 2:
            len = len < in->left ? len : in->left;
            add(made, input_bytes(in, len), len);
            break;
        case 3:
            add_fill(made, (uint8_t)len, 64 * (size_t)input_u16(in));
            break;
        case 4:
            add_entry(made, in);
            break;
        case 5:
            add_descriptor(made, in);
            break;
        case 6:
            add(made, key, sizeof key - 1);
            break;
        default:
            if (made->write_count < WRITES_MAX && made->len > 0 &&
                (made->write_count == 0 || made->writes[made->write_count - 1] < made->len))
                made->writes[made->write_count++] = made->len;
        }
    }
    while (made->write_count && made->writes[made->write_count - 1] >= made->len)
        made->write_count--;
}

/* One call with [from, to), in buffers of `buffer` bytes; true if it found a border. */
static size_t call(struct chunker *state, const struct made *made, uint64_t from, uint64_t to,
                   size_t buffer, struct borders *b)
{
    size_t iov_count = 0, first = 0, last;
    struct iovec *iov = xcalloc((to - from) / buffer + 2, sizeof *iov);
    for (uint64_t at = from; at < to; at += iov[iov_count++].iov_len)
        iov[iov_count] = (struct iovec){made->at + at, (size_t)min_u64(buffer, to - at)};
    while (first < made->write_count && made->writes[first] < from)
        first++;
    for (last = first; last < made->write_count && made->writes[last] < to; last++)
        ;
    struct chunker_input in = {.iov = iov,
                               .iov_count = iov_count,
                               .offset = from,
                               .write_starts = made->writes + first,
                               .write_count = last - first,
                               .is_last = to == made->len};
    size_t max = (size_t)(to - from) / 512 + 16;
    b->at = xrealloc(b->at, (b->count + max) * sizeof *b->at);
    size_t n = chunker_find_borders(state, &in, b->at + b->count, max);
    check(n <= max && (n > 0 || to - from < CHUNKER_HOLD_MAX || from == to));
    b->count += n;
    free(iov);
    return n;
}

static struct borders chunk_in_steps(const struct made *made, size_t step, size_t buffer)
{
    struct borders b = {0};
    struct chunker state = {0};
    uint64_t from = 0, to = 0;
    while (to < made->len) {
        to = min_u64(to + step, made->len);
        if (call(&state, made, from, to, buffer, &b))
            from = b.at[b.count - 1];
    }
    chunker_done(&state);
    return b;
}

static struct borders chunk_ahead(const struct made *made)
{
    struct borders b = {0};
    struct chunker state = {0};
    chunker_look_ahead(&state, &(struct iovec){made->at, made->len}, 1);
    if (made->len)
        (void)call(&state, made, 0, made->len, made->len, &b);
    chunker_done(&state);
    return b;
}

static void look_at(const struct made *made, const struct borders *b)
{
    uint64_t last = 0;
    for (size_t i = 0; i < b->count; i++) {
        check(b->at[i] > last && b->at[i] - last <= CHUNK_SIZE_MAX);
        last = b->at[i];
    }
    check(last == made->len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    static uint8_t room[CONTENT_MAX];
    struct made made = {.at = room};
    size_t step = 1 + input_u8(&in) * (size_t)16384, buffer = 16 + input_u8(&in) * (size_t)512;
    make(&in, &made);
    made.at = exact_copy(made.at, made.len);
    struct borders whole = chunk_in_steps(&made, made.len ? made.len : 1, made.len ? made.len : 1),
                   ahead = chunk_ahead(&made);
    look_at(&made, &whole);
    look_at(&made, &ahead);
    /* Steps that are small for the content would take for ever. */
    struct borders pieces =
        chunk_in_steps(&made, step < made.len / 24 ? made.len / 24 : step, buffer);
    check(pieces.count == whole.count &&
          (whole.count == 0 || memcmp(pieces.at, whole.at, whole.count * sizeof *whole.at) == 0));
    free(whole.at);
    free(ahead.at);
    free(pieces.at);
    free(made.at);
    return 0;
}
