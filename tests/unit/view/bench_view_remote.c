// SPDX-License-Identifier: Apache-2.0
/* Processor times of what concerns the remote: applying with and without marks, making a whole run,
 * adopting it. */
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "helpers.h"
#include "view/remote.h"

#define FILES_A_BATCH 10000u
#define FIRST_INO 10000u

struct kept {
    uint8_t *at;
    size_t len, room, count;
};

struct bench {
    struct view *view;
    struct kept kept; /* rows */
    uint8_t *buf;
    size_t len;
    uint64_t seq;
    uint32_t chunks; /* of the pack that is asked for, from 1 on */
};

/* Processor time, that of the database's threads included: it says the same on a busy machine. */
static int64_t cpu_ns(void)
{
    struct timespec t;
    check(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static double ms_since(int64_t start)
{
    return (double)(cpu_ns() - start) / 1e6;
}

static void must(int r)
{
    if (r < 0) {
        fprintf(stderr, "%s\n", strerror(-r));
        exit(1);
    }
}

static void add_record(struct bench *b, struct record rec)
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
    int r = 0;
    for (uint32_t i = 0; i < b->chunks && r == 0; i++) {
        struct chunk_entry e = {.name = chunk_of(1 + i),
                                .pack = pack,
                                .offset = 64 + 1000ull * i,
                                .stored_len = 1000,
                                .raw_len = CHUNK_SIZE_MAX};
        r = fn(&e, fn_arg);
    }
    return r;
}

static double apply_now(struct bench *b)
{
    struct view_batch batch = {.records = b->buf,
                               .records_len = b->len,
                               .cut_seq = b->seq,
                               .pack_index = pack_index,
                               .arg = b};
    int64_t start = cpu_ns();
    must(view_apply(b->view, &batch));
    b->len = 0;
    return ms_since(start);
}

/* Files with one extent each: a chunk of its own, or a few bytes. */
static void add_files(struct bench *b, uint32_t first, uint32_t count, bool chunks)
{
    static char content[200] = "content";
    for (uint32_t i = first; i < first + count; i++) {
        char name[32];
        struct extent e = {.length = sizeof content, .kind = EXTENT_INLINE};
        if (chunks)
            e = (struct extent){.length = MIB, .kind = EXTENT_CHUNK, .chunk = chunk_of(i)};
        int len = sprintf(name, "file%u", i);
        add_record(b, (struct record){.type = REC_SEAL,
                                      .flags = RECORD_BIRTH,
                                      .ino = FIRST_INO + i,
                                      .version = 1,
                                      .parent = ROOT_INO,
                                      .cookie = FIRST_INO + i,
                                      .name = name,
                                      .name_len = (uint16_t)len,
                                      .attrs = {.mode = S_IFREG | 0644, .size = e.length},
                                      .value = content,
                                      .value_len = chunks ? 0 : sizeof content,
                                      .extents = &e,
                                      .extent_count = 1});
    }
}

static void begin(struct bench *b, char path[64], bool tracks)
{
    strcpy(path, "/tmp/cairn-view-bench-XXXXXX");
    *b = (struct bench){.buf = xmalloc(128 * MIB), .seq = FIRST_INO}; /* cookies are older */
    check(mkdtemp(path) != NULL);
    open_view_at(path, &b->view);
    if (tracks)
        must(view_track(b->view));
}

static void end(struct bench *b, const char *path)
{
    view_close(b->view);
    remove_tree(path);
    free(b->buf);
    free(b->kept.at);
}

static void bench_apply(bool tracks)
{
    struct bench b;
    char path[64];
    begin(&b, path, tracks);
    add_files(&b, 1, 100000, false);
    printf("%s: a batch of 10^5 new small files %.0f ms", tracks ? "tracking" : "not tracking",
           apply_now(&b));
    b.chunks = 10000;
    add_record(&b,
               (struct record){.type = REC_PACK, .pack = 1, .length = 10 * MIB, .count = b.chunks});
    struct extent *e = xcalloc(b.chunks, sizeof *e);
    for (uint32_t i = 0; i < b.chunks; i++)
        e[i] = (struct extent){
            .offset = i * MIB, .length = MIB, .kind = EXTENT_CHUNK, .chunk = chunk_of(1 + i)};
    for (uint32_t i = 0; i < b.chunks; i += 2500)
        add_record(&b, (struct record){.type = REC_EXTENTS,
                                       .ino = 5000,
                                       .version = 1,
                                       .extents = e + i,
                                       .extent_count = 2500});
    add_record(
        &b, (struct record){.type = REC_SEAL,
                            .flags = RECORD_BIRTH,
                            .ino = 5000,
                            .version = 1,
                            .parent = ROOT_INO,
                            .cookie = 5000,
                            .name = "big",
                            .name_len = 3,
                            .attrs = {.mode = S_IFREG | 0644, .size = b.chunks * (uint64_t)MIB}});
    printf(", of a pack and a file of 10^4 chunks %.0f ms\n", apply_now(&b));
    free(e);
    end(&b, path);
}

static int keep_row(const struct run_row *row, void *arg)
{
    struct kept *kept = arg;
    size_t need = 2 * sizeof(size_t) + row->key_len + row->value_len;
    if (kept->len + need > kept->room) {
        kept->room = 2 * (kept->len + need);
        kept->at = xrealloc(kept->at, kept->room);
    }
    uint8_t *p = kept->at + kept->len;
    memcpy(p, &row->key_len, sizeof(size_t));
    memcpy(p + sizeof(size_t), &row->value_len, sizeof(size_t));
    memcpy(p + 2 * sizeof(size_t), row->key, row->key_len);
    if (row->value_len)
        memcpy(p + 2 * sizeof(size_t) + row->key_len, row->value, row->value_len);
    kept->len += need;
    kept->count++;
    return 0;
}

static void place_all(struct bench *b, uint32_t count)
{
    struct chunk_entry *entries = xcalloc(count, sizeof *entries);
    int64_t start = cpu_ns();
    for (uint32_t first = 0; first < count; first += 10000) {
        uint32_t n = count - first < 10000 ? count - first : 10000;
        for (uint32_t i = 0; i < n; i++)
            entries[i] = (struct chunk_entry){.name = chunk_of(1 + first + i),
                                              .offset = 64 + 1000ull * i,
                                              .stored_len = 1000,
                                              .raw_len = CHUNK_SIZE_MAX};
        must(view_remote_placed(b->view, 1000 + first, 20 * MIB, entries, n));
    }
    printf("  placed %u chunks: %.0f ms\n", count, ms_since(start));
    free(entries);
}

static void make_rows(struct bench *b, struct view_state *state)
{
    struct view_cut *cut;
    uint64_t missing;
    must(view_cut_open(b->view, &cut));
    int64_t start = cpu_ns();
    must(view_cut_rows(cut, 1, keep_row, &b->kept, &missing));
    printf("  whole run: %zu rows, %.0f MiB, %.0f ms\n", b->kept.count, (double)b->kept.len / MIB,
           ms_since(start));
    *state = view_cut_state(cut);
    start = cpu_ns();
    must(view_published(b->view, cut, 1));
    printf("  published: %.0f ms\n", ms_since(start));
    view_cut_close(cut);
}

static void adopt(const struct bench *b, const struct view_state *state)
{
    char path[] = "/tmp/cairn-view-bench-XXXXXX";
    struct view *view;
    struct view_adoption *adoption;
    check(mkdtemp(path) != NULL);
    open_view_at(path, &view);
    int64_t start = cpu_ns();
    must(view_adopt_begin(view, &adoption));
    for (size_t at = 0; at < b->kept.len;) {
        struct run_row row;
        memcpy(&row.key_len, b->kept.at + at, sizeof(size_t));
        memcpy(&row.value_len, b->kept.at + at + sizeof(size_t), sizeof(size_t));
        row.key = b->kept.at + at + 2 * sizeof(size_t);
        row.value = (const uint8_t *)row.key + row.key_len;
        at += 2 * sizeof(size_t) + row.key_len + row.value_len;
        must(view_adopt_row(adoption, &row));
    }
    double given = ms_since(start);
    must(view_adopt_end(adoption, state, 1, UINT64_MAX));
    printf("  adopted: %.0f ms, the end of it %.0f ms\n", ms_since(start), ms_since(start) - given);
    view_adopt_done(adoption);
    view_close(view);
    remove_tree(path);
}

static void bench_run(uint32_t files, bool chunks)
{
    struct bench b;
    struct view_state state;
    char path[64];
    begin(&b, path, true);
    printf("%u files%s\n", files, chunks ? " of a chunk each" : "");
    for (uint32_t i = 0; i < files; i += FILES_A_BATCH) {
        add_files(&b, 1 + i, FILES_A_BATCH, chunks);
        (void)apply_now(&b);
    }
    if (chunks)
        place_all(&b, files);
    make_rows(&b, &state);
    adopt(&b, &state);
    end(&b, path);
}

int main(int argc, char **argv)
{
    setlinebuf(stdout);
    if (argc > 1 && strcmp(argv[1], "--chunks") == 0) {
        bench_run(100000, true);
        return 0;
    }
    bench_apply(false);
    bench_apply(true);
    bench_run(100000, false);
    bench_run(100000, true);
    if (argc > 1 && strcmp(argv[1], "--large") == 0) {
        bench_run(1000000, false);
        bench_run(1000000, true);
    }
    return 0;
}
