// SPDX-License-Identifier: Apache-2.0
/* Times of applying: one file of 1,000 chunks, small files by the thousand, a file of
 * 10^5 extents. */
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "view/view.h"

struct bench {
    struct view *view;
    uint8_t *buf;
    size_t len;
    uint64_t seq;
    uint32_t first_chunk, chunk_count; /* of the pack that is asked for */
};

static struct chunk_name chunk_of(uint32_t id)
{
    struct chunk_name name = {0};
    uint32_t mixed = id * 2654435761u;
    memcpy(name.bytes, &mixed, sizeof mixed);
    memcpy(name.bytes + 4, &id, sizeof id);
    return name;
}

static void add(struct bench *b, struct record rec)
{
    rec.seq = ++b->seq;
    rec.time = (int64_t)rec.seq;
    record_encode(&rec, b->buf + b->len);
    b->len += record_encoded_len(&rec);
}

static int pack_index(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                      void *fn_arg, void *arg)
{
    const struct bench *b = arg;
    for (uint32_t i = 0; i < b->chunk_count; i++) {
        struct chunk_entry e = {.name = chunk_of(b->first_chunk + i),
                                .pack = pack,
                                .offset = 64 + (uint64_t)i * 1000,
                                .stored_len = 1000,
                                .raw_len = CHUNK_SIZE_MAX};
        int r = fn(&e, fn_arg);
        if (r < 0)
            return r;
    }
    return 0;
}

static double apply(struct bench *b)
{
    struct view_batch batch = {.records = b->buf,
                               .records_len = b->len,
                               .cut_seq = b->seq,
                               .pack_index = pack_index,
                               .arg = b};
    int64_t start = clock_monotonic_ns();
    if (view_apply(b->view, &batch) < 0)
        exit(1);
    b->len = 0;
    return (double)(clock_monotonic_ns() - start) / 1e6;
}

static struct record seal_of(uint64_t ino, uint64_t version, const char *name, uint64_t size)
{
    return (struct record){.type = REC_SEAL,
                           .flags = version == 1 ? RECORD_BIRTH : 0,
                           .ino = ino,
                           .version = version,
                           .parent = ROOT_INO,
                           .cookie = ino,
                           .name = name,
                           .name_len = (uint16_t)strlen(name),
                           .attrs = {.mode = S_IFREG | 0644, .size = size}};
}

static void bench_chunks(struct bench *b)
{
    static struct extent e[1000];
    for (uint32_t round = 0; round < 5; round++) {
        char name[16];
        b->first_chunk = 1 + round * 1000;
        b->chunk_count = 1000;
        for (uint32_t i = 0; i < 1000; i++)
            e[i] = (struct extent){.offset = i * MIB, .length = MIB, .kind = EXTENT_CHUNK};
        for (uint32_t i = 0; i < 1000; i++)
            e[i].chunk = chunk_of(b->first_chunk + i);
        sprintf(name, "big%u", round);
        add(b,
            (struct record){.type = REC_PACK, .pack = 1 + round, .length = 1 << 20, .count = 1000});
        struct record rec = seal_of(1000 + round, 1, name, 1000 * MIB);
        rec.extents = e;
        rec.extent_count = 1000;
        add(b, rec);
        printf("pack and file of 1000 chunks: %.2f ms\n", apply(b));
    }
}

static void bench_creates(struct bench *b)
{
    char content[200] = "content";
    double total = 0, worst = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        char name[32];
        struct extent e = {.offset = 0, .length = sizeof content, .kind = EXTENT_INLINE};
        sprintf(name, "file%llu", (unsigned long long)i);
        struct record rec = seal_of(10000 + i, 1, name, sizeof content);
        rec.extents = &e;
        rec.extent_count = 1;
        rec.value = content;
        rec.value_len = sizeof content;
        add(b, rec);
        if (i % 1000 == 999) {
            double ms = apply(b);
            total += ms;
            worst = ms > worst ? ms : worst;
        }
    }
    printf("10^5 small files in batches of 1000: %.0f ms in all, the slowest batch %.1f ms\n",
           total, worst);
}

static void bench_unlinks(struct bench *b)
{
    double total = 0;
    for (uint64_t i = 100000; i-- > 0;) {
        char name[32];
        sprintf(name, "file%llu", (unsigned long long)i);
        add(b, (struct record){.type = REC_UNLINK,
                               .ino = 10000 + i,
                               .parent = ROOT_INO,
                               .name = name,
                               .name_len = (uint16_t)strlen(name)});
        if (i % 10000 == 0)
            total += apply(b);
    }
    printf("10^5 unlinks, last first, in batches of 10000: %.0f ms\n", total);
}

/* A new version with 10^5 extents, in order or spread over 100 GiB. */
static void bench_extents(struct bench *b, const char *what, uint64_t version, uint64_t step,
                          uint64_t span)
{
    static struct extent e[RECORD_EXTENTS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        e[n++] = (struct extent){.offset = i * step % span,
                                 .length = 4096,
                                 .kind = EXTENT_CHUNK,
                                 .chunk = chunk_of(1 + i % 5000)};
        if (n < RECORD_EXTENTS_MAX && i != 99999)
            continue;
        add(b, (struct record){.type = REC_EXTENTS,
                               .ino = 1000,
                               .version = version,
                               .extents = e,
                               .extent_count = n});
        n = 0;
    }
    struct record rec = seal_of(1000, version, "", span);
    rec.keep = span;
    add(b, rec);
    printf("10^5 extents, %s: %.0f ms\n", what, apply(b));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

int main(void)
{
    char path[] = "/tmp/cairn-view-bench-XXXXXX";
    struct view_options options = {.cache_bytes = 64 * MIB, .create = true};
    struct bench b = {.buf = xmalloc(64 * MIB)};
    if (!mkdtemp(path) || view_open(path, &options, 0, &b.view) < 0)
        return 1;
    bench_chunks(&b);
    bench_extents(&b, "one after the other", 2, 4096, 100 * GIB);
    bench_extents(&b, "each in another page", 3, 16 * MIB + 4096, 2048 * GIB);
    bench_extents(&b, "backwards in 400 MB", 4, 100000 * 4096 - 4096, 100000 * 4096ull);
    bench_creates(&b);
    int64_t start = clock_monotonic_ns();
    int differences = view_check(b.view, NULL, NULL);
    printf("check: %d differences, %.0f ms\n", differences,
           (double)(clock_monotonic_ns() - start) / 1e6);
    bench_unlinks(&b);
    view_close(b.view);
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(b.buf);
    return differences != 0;
}
