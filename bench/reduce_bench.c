// SPDX-License-Identifier: Apache-2.0
/* Speed of the codec over the chunks of files, beside memcpy and BLAKE3 over the same bytes:
 * reduce_bench ROUNDS FILE[:BASE]... A line of JSON for each file: bytes, stored bytes, and seconds
 * of thread CPU time of each round for as many bytes. memcpy, BLAKE3 and fx are measured twice:
 *
 *   "cached"  each chunk was read just before, as writeback hashes it: it comes from the cache
 *   "memory"  chunk after chunk of 256 MiB, the file over and over, which no cache holds
 *
 * All write into one buffer of a chunk that is used again. The rest is done with the file as it is,
 * "file". A matrix is what fx_encode_matrix() makes less of. For twin a file is taken for fp32
 * numbers, which are rounded to images; seconds are those for the fp32. Where there is a base, as
 * long a file, chunks are also encoded as dx to the chunks of the base. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "codec/dx.h"
#include "codec/encode.h"
#include "codec/fx.h"
#include "codec/hash.h"
#include "codec/twin.h"
#include "codec/twin_find.h"
#include "codec/twin_kernels.h"

#define ROUNDS_MAX 99
#define MEMORY_LEN (256u * MIB)
#define CACHED_TIMES 4u /* a chunk, in a round */

/* The file over and over, `raw_len` bytes in all, and its chunks as they are stored. */
static uint8_t *raw, *stored;
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

/* Returns 0 where fx does not pay: then the chunk is stored as it is. */
static size_t encode_to(size_t i, uint8_t *dst)
{
    struct fx_guess guess;
    fx_look(raw + i * CHUNK_SIZE_MAX, chunk_len(i), &guess);
    return fx_pays(&guess) ? fx_encode(kernels, &guess, raw + i * CHUNK_SIZE_MAX, chunk_len(i), dst,
                                       chunk_len(i))
                           : 0;
}

static void encode(size_t i)
{
    lens[i] = encode_to(i, out);
}

static void store(size_t i)
{
    lens[i] = encode_to(i, stored + i * CHUNK_SIZE_MAX);
}

static void decode(size_t i)
{
    if (lens[i] > 0)
        check(fx_decode(kernels, stored + i * CHUNK_SIZE_MAX, lens[i], out, chunk_len(i)) == 0);
    else
        copy(i);
}

/* --- matrices --------------------------------------------------------------------------------- */

static uint64_t matrix[FX_MATRIX_SCRATCH_LEN / 8];

/* As fx, where there are no rows. */
static void matrix_encode_chunk(size_t i)
{
    struct fx_guess guess;
    uint8_t *src = raw + i * CHUNK_SIZE_MAX, *dst = stored + i * CHUNK_SIZE_MAX;
    store(i);
    fx_look(src, chunk_len(i), &guess);
    size_t most = lens[i] ? lens[i] : chunk_len(i),
           len = fx_encode_matrix(kernels, &guess, src, chunk_len(i), matrix, out, most - 1);
    if (len == 0)
        return;
    memcpy(dst, out, len);
    lens[i] = len;
}

/* --- dx --------------------------------------------------------------------------------------- */

static enum cpu_level level_now;
static uint8_t *base;
static struct fx_guess *guesses; /* of the chunks */

static struct dx_pair pair_of(size_t i)
{
    return (struct dx_pair){raw + i * CHUNK_SIZE_MAX, base + i * CHUNK_SIZE_MAX, chunk_len(i)};
}

static void dx_encode_chunk(size_t i)
{
    const struct dx_pair pair = pair_of(i);
    fx_look(raw + i * CHUNK_SIZE_MAX, chunk_len(i), &guesses[i]);
    lens[i] = dx_encode(dx_kernels_of(level_now), &guesses[i], &pair, stored + i * CHUNK_SIZE_MAX,
                        chunk_len(i));
}

static void dx_decode_chunk(size_t i)
{
    const struct iovec whole_base = {base + i * CHUNK_SIZE_MAX, chunk_len(i)};
    if (lens[i] > 0)
        check(dx_decode(dx_kernels_of(level_now), stored + i * CHUNK_SIZE_MAX, lens[i], &whole_base,
                        out, chunk_len(i)) == 0);
    else
        copy(i);
}

static void dx_gate_chunk(size_t i)
{
    const struct dx_pair pair = pair_of(i);
    sink = (uint8_t)dx_gate(dx_kernels_of(level_now), &guesses[i], &pair);
}

