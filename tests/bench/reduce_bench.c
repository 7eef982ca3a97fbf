// SPDX-License-Identifier: Apache-2.0
/* Speed of the codec over the chunks of files, beside memcpy and BLAKE3 over the same bytes:
 * reduce_bench ROUNDS FILE... A line of JSON for each file: bytes, stored bytes, and seconds of
 * thread CPU time of each round. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "codec/encode.h"
#include "codec/fx.h"
#include "codec/hash.h"

#define ROUNDS_MAX 99

static uint8_t *raw, *stored; /* the whole file: read from memory, as what is in the stage is */
static size_t *lens, chunks, raw_len;
static uint8_t out[CHUNK_SIZE_MAX], scratch[CHUNK_SCRATCH_LEN];
static const struct fx_kernels *kernels;
static volatile uint8_t sink;

static size_t chunk_len(size_t i)
{
    return (size_t)min_u64(CHUNK_SIZE_MAX, raw_len - i * CHUNK_SIZE_MAX);
}

static void copy(size_t i)
{
    memcpy(out, raw + i * CHUNK_SIZE_MAX, chunk_len(i));
}

static void hash(size_t i)
{
    static const struct chunk_key key;
    struct iovec iov = {raw + i * CHUNK_SIZE_MAX, chunk_len(i)};
    struct chunk_name name = hash_chunk(&key, &iov, 1);
    sink = name.bytes[0];
}

/* 0 where fx does not pay: then the chunk is stored as it is. */
static void encode(size_t i)
{
    struct fx_guess guess;
    fx_look(raw + i * CHUNK_SIZE_MAX, chunk_len(i), &guess);
    lens[i] = fx_pays(&guess) ? fx_encode(kernels, &guess, raw + i * CHUNK_SIZE_MAX, chunk_len(i),
                                          stored + i * CHUNK_SIZE_MAX, chunk_len(i))
                              : 0;
}

static void decode(size_t i)
{
    if (lens[i] > 0)
        check(fx_decode(kernels, stored + i * CHUNK_SIZE_MAX, lens[i], out, chunk_len(i)) == 0);
    else
        copy(i);
}

/* As writeback does it: choice, encoding, verification. */
static void chunk(size_t i)
{
    struct iovec iov = {raw + i * CHUNK_SIZE_MAX, chunk_len(i)};
    struct chunk_encoded e = chunk_encode(REDUCE_FAST, &iov, 1, chunk_len(i), scratch, out);
    sink = (uint8_t)e.len;
}

static void measure(const char *name, unsigned rounds, void (*step)(size_t i))
{
    printf(", \"%s\": [", name);
    for (unsigned round = 0; round < rounds; round++) {
        int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        for (size_t i = 0; i < chunks; i++)
            step(i);
        printf("%s%.6f", round ? ", " : "",
               (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - began) / 1e9);
    }
    printf("]");
}

static size_t stored_len(void)
{
    size_t sum = 0;
    for (size_t i = 0; i < chunks; i++)
        sum += lens[i] ? lens[i] : chunk_len(i);
    return sum;
}

static void bench(const char *path, unsigned rounds)
{
    char *bytes = NULL;
    check(io_read_file(path, 1ull << 30, &bytes, &raw_len) == 0 && raw_len >= CHUNK_SIZE_MAX);
    raw_len = align_down(raw_len, CHUNK_SIZE_MAX);
    raw = (uint8_t *)bytes;
    chunks = raw_len / CHUNK_SIZE_MAX;
    lens = xcalloc(chunks, sizeof *lens);
    stored = xmalloc_large(raw_len);
    memset(stored, 1, raw_len);
    printf("{\"file\": \"%s\", \"bytes\": %zu", path, raw_len);
    measure("memcpy", rounds, copy);
    measure("blake3", rounds, hash);
    measure("chunk", rounds, chunk);
    for (enum cpu_level level = CPU_SCALAR; level <= cpu_level_of_machine(); level++) {
        char name[32];
        kernels = fx_kernels_of(level);
        (void)snprintf(name, sizeof name, "encode_%s", cpu_level_name(level));
        measure(name, rounds, encode);
        (void)snprintf(name, sizeof name, "decode_%s", cpu_level_name(level));
        measure(name, rounds, decode);
    }
    printf(", \"stored_bytes\": %zu}\n", stored_len());
    free(raw);
    free(stored);
    free(lens);
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    if (rounds == 0 || rounds > ROUNDS_MAX) {
        (void)fprintf(stderr, "usage: reduce_bench ROUNDS FILE...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++)
        bench(argv[i], rounds);
    return 0;
}
