// SPDX-License-Identifier: Apache-2.0
/* What zstd would make of the chunks that are no tensors: text_bench FILE... cuts each file as
 * writeback does and encodes the chunks; those that fx does not take go to lz4 and to zstd as well.
 * A line of JSON for all files together: bytes, those of chunks in each encoding, and of these
 * chunks (`text`) raw and stored bytes and seconds of thread CPU time by lz4 and by levels of zstd.
 * Files of up to INLINE_MAX bytes lie in their records and have no chunks: `inline_bytes`. */
#include <lz4.h>
#include <stdio.h>
#include <zstd.h>

#include "base/clock.h"
#include "base/io.h"
#include "codec/chunker.h"
#include "codec/encode.h"
#include "codec/fx.h"
#include "format/record.h"

struct coder {
    const char *name;
    int level; /* of zstd; 0: lz4 */
    size_t stored;
    int64_t encode_ns, decode_ns;
};

static struct coder coders[] = {{.name = "lz4"},
                                {.name = "zstd1", .level = 1},
                                {.name = "zstd3", .level = 3},
                                {.name = "zstd9", .level = 9}};
static size_t files_bytes, inline_bytes, text_bytes, text_now, text_chunks;
static struct {
    size_t raw, stored;
} by_encoding[CHUNK_ENCODINGS];
static ZSTD_CCtx *cctx;
static ZSTD_DCtx *dctx;

static size_t encode(const struct coder *c, const uint8_t *raw, size_t len, uint8_t *dst,
                     size_t room)
{
    if (c->level == 0)
        return (size_t)LZ4_compress_default((const char *)raw, (char *)dst, (int)len, (int)room);
    size_t n = ZSTD_compressCCtx(cctx, dst, room, raw, len, c->level);
    return ZSTD_isError(n) ? 0 : n;
}

static bool decode(const struct coder *c, const uint8_t *src, size_t len, uint8_t *dst,
                   size_t raw_len)
{
    if (c->level == 0)
        return LZ4_decompress_safe((const char *)src, (char *)dst, (int)len, (int)raw_len) ==
               (int)raw_len;
    return ZSTD_decompressDCtx(dctx, dst, raw_len, src, len) == raw_len;
}

/* What no coder makes shorter is stored as it is. */
static void try_coder(struct coder *c, const uint8_t *raw, size_t len)
{
    static uint8_t stored[CHUNK_SIZE_MAX], again[CHUNK_SIZE_MAX];
    int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    size_t n = encode(c, raw, len, stored, len - 1);
    int64_t encoded = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    c->encode_ns += encoded - began;
    c->stored += n > 0 ? n : len;
    if (n == 0)
        return;
    check(decode(c, stored, n, again, len));
    c->decode_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - encoded;
    check(memcmp(again, raw, len) == 0);
}

static void chunk(uint8_t *raw, size_t len)
{
    static uint8_t scratch[CHUNK_SCRATCH_LEN], dst[CHUNK_SIZE_MAX];
    struct iovec iov = {raw, len};
    struct chunk_encoded e = chunk_encode(REDUCE_FAST, &iov, 1, len, scratch, dst);
    by_encoding[e.encoding].raw += len;
    by_encoding[e.encoding].stored += e.len;
    if (e.encoding == ENCODING_FX && fx_width(dst[0]) > 1)
        return;
    text_bytes += len;
    text_now += e.len;
    text_chunks++;
    for (size_t i = 0; i < ARRAY_LEN(coders); i++)
        try_coder(&coders[i], raw, len);
}

static void file(const char *path)
{
    char *bytes = NULL;
    size_t len;
    check(io_read_file(path, 1ull << 32, &bytes, &len) == 0);
    files_bytes += len;
    if (len <= INLINE_MAX) {
        inline_bytes += len;
        free(bytes);
        return;
    }
    struct chunker state = {0};
    struct iovec iov = {bytes, len};
    uint64_t start = 0, *borders = xcalloc(len / 512 + 16, sizeof *borders);
    struct chunker_input in = {
        .iov = &iov, .iov_count = 1, .write_starts = &start, .write_count = 1, .is_last = true};
    chunker_look_ahead(&state, &iov, 1);
    size_t n = chunker_find_borders(&state, &in, borders, len / 512 + 16);
    for (size_t i = 0, at = 0; i < n; at = borders[i++])
        chunk((uint8_t *)bytes + at, borders[i] - at);
    chunker_done(&state);
    free(borders);
    free(bytes);
}

int main(int argc, char **argv)
{
    cctx = ZSTD_createCCtx();
    dctx = ZSTD_createDCtx();
    check(cctx && dctx);
    for (int i = 1; i < argc; i++)
        file(argv[i]);
    printf("{\"bytes\": %zu, \"inline_bytes\": %zu, \"encodings\": {", files_bytes, inline_bytes);
    for (uint8_t e = 0; e < CHUNK_ENCODINGS; e++)
        printf("%s\"%s\": {\"raw_bytes\": %zu, \"stored_bytes\": %zu}", e ? ", " : "",
               chunk_encoding_name(e), by_encoding[e].raw, by_encoding[e].stored);
    printf("}, \"text\": {\"chunks\": %zu, \"bytes\": %zu, \"stored_bytes\": %zu", text_chunks,
           text_bytes, text_now);
    for (size_t i = 0; i < ARRAY_LEN(coders); i++)
        printf(", \"%s\": {\"stored_bytes\": %zu, \"encode_s\": %.6f, \"decode_s\": %.6f}",
               coders[i].name, coders[i].stored, (double)coders[i].encode_ns / 1e9,
               (double)coders[i].decode_ns / 1e9);
    printf("}}\n");
    ZSTD_freeCCtx(cctx);
    ZSTD_freeDCtx(dctx);
    return 0;
}