/* --- twin ------------------------------------------------------------------------------------- */

static uint8_t *image; /* of the whole file */
static struct twin_index *known, *unknown;

static struct twin_part whole_chunk(size_t i)
{
    return (struct twin_part){image + i * CHUNK_SIZE_MAX / 2, 0, (uint32_t)(chunk_len(i) / 4)};
}

static void twin_encode_chunk(size_t i)
{
    const struct twin_part part = whole_chunk(i);
    const struct twin_chunk chunk = {&part, 1, raw + i * CHUNK_SIZE_MAX, chunk_len(i)};
    lens[i] = twin_encode(level_now, &chunk, scratch, stored + i * CHUNK_SIZE_MAX, chunk_len(i));
}

static void twin_decode_chunk(size_t i)
{
    struct iovec of = {image + i * CHUNK_SIZE_MAX / 2, chunk_len(i) / 2};
    if (lens[i] > 0)
        check(twin_decode(level_now, stored + i * CHUNK_SIZE_MAX, lens[i], &of, 1, out,
                          chunk_len(i)) == 0);
}

static void twin_add(size_t i)
{
    struct fx_guess guess = {.width = 2};
    twin_index_add(known, level_now, &guess, image + i * CHUNK_SIZE_MAX / 2, chunk_len(i) / 2, i);
}

static const uint8_t *get_image(void *arg, uint64_t tag, size_t *ret_len)
{
    (void)arg;
    *ret_len = chunk_len(tag) / 2;
    return image + tag * CHUNK_SIZE_MAX / 2;
}

static void find_in(const struct twin_index *index, size_t i)
{
    struct fx_guess guess = {.width = 4};
    struct twin_images how = {get_image, NULL};
    struct twin_match matches[CHUNK_REFS_MAX];
    sink = (uint8_t)twin_find(index, level_now, &guess, raw + i * CHUNK_SIZE_MAX, chunk_len(i),
                              &how, matches);
}

static void twin_found(size_t i)
{
    find_in(known, i);
}

static void twin_not_found(size_t i)
{
    find_in(unknown, i);
}

/* As writeback does it: choice, encoding, verification. */
static void chunk(size_t i)
{
    struct iovec iov = {raw + i * CHUNK_SIZE_MAX, chunk_len(i)};
    struct chunk_encoded e = chunk_encode(REDUCE_FAST, &iov, 1, chunk_len(i), scratch, out);
    sink = (uint8_t)e.len;
}

static double now(void)
{
    return (double)clock_ns(CLOCK_THREAD_CPUTIME_ID) / 1e9;
}

/* Seconds of a round. */
static double pass(void (*step)(size_t i))
{
    double began = now();
    for (size_t i = 0; i < chunks; i++)
        step(i);
    return now() - began;
}

static double pass_cached(void (*step)(size_t i))
{
    double sum = 0;
    for (size_t i = 0; i < chunks; i++) {
        step(i);
        double began = now();
        for (unsigned k = 0; k < CACHED_TIMES; k++)
            step(i);
        sum += now() - began;
    }
    return sum / CACHED_TIMES;
}

static double (*regime)(void (*step)(size_t i)) = pass;
static const char *separator;

static void measure(const char *name, unsigned rounds, void (*step)(size_t i))
{
    printf("%s\"%s\": [", separator, name);
    for (unsigned round = 0; round < rounds; round++)
        printf("%s%.6f", round ? ", " : "", regime(step));
    printf("]");
    separator = ", ";
}

static void measure_at(const char *name, unsigned rounds, void (*step)(size_t i))
{
    char full[64];
    (void)snprintf(full, sizeof full, "%s_%s", name, cpu_level_name(level_now));
    measure(full, rounds, step);
}

static size_t stored_len(void)
{
    size_t sum = 0;
    for (size_t i = 0; i < chunks; i++)
        sum += lens[i] ? lens[i] : chunk_len(i);
    return sum;
}

static void bench_matrix(unsigned rounds)
{
    for (level_now = CPU_SCALAR; level_now <= cpu_level_of_machine(); level_now++) {
        kernels = fx_kernels_of(level_now);
        measure_at("matrix_encode", rounds, matrix_encode_chunk);
        measure_at("matrix_decode", rounds, decode);
    }
    printf(", \"matrix_bytes\": %zu", stored_len());
}

