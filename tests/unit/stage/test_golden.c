// SPDX-License-Identifier: Apache-2.0
/* A stage outlives its daemon, and a newer one may find it: its bytes are those of the golden
 * files, and a stage made of those is read. Who changes them raises STAGE_VERSION. Numbers here are
 * those of docs/on-disk-format.md, not of the structures. */
#include <stdio.h>
#include <sys/stat.h>

#include "../expect.h"
#include "../base/golden.h"
#include "base/crc.h"
#include "box.h"
#include "stage/internal.h"

#define HEADER_LEN 208u         /* then the process, and whose it is */
#define UNKEYED_HEADER_LEN 144u /* of version 1 */
#define VERSION_AT 8u
#define BOOT_ID_AT 32u
#define BOOT_ID_LEN 36u
#define UNKEYED_CRC_AT 88u
#define SECRET_AT 144u
#define SECRET_LEN 32u
#define KEYED_LEN (SECRET_LEN + 16u) /* with the name */
#define CRC_AT 192u
#define TAIL_AT 136u /* of the second half */
#define TABLE_AT 4096u
#define TABLE_LEN (3u * 8)
#define HANDLES_AT 8192u
#define HANDLES_LEN (4u * 16)
#define LOG_AT (HANDLES_AT + 131072u * 16)
#define LOG_HALF (8u * MIB + 131072u)
#define SECOND_LOG_AT (LOG_AT + LOG_HALF)
#define CTL_LEN (LOG_AT + 2u * LOG_HALF)
#define SLAB (1u * MIB + 4096u)
#define SLABS_LEN (19u * SLAB)
#define SHARED_LEN                                                                                 \
    (5u * 64 + 512 + 128 + 64 + 128 + 128) /* five records, each in front of its bytes */

static struct box box;
static char *ctl, *slabs;

static void make(void)
{
    box_create(&box, 20 * MIB);
    ctl = xasprintf("%s/cairn-abababababababababababababababab.ctl", box.dir);
    slabs = xasprintf("%s/cairn-abababababababababababababababab.slabs", box.dir);
    /* Tags of records must not differ from run to run. */
    memset(box.stage->header->secret, 0x5a, SECRET_LEN);
}

static void done(void)
{
    box_remove(&box);
    free(ctl);
    free(slabs);
}

TestSuite(stage_golden, .init = make, .fini = done, .timeout = 600);

static void open_handles(void)
{
    uint64_t handles[3];
    for (uint32_t i = 0; i < ARRAY_LEN(handles); i++)
        assert_i64(stage_handle_open(box.stage, i + 1, i, &handles[i]), 0);
    uint32_t flags;
    assert_u64(stage_handle_close(box.stage, handles[1], &flags), 2);
}

/* Something of each kind: before a compaction, whose dump is in the log's second half, and after
 * it. */
static void work(void)
{
    box_fill(&box, 2, 0, '-', STAGE_STEAL_MIN);
    box_fill(&box, 2, 0, 'c', STAGE_STEAL_MIN);
    box_fill(&box, 1, 0, 'a', 500); /* in the slab that came free: its generation is 2 */
    box_fill(&box, 1, 300, 'b', 100);
    open_handles();
    assert_i64(box_compact(&box), 0);
    box_fill(&box, 1, 10, 'd', 20);
    box_cut(&box, 1, 100, 50, 500);
    cr_assert(box_seal(&box, 1));
    box_fill(&box, 3, 0, 'e', 70);
    assert_u64(box_piece(&box, 3, MIB), 70);
    box_fill(&box, 3, 35, 'f', 70);
}

static void expect_content(void)
{
    struct stage_file_state state;
    box_expect(&box, 1, 5, "aaaaadddddddddddddddddddda");
    box_expect(&box, 1, 98, "aa..................................................a");
    box_expect(&box, 1, 298, "aab");
    box_expect(&box, 1, 398, "bba");
    box_expect(&box, 2, 0, "c");
    box_expect(&box, 2, STAGE_STEAL_MIN - 1, "c");
    box_expect(&box, 3, 33, "eeff"); /* of a chunk, then of a slab */
    box_expect(&box, 3, 103, "ff");
    cr_assert(stage_file_state(box.stage, 1, &state));
    cr_expect(state.has_sealed && !state.has_draft && state.sealed_version == 1 &&
              state.sealed_size == 500);
    expect_i64(state.sealed_mtime, 77);
    cr_assert(stage_file_state(box.stage, 3, &state));
    cr_expect(state.has_draft && !state.has_sealed && state.draft_size == 105 &&
              state.draft_mtime == 1035);
}

static void set_crc(uint8_t *header, uint32_t version)
{
    uint32_t crc = crc32_of(0, header, UNKEYED_CRC_AT);
    if (version > 1)
        crc = crc32_of(crc, header + SECRET_AT, KEYED_LEN);
    memcpy(header + (version > 1 ? CRC_AT : UNKEYED_CRC_AT), &crc, sizeof crc);
}

static void read_at(const char *path, uint64_t at, void *buf, size_t len)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    assert_i64(io_pread_full(fd, buf, len, at), 0);
}

static void write_at(const char *path, uint64_t at, const void *buf, size_t len)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    assert_i64(io_pwrite_full(fd, buf, len, at), 0);
}

