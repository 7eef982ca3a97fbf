// SPDX-License-Identifier: Apache-2.0
/* What rows take in the database, by type, and what look-ups of chunks cost: of checkpoints whose
 * chunks all lie on NVMe and in the remote, one after the other without a chunk twice.
 *
 *     view_rows [GIGABYTES [differences]]    of made rows; two thirds are differences
 *     view_rows DIRECTORY                    of the view of a store that is not mounted */
#include <stdio.h>
#include <time.h>

#include "../tests/remove_tree.h"
#include "view/db.h"
#include "view/remote.h"

#define GB 1000000000ull
#define TENSORS 30u       /* of a file of 32 MiB each, with a short chunk between two */
#define TENSOR_CHUNKS 33u /* the short one is the last */
#define CHUNKS (TENSORS * TENSOR_CHUNKS)
#define FILE_BYTES (TENSORS * 32 * MIB + TENSORS * SHORT)
#define SHORT 4000u
#define PACK_CHUNKS 33u
#define LOOKUPS 200000u

static void must(int r)
{
    if (r < 0) {
        fprintf(stderr, "%s\n", strerror(-r));
        exit(1);
    }
}

static int64_t cpu_ns(void)
{
    struct timespec t;
    check(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* --- made rows -------------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* All of it looks random, as a hash does. */
static struct chunk_name name_of(uint64_t id)
{
    struct chunk_name name;
    for (uint64_t i = 0; i < sizeof name.bytes / 8; i++) {
        uint64_t word = mixed(mixed(id * 3 + i + 1) + i);
        memcpy(name.bytes + 8 * i, &word, sizeof word);
    }
    return name;
}

static uint32_t raw_len_of(uint64_t id)
{
    return id % TENSOR_CHUNKS == TENSOR_CHUNKS - 1 ? SHORT : CHUNK_SIZE_MAX;
}

/* Of three chunks the second rests on the first, and the third on the second. */
static struct chunk_entry entry_of(uint64_t id, uint64_t pack, uint64_t offset, bool is_difference)
{
    struct chunk_entry e = {
        .name = name_of(id), .pack = pack, .offset = offset, .raw_len = raw_len_of(id)};
    uint64_t spread = mixed(id + pack) % (e.raw_len / 10);
    e.stored_len = (uint32_t)(e.raw_len * (is_difference ? 3ull : 7ull) / 10 + spread);
    e.encoding = 2;
    if (!is_difference)
        return e;
    e.encoding = 4;
    e.depth = (uint8_t)(id % TENSOR_CHUNKS % 3);
    e.ref_count = 1;
    e.refs[0] = (struct chunk_ref){.name = name_of(id - 1), .length = e.raw_len};
    return e;
}

static bool is_difference(uint64_t id, bool differences)
{
    return differences && id % TENSOR_CHUNKS % 3 > 0 && id % TENSOR_CHUNKS < TENSOR_CHUNKS - 1;
}

struct making {
    struct view *view;
    uint64_t seq;
    bool differences;
};

static uint32_t pack_entries(uint64_t first, uint64_t pack, bool differences,
                             struct chunk_entry *entries)
{
    uint64_t offset = 4096;
    for (uint32_t i = 0; i < PACK_CHUNKS; i++) {
        entries[i] = entry_of(first + i, pack, offset, is_difference(first + i, differences));
        offset += ((uint64_t)entries[i].stored_len + 127) / 64 * 64;
    }
    return PACK_CHUNKS;
}

static int pack_index(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                      void *fn_arg, bool *ret_was_made, void *arg)
{
    struct chunk_entry entries[PACK_CHUNKS];
    int r = 0;
    (void)arg;
    *ret_was_made = false;
    uint64_t number = (pack & 0xffffff) - 1;
    uint32_t count = pack_entries(number * PACK_CHUNKS, pack, false, entries);
    for (uint32_t i = 0; i < count && r == 0; i++)
        r = fn(&entries[i], fn_arg);
    return r;
}

#define PACK_ID(number) ((1ull << 48) | (3ull << 24) | ((number) + 1))
#define REMOTE_PACK_ID(number) ((1ull << 48) | (3ull << 24) | 0x800000 | ((number) + 1))

static void apply_record(struct making *m, struct record rec)
{
    static uint8_t buf[4 * MIB];
    rec.seq = ++m->seq;
    rec.time = (int64_t)rec.seq;
    record_encode(&rec, buf);
    struct view_batch batch = {.records = buf,
                               .records_len = record_encoded_len(&rec),
                               .cut_seq = m->seq,
                               .pack_index = pack_index,
                               .arg = m};
    must(view_apply(m->view, &batch));
}

static void make_file(struct making *m, uint64_t number)
{
    static struct extent extents[CHUNKS];
    uint64_t offset = 0;
    char name[32];
    for (uint32_t i = 0; i < CHUNKS; i++) {
        uint64_t id = number * CHUNKS + i;
        extents[i] = (struct extent){
            .offset = offset, .length = raw_len_of(id), .kind = EXTENT_CHUNK, .chunk = name_of(id)};
        offset += extents[i].length;
    }
    for (uint64_t i = number * TENSORS; i < (number + 1) * TENSORS; i++)
        apply_record(
            m, (struct record){
                   .type = REC_PACK, .pack = PACK_ID(i), .length = 64 * MIB, .count = PACK_CHUNKS});
    int len = sprintf(name, "step%llu.pt", (unsigned long long)number);
    apply_record(m, (struct record){.type = REC_SEAL,
                                    .flags = RECORD_BIRTH,
                                    .ino = 100 + number,
                                    .version = 1,
                                    .parent = ROOT_INO,
                                    .cookie = 100 + number,
                                    .name = name,
                                    .name_len = (uint16_t)len,
                                    .attrs = {.mode = S_IFREG | 0644, .size = offset},
                                    .extents = extents,
                                    .extent_count = CHUNKS});
}

static int ignore_row(const struct run_row *row, void *arg)
{
    (void)row;
    (void)arg;
    return 0;
}

static void upload_file(struct making *m, uint64_t number)
{
    struct chunk_entry entries[PACK_CHUNKS];
    struct view_cut *cut;
    uint64_t missing;
    for (uint64_t i = number * TENSORS; i < (number + 1) * TENSORS; i++) {
        uint32_t count = pack_entries(i * PACK_CHUNKS, REMOTE_PACK_ID(i), m->differences, entries);
        must(view_remote_placed(m->view, REMOTE_PACK_ID(i), 64 * MIB, entries, count));
    }
    must(view_cut_open(m->view, &cut));
    must(view_cut_rows(cut, 1, ignore_row, NULL, &missing));
    must(view_published(m->view, cut, number + 1));
    view_cut_close(cut);
}

/* --- what rows take --------------------------------------------------------------------------- */

/* The rows of one type as one table, as they are after the last compaction. */
static uint64_t table_bytes(struct view *view, const struct snap *snap, char type,
                            uint64_t *ret_rows)
{
    rocksdb_envoptions_t *env = rocksdb_envoptions_create();
    rocksdb_sstfilewriter_t *writer = rocksdb_sstfilewriter_create(env, view->options);
    char path[] = "/tmp/cairn-view-rows-XXXXXX", *message = NULL;
    struct key prefix;
    struct scan scan;
    uint64_t bytes = 0;
    int fd = mkstemp(path);
    check(fd >= 0 && close(fd) == 0);
    rocksdb_sstfilewriter_open(writer, path, &message);
    key_type(&prefix, (enum key_type)type);
    scan_open(&scan, snap, &prefix);
    for (*ret_rows = 0; scan_valid(&scan) && !message; scan_next(&scan), ++*ret_rows)
        rocksdb_sstfilewriter_put(writer, (const char *)scan.key, scan.key_len,
                                  (const char *)scan.value, scan.value_len, &message);
    must(scan_error(&scan));
    if (*ret_rows && !message)
        rocksdb_sstfilewriter_finish(writer, &message);
    if (message)
        must(db_error("cannot write", message));
    if (*ret_rows)
        rocksdb_sstfilewriter_file_size(writer, &bytes);
    scan_close(&scan);
    rocksdb_sstfilewriter_destroy(writer);
    rocksdb_envoptions_destroy(env);
    (void)unlink(path);
    return bytes;
}

static void print_rows(struct view *view)
{
    double gb = (double)view_state(view).logical_bytes / GB;
    uint64_t all = 0;
    struct snap snap;
    snap_begin(&snap, view);
    printf("%.2f GB, %llu chunks; KB a GB, and rows a GB:\n", gb,
           (unsigned long long)view_state(view).chunks);
    for (char type = 'A'; type <= 'Z'; type++) {
        uint64_t rows, bytes = table_bytes(view, &snap, type, &rows);
        if (rows)
            printf("  %c %7.1f %7.0f\n", type, (double)bytes / 1000 / gb, (double)rows / gb);
        all += bytes;
    }
    printf("  all %5.1f\n", (double)all / 1000 / gb);
    snap_end(&snap);
}

/* --- what look-ups cost ----------------------------------------------------------------------- */

static void time_lookups(struct view *view, const char *what, uint64_t first, uint64_t count,
                         int wanted, bool remote)
{
    struct view_local_chunk chunk;
    struct chunk_entry entry;
    int64_t start = cpu_ns();
    for (uint64_t i = 0; i < LOOKUPS; i++) {
        struct chunk_name name = name_of(first + mixed(i) % count);
        int r =
            remote ? view_remote_place(view, &name, &entry) : view_local_chunk(view, &name, &chunk);
        check(r == wanted);
    }
    printf("  %s: %.2f us\n", what, (double)(cpu_ns() - start) / 1000 / LOOKUPS);
}

static void time_all(struct view *view, uint64_t count)
{
    printf("CPU time of a look-up:\n");
    time_lookups(view, "a chunk on NVMe", 0, count, 0, false);
    time_lookups(view, "a chunk in the remote", 0, count, 0, true);
    time_lookups(view, "a chunk that is new", count, count, -ENOENT, false);
}

/* All packs go, one after the other, as after a compaction that moved half of the chunks. */
static void time_drops(struct making *m, uint64_t files)
{
    int64_t start = cpu_ns();
    uint64_t packs = files * TENSORS;
    for (uint64_t i = 0; i < packs; i++)
        apply_record(
            m, (struct record){.type = REC_DROP, .flags = RECORD_EVICTED, .pack = PACK_ID(i)});
    printf("eviction of a pack of %u chunks: %.0f us\n", PACK_CHUNKS,
           (double)(cpu_ns() - start) / 1000 / (double)packs);
    start = cpu_ns();
    for (uint64_t i = 0; i < packs; i++)
        must(view_remote_pack_suspect(m->view, REMOTE_PACK_ID(i), 1));
    printf("suspicion of a remote pack: %.0f us\n",
           (double)(cpu_ns() - start) / 1000 / (double)packs);
}

static void compact(struct view *view)
{
    must(view_flush(view));
    rocksdb_compact_range(view->db, NULL, 0, NULL, 0);
}

static void bench_made(uint64_t files, bool differences)
{
    struct making m = {.differences = differences};
    struct view_options options = {.cache_bytes = 48 * MIB, .create = true};
    char path[] = "/tmp/cairn-view-bench-XXXXXX";
    check(mkdtemp(path) != NULL);
    must(view_open(path, &options, 0, &m.view));
    must(view_track(m.view));
    int64_t start = cpu_ns();
    for (uint64_t i = 0; i < files; i++)
        make_file(&m, i);
    printf("%s\npacks and a file of a GB: %.1f ms",
           differences ? "two thirds are differences" : "plain",
           (double)(cpu_ns() - start) / 1e6 / (double)files);
    start = cpu_ns();
    for (uint64_t i = 0; i < files; i++)
        upload_file(&m, i);
    printf(", its upload: %.1f ms\n", (double)(cpu_ns() - start) / 1e6 / (double)files);
    compact(m.view);
    print_rows(m.view);
    view_close(m.view);
    options.cache_bytes = 0;
    must(view_open(path, &options, 0, &m.view));
    time_all(m.view, files * CHUNKS);
    time_drops(&m, files);
    view_close(m.view);
    remove_tree(path);
}

int main(int argc, char **argv)
{
    struct view_options options = {0};
    struct view *view;
    setlinebuf(stdout);
    if (argc == 2 && argv[1][0] == '/') {
        must(view_open(argv[1], &options, 0, &view));
        compact(view);
        print_rows(view);
        view_close(view);
        return 0;
    }
    uint64_t files = argc > 1 ? strtoull(argv[1], NULL, 10) : 20;
    if (argc < 3)
        bench_made(files, false);
    bench_made(files, true);
    return 0;
}
