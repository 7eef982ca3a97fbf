// SPDX-License-Identifier: Apache-2.0
/* A stage outlives its daemon, and a newer one may find it: its bytes are those of the golden
 * files, and a stage made of those is read. A change of them raises STAGE_VERSION. Numbers here are
 * those of docs/on-disk-format.md, not of the structures. */
#include <stdio.h>
#include <sys/stat.h>

#include "../expect.h"
#include "../base/golden.h"
#include "base/crc.h"
#include "stage_fixture.h"
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
/* Five records, each in front of its bytes. */
#define SHARED_LEN (5u * 64 + 512 + 128 + 64 + 128 + 128)

static void make(void)
{
    fixture_create(&fixture, 20 * MIB);
    /* Tags of records must not differ from run to run. */
    memset(fixture.stage->header->secret, 0x5a, SECRET_LEN);
}

static void done(void)
{
    fixture_remove(&fixture);
}

TestSuite(stage_golden, .init = make, .fini = done, .timeout = 600);

static void open_handles(void)
{
    uint64_t handles[3];
    for (uint32_t i = 0; i < ARRAY_LEN(handles); i++)
        assert_i64(stage_handle_open(fixture.stage, i + 1, i, &handles[i]), 0);
    uint32_t flags;
    assert_u64(stage_handle_close(fixture.stage, handles[1], &flags), 2);
}

/* Something of each kind: before a compaction, whose dump is in the log's second half, and after
 * it. */
static void work(void)
{
    fixture_fill(&fixture, 2, 0, '-', STAGE_STEAL_MIN);
    fixture_fill(&fixture, 2, 0, 'c', STAGE_STEAL_MIN);
    fixture_fill(&fixture, 1, 0, 'a', 500); /* in the slab that came free: its generation is 2 */
    fixture_fill(&fixture, 1, 300, 'b', 100);
    open_handles();
    assert_i64(fixture_compact(&fixture), 0);
    fixture_fill(&fixture, 1, 10, 'd', 20);
    fixture_cut(&fixture, 1, 100, 50, 500);
    cr_assert(fixture_seal(&fixture, 1));
    fixture_fill(&fixture, 3, 0, 'e', 70);
    assert_u64(fixture_piece(&fixture, 3, MIB), 70);
    fixture_fill(&fixture, 3, 35, 'f', 70);
}

static void expect_content(void)
{
    struct stage_file_state state;
    fixture_expect(&fixture, 1, 5, "aaaaadddddddddddddddddddda");
    fixture_expect(&fixture, 1, 98, "aa..................................................a");
    fixture_expect(&fixture, 1, 298, "aab");
    fixture_expect(&fixture, 1, 398, "bba");
    fixture_expect(&fixture, 2, 0, "c");
    fixture_expect(&fixture, 2, STAGE_STEAL_MIN - 1, "c");
    fixture_expect(&fixture, 3, 33, "eeff"); /* of a chunk, then of a slab */
    fixture_expect(&fixture, 3, 103, "ff");
    cr_assert(stage_file_state(fixture.stage, 1, &state));
    cr_expect(state.has_sealed && !state.has_draft && state.sealed_version == 1 &&
              state.sealed_size == 500);
    expect_i64(state.sealed_mtime, 77);
    cr_assert(stage_file_state(fixture.stage, 3, &state));
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
    fixture_die(&fixture);
    read_at(fixture.ctl, 0, header, sizeof header);
    memset(header + BOOT_ID_AT, '0', BOOT_ID_LEN);
    set_crc(header, 2);
    golden_compare("header", header, sizeof header);
    memcpy(&tail, header + TAIL_AT, sizeof tail);
    compare_part("slab-table", fixture.ctl, TABLE_AT, TABLE_LEN);
    compare_part("handle-table", fixture.ctl, HANDLES_AT, HANDLES_LEN);
    compare_part("log", fixture.ctl, SECOND_LOG_AT, tail);
    compare_part("slab-shared", fixture.slabs, 0, SHARED_LEN);
    compare_part("slab-received", fixture.slabs, SLAB, 64);
    expect_u64(size_of(fixture.ctl), CTL_LEN);
    expect_u64(size_of(fixture.slabs), SLABS_LEN);
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
    write_at(fixture.ctl, 0, data, len);
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
    empty(fixture.ctl, CTL_LEN);
    empty(fixture.slabs, SLABS_LEN);
    put_golden_header(version, version);
    put_golden(keyed ? "slab-table" : "unkeyed-slab-table", fixture.ctl, TABLE_AT);
    put_golden("handle-table", fixture.ctl, HANDLES_AT);
    put_golden("log", fixture.ctl, SECOND_LOG_AT);
    put_golden(keyed ? "slab-shared" : "unkeyed-slab-shared", fixture.slabs, 0);
    put_golden(keyed ? "slab-received" : "unkeyed-slab-received", fixture.slabs, SLAB);
    write_at(fixture.slabs, SLAB + 4096, payload, sizeof payload);
}

static void expect_read(uint32_t version)
{
    work();
    fixture_die(&fixture);
    assemble(version);
    assert_i64(fixture_reopen(&fixture), 0);
    expect_content();
    expect_u64(stage_usage(fixture.stage).handles, 0, "they died with their daemon");
    fixture_adopt(&fixture);
    expect_content();
}

Test(stage_golden, is_read)
{
    expect_read(2);
    fixture_expect_drains(&fixture);
}

/* A daemon without tags was killed, and the next one has them: nothing is lost, and what is written
 * from then on has them, too. */
Test(stage_golden, version_1_is_read_and_becomes_2)
{
    uint32_t version;
    expect_read(1);
    fixture_fill(&fixture, 1, 20, 'x', 3);
    fixture_fill(&fixture, 2, 0, 'y', STAGE_STEAL_MIN);
    fixture_die(&fixture);
    read_at(fixture.ctl, VERSION_AT, &version, sizeof version);
    expect_u64(version, 2);
    fixture_recover(&fixture);
    fixture_expect(&fixture, 1, 18, "ddxxxd");
    fixture_expect(&fixture, 2, 0, "y");
    fixture_expect(&fixture, 3, 33, "eeff");
    fixture_expect_drains(&fixture);
}

/* Killed after the log was written anew, and before the stage became one of today. */
Test(stage_golden, version_1_is_read_twice)
{
    work();
    fixture_die(&fixture);
    assemble(1);
    assert_i64(fixture_reopen(&fixture), 0);
    assert_i64(stage_adopt(fixture.stage, fixture.epoch, false), 0);
    assert_i64(fixture_compact(&fixture), 0);
    fixture_crash(&fixture);
    expect_content();
    fixture_expect_drains(&fixture);
}

Test(stage_golden, another_version_is_refused)
{
    struct stage *stage;
    fixture_die(&fixture);
    assemble(2);
    put_golden_header(2, 3);
    expect_i64(stage_open(&fixture.config, &stage), -EPROTONOSUPPORT);
    put_golden_header(2, 1);
    expect_i64(stage_open(&fixture.config, &stage), -EBADMSG, "a changed version is damage");
    put_golden_header(2, 2);
    assert_i64(stage_open(&fixture.config, &fixture.stage), 0);
}
