/* Shared memory that somebody or something changed: an error, or less than there was; never a crash. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../base/seeded.h"
#include "base/io.h"
#include "base/log.h"
#include "box.h"

#define CTL_FIXED (4096u + 4096u)             /* header, slab table */
#define HANDLES_LEN (131072u * 16u)

static struct box box;
static struct seeded seed;
static char *ctl, *slabs;

static uint64_t rnd(uint64_t below)
{
    return seeded_below(&seed, below);
}

static void work(void)
{
    box_create(&box, 20 * MIB);
    ctl = xasprintf("%s/cairn-abababababababababababababababab.ctl", box.dir);
    slabs = xasprintf("%s/cairn-abababababababababababababababab.slabs", box.dir);
    for (uint64_t ino = 1; ino < 4; ino++) {
        for (uint64_t i = 0; i < 10; i++)
            box_fill(&box, ino, i * 300, 'a', 500);
        box_fill(&box, ino, 5000, 'b', 300000);
        box_cut(&box, ino, 100, 50, box_size(&box, ino));
        cr_assert_gt(box_piece(&box, ino, 2000), 0);
        if (ino == 2)
            cr_assert_eq(box_compact(&box), 0);
        cr_assert(box_seal(&box, ino));
        box_fill(&box, ino, 10, 'c', 20);
    }
}

static void flip(const char *path, uint64_t offset)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;
    cr_assert_geq(fd, 0);
    cr_assert_eq(io_pread_full(fd, &byte, 1, offset), 0);
    byte ^= (uint8_t)(1u << rnd(8));
    cr_assert_eq(io_pwrite_full(fd, &byte, 1, offset), 0);
    close(fd);
}

static void read_all(void)
{
    struct stage_part parts[16];
    for (uint64_t ino = 1; ino < 4; ino++) {
        for (uint64_t at = 0; at < 400000;) {
            size_t count = stage_read(box.stage, ino, at, 400000 - at, parts, ARRAY_LEN(parts));
            volatile uint8_t sum = 0;
            for (size_t i = 0; i < count; i++)
                for (uint64_t b = 0; parts[i].kind == PART_MEMORY && b < parts[i].length; b += 64)
                    sum = (uint8_t)(sum + ((const uint8_t *)parts[i].memory)[b]);
            at = parts[count - 1].offset + parts[count - 1].length;
            stage_unpin_parts(box.stage, parts, count);
        }
    }
}

/* Whatever comes of it: the next daemon must not be harmed. */
static bool recover_and_use(void)
{
    if (box_reopen(&box) < 0)
        return false;
    read_all();
    if (stage_adopt(box.stage, box.epoch) == 0 && box_compact(&box) == 0)
        read_all();
    return true;
}

static void end(void)
{
    if (box.stage)
        box_die(&box);
    stage_remove_files(box.dir, box.config.store);
    cr_assert_eq(rmdir(box.dir), 0);
    box.stage = NULL;
    for (unsigned i = 0; i < box.chunk_count; i++)
        free(box.chunks[i].bytes);
    free(box.pending);
    free(ctl);
    free(slabs);
}

static unsigned damage(const char *which, unsigned times, uint64_t from, uint64_t length)
{
    unsigned usable = 0;
    for (unsigned i = 0; i < times; i++) {
        seed.state = i;
        work();
        box_die(&box);
        for (uint64_t flips = 1 + rnd(3); flips > 0; flips--)
            flip(which[0] == 'c' ? ctl : slabs, from + rnd(length));
        usable += recover_and_use();
        end();
    }
    return usable;
}

static void quiet(void)
{
    log_set_level(LOG_LEVEL_ERROR);
}

TestSuite(stage_hostile, .init = quiet, .timeout = 600);

Test(stage_hostile, header)
{
    unsigned usable = damage("ctl", 40, 0, 160);
    cr_expect_lt(usable, 40);
}

Test(stage_hostile, slab_table)
{
    (void)damage("ctl", 20, 4096, 19 * 8);
}

Test(stage_hostile, handles)
{
    cr_expect_eq(damage("ctl", 5, CTL_FIXED, HANDLES_LEN), 5);
}

Test(stage_hostile, log)
{
    /* The compaction made the second half the active one. */
    struct stat st;
    work();
    cr_assert_eq(stat(ctl, &st), 0);
    uint64_t half = ((uint64_t)st.st_size - CTL_FIXED - HANDLES_LEN) / 2;
    end();
    unsigned usable = damage("ctl", 40, CTL_FIXED + HANDLES_LEN + half, 1000);
    cr_expect_eq(usable, 0, "a damaged record is an error");
}

Test(stage_hostile, slabs)
{
    cr_expect_eq(damage("slabs", 40, 0, 3000), 40, "what is behind a damaged record does not count");
    cr_expect_eq(damage("slabs", 20, 0, 20 * MIB), 20);
}

Test(stage_hostile, files_of_another_length)
{
    work();
    box_die(&box);
    struct stage *stage;
    cr_assert_eq(truncate(slabs, 5 * MIB), 0);
    cr_expect_eq(stage_open(&box.config, &stage), -EUCLEAN);
    cr_assert_eq(truncate(ctl, 4096), 0);
    cr_expect_eq(stage_open(&box.config, &stage), -EUCLEAN);
    cr_assert_eq(truncate(ctl, 100), 0);
    cr_expect_eq(stage_open(&box.config, &stage), -EUCLEAN);
    end();
}

/* Records with good checksums and fields that make no sense. */
static struct record nonsense(void)
{
    static const uint16_t types[] = {REC_CUT, REC_LAYER, REC_RANGE, REC_PIECE, REC_SEAL};
    static const uint64_t numbers[] = {0, 1, 2, 3, 700, 100000, SLAB_STRIDE, INT64_MAX, UINT64_MAX - 1, UINT64_MAX};
    static struct extent extent;
    struct record rec = {.type = types[rnd(ARRAY_LEN(types))], .seq = 1 + rnd(1ull << 41), .ino = 1 + rnd(4)};
    rec.version = rnd(5);
    rec.offset = numbers[rnd(ARRAY_LEN(numbers))];
    rec.length = numbers[rnd(ARRAY_LEN(numbers))];
    rec.keep = numbers[rnd(ARRAY_LEN(numbers))];
    rec.attrs.size = numbers[rnd(ARRAY_LEN(numbers))];
    rec.slab = (uint32_t)(rnd(3) ? rnd(25) : UINT32_MAX - rnd(2));
    rec.slab_offset = (uint32_t)(rnd(3) ? rnd(SLAB_STRIDE) : UINT32_MAX - rnd(2));
    if (rec.type == REC_PIECE) {
        extent = (struct extent){.offset = rnd(10000), .length = 1 + rnd(3000), .kind = EXTENT_CHUNK};
        rec.extents = &extent;
        rec.extent_count = 1;
    }
    return rec;
}

Test(stage_hostile, records_that_make_no_sense)
{
    for (unsigned i = 0; i < 150; i++) {
        seed.state = 1000 + i;
        work();
        for (uint64_t count = 1 + rnd(6); count > 0; count--) {
            struct record rec = nonsense();
            cr_assert_eq(stage_log_append(box.stage, &rec), 0);
        }
        box_die(&box);
        (void)recover_and_use();
        end();
    }
}