static void compare_part(const char *name, const char *path, uint64_t at, size_t len)
{
    _cleanup_free_ uint8_t *buf = xmalloc(len);
    read_at(path, at, buf, len);
    golden_compare(name, buf, len);
}

static uint64_t size_of(const char *path)
{
    struct stat st;
    assert_i64(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

Test(stage_golden, is_written)
{
    uint8_t header[HEADER_LEN];
    uint64_t tail;
    work();
    expect_content();
    box_die(&box);
    read_at(ctl, 0, header, sizeof header);
    memset(header + BOOT_ID_AT, '0', BOOT_ID_LEN);
    set_crc(header, 2);
    golden_compare("header", header, sizeof header);
    memcpy(&tail, header + TAIL_AT, sizeof tail);
    compare_part("slab-table", ctl, TABLE_AT, TABLE_LEN);
    compare_part("handle-table", ctl, HANDLES_AT, HANDLES_LEN);
    compare_part("log", ctl, SECOND_LOG_AT, tail);
    compare_part("slab-shared", slabs, 0, SHARED_LEN);
    compare_part("slab-received", slabs, SLAB, 64);
    expect_u64(size_of(ctl), CTL_LEN);
    expect_u64(size_of(slabs), SLABS_LEN);
}

static void put_golden(const char *name, const char *path, uint64_t at)
{
    size_t len;
    _cleanup_free_ char *data = golden_read(name, &len);
    write_at(path, at, data, len);
}

/* Of the version `of`, and saying that it is of `version`. */
static void put_golden_header(uint32_t of, uint32_t version)
{
    size_t len;
    _cleanup_free_ char *data = golden_read(of == 1 ? "unkeyed-header" : "header", &len);
    assert_u64(len, of == 1 ? UNKEYED_HEADER_LEN : HEADER_LEN);
    read_at("/proc/sys/kernel/random/boot_id", 0, data + BOOT_ID_AT, BOOT_ID_LEN);
    memcpy(data + VERSION_AT, &version, sizeof version);
    set_crc((uint8_t *)data, of);
    write_at(ctl, 0, data, len);
}

static void empty(const char *path, uint64_t len)
{
    assert_i64(truncate(path, 0), 0);
    assert_i64(truncate(path, (off_t)len), 0);
}

/* Of what this code wrote nothing is left but the names of the files. */
static void assemble(uint32_t version)
{
    bool keyed = version > 1;
    uint8_t payload[STAGE_STEAL_MIN];
    memset(payload, 'c', sizeof payload);
    empty(ctl, CTL_LEN);
    empty(slabs, SLABS_LEN);
    put_golden_header(version, version);
    put_golden(keyed ? "slab-table" : "unkeyed-slab-table", ctl, TABLE_AT);
    put_golden("handle-table", ctl, HANDLES_AT);
    put_golden("log", ctl, SECOND_LOG_AT);
    put_golden(keyed ? "slab-shared" : "unkeyed-slab-shared", slabs, 0);
    put_golden(keyed ? "slab-received" : "unkeyed-slab-received", slabs, SLAB);
    write_at(slabs, SLAB + 4096, payload, sizeof payload);
}

static void expect_read(uint32_t version)
{
    work();
    box_die(&box);
    assemble(version);
    assert_i64(box_reopen(&box), 0);
    expect_content();
    expect_u64(stage_usage(box.stage).handles, 0, "they died with their daemon");
    box_adopt(&box);
    expect_content();
}

Test(stage_golden, is_read)
{
    expect_read(2);
    box_expect_drains(&box);
}

/* A daemon without tags was killed, and the next one has them: nothing is lost, and what is written
 * from then on has them, too. */
Test(stage_golden, version_1_is_read_and_becomes_2)
{
    uint32_t version;
    expect_read(1);
    box_fill(&box, 1, 20, 'x', 3);
    box_fill(&box, 2, 0, 'y', STAGE_STEAL_MIN);
    box_die(&box);
    read_at(ctl, VERSION_AT, &version, sizeof version);
    expect_u64(version, 2);
    box_recover(&box);
    box_expect(&box, 1, 18, "ddxxxd");
    box_expect(&box, 2, 0, "y");
    box_expect(&box, 3, 33, "eeff");
    box_expect_drains(&box);
}

/* Killed after the log was written anew, and before the stage became one of today. */
Test(stage_golden, version_1_is_read_twice)
{
    work();
    box_die(&box);
    assemble(1);
    assert_i64(box_reopen(&box), 0);
    assert_i64(stage_adopt(box.stage, box.epoch, false), 0);
    assert_i64(box_compact(&box), 0);
    box_die(&box);
    box_recover(&box);
    expect_content();
    box_expect_drains(&box);
}

Test(stage_golden, another_version_is_refused)
{
    struct stage *stage;
    box_die(&box);
    assemble(2);
    put_golden_header(2, 3);
    expect_i64(stage_open(&box.config, &stage), -EPROTONOSUPPORT);
    put_golden_header(2, 1);
    expect_i64(stage_open(&box.config, &stage), -EBADMSG, "a changed version is damage");
    put_golden_header(2, 2);
    assert_i64(stage_open(&box.config, &box.stage), 0);
}