static void bench_twin(unsigned rounds)
{
    image = xmalloc_large(raw_len / 2);
    twin_scalar.round(raw, raw_len / 4, image);
    unknown = twin_index_new(MIB);
    for (level_now = CPU_SCALAR; level_now <= cpu_level_of_machine(); level_now++) {
        known = twin_index_new(MIB);
        measure_at("twin_encode", rounds, twin_encode_chunk);
        measure_at("twin_decode", rounds, twin_decode_chunk);
        measure_at("twin_add", rounds, twin_add);
        measure_at("twin_found", rounds, twin_found);
        measure_at("twin_not_found", rounds, twin_not_found);
        twin_index_free(known);
    }
    printf(", \"twin_bytes\": %zu", stored_len());
    twin_index_free(unknown);
    free(image);
}

static void bench_dx(const char *path, unsigned rounds)
{
    char *bytes = NULL;
    size_t base_len;
    check(io_read_file(path, 1ull << 30, &bytes, &base_len) == 0 && base_len >= raw_len);
    base = (uint8_t *)bytes;
    guesses = xcalloc(chunks, sizeof *guesses);
    for (level_now = CPU_SCALAR; level_now <= cpu_level_of_machine(); level_now++) {
        measure_at("dx_encode", rounds, dx_encode_chunk);
        measure_at("dx_decode", rounds, dx_decode_chunk);
        measure_at("dx_gate", rounds, dx_gate_chunk);
    }
    printf(", \"dx_bytes\": %zu", stored_len());
    free(base);
    free(guesses);
}

static void bench_fx(const char *name, double (*how)(void (*step)(size_t i)), unsigned rounds)
{
    regime = how;
    separator = "";
    printf(", \"%s\": {", name);
    measure("memcpy", rounds, copy);
    measure("blake3", rounds, hash);
    measure("chunk", rounds, chunk);
    for (level_now = CPU_SCALAR; level_now <= cpu_level_of_machine(); level_now++) {
        kernels = fx_kernels_of(level_now);
        measure_at("encode", rounds, encode);
        measure_at("decode", rounds, decode);
    }
    printf("}");
}

static void bench_file(const char *base_path, unsigned rounds)
{
    regime = pass;
    separator = "";
    printf(", \"file\": {");
    measure("memcpy", rounds, copy);
    measure("blake3", rounds, hash);
    bench_matrix(rounds);
    bench_twin(rounds);
    if (base_path)
        bench_dx(base_path, rounds);
    printf("}");
}

/* Stores them, too. */
static void use_chunks(size_t len)
{
    raw_len = len;
    chunks = (len + CHUNK_SIZE_MAX - 1) / CHUNK_SIZE_MAX;
    kernels = fx_kernels_of(cpu_level_of_machine());
    (void)pass(store);
}

/* Shared, as the stage is: the kernel gives it huge pages where it gives the stage some. */
static uint8_t *map_shared(size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(p != MAP_FAILED);
    (void)madvise(p, len, MADV_HUGEPAGE);
    memset(p, 1, len);
    return p;
}

static void bench(const char *path, const char *base_path, unsigned rounds)
{
    char *bytes = NULL;
    size_t file_len, all;
    check(io_read_file(path, 1ull << 30, &bytes, &file_len) == 0 && file_len >= FX_RAW_MIN);
    file_len = align_down(file_len, FX_RAW_MIN); /* so that no chunk is shorter */
    all = max_u64(align_down(MEMORY_LEN, FX_RAW_MIN), file_len);
    raw = map_shared(all);
    stored = map_shared(all);
    for (size_t at = 0; at < all; at += file_len)
        memcpy(raw + at, bytes, (size_t)min_u64(file_len, all - at));
    free(bytes);
    lens = xcalloc(all / CHUNK_SIZE_MAX + 1, sizeof *lens);
    use_chunks(file_len);
    printf("{\"path\": \"%s\", \"bytes\": %zu, \"stored_bytes\": %zu", path, file_len,
           stored_len());
    bench_fx("cached", pass_cached, rounds);
    use_chunks(all);
    printf(", \"memory_bytes\": %zu", all);
    bench_fx("memory", pass, rounds);
    use_chunks(file_len);
    bench_file(base_path, rounds);
    printf("}\n");
    (void)munmap(raw, all);
    (void)munmap(stored, all);
    free(lens);
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    if (rounds == 0 || rounds > ROUNDS_MAX) {
        (void)fprintf(stderr, "usage: reduce_bench ROUNDS FILE[:BASE]...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        if (colon)
            *colon = 0;
        bench(argv[i], colon ? colon + 1 : NULL, rounds);
    }
    return 0;
}
