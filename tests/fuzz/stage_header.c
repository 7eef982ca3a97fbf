// SPDX-License-Identifier: Apache-2.0
/* The header of a changed stage, and files of a wrong length. The first byte says
 * whether the header stays this store's (with a right checksum) and whether a file is cut; the rest
 * takes the header's place. What is opened is recovered. */
#include <fcntl.h>
#include <sys/stat.h>

#include "stage_dir.h"

static char ctl_path[256], slabs_path[256];
static struct stage_header sound;
static off_t ctl_len, slabs_len;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct stage *stage = make_stage();
    struct stat st;
    memcpy((void *)&sound, (const void *)stage->header, sizeof sound);
    (void)snprintf(ctl_path, sizeof ctl_path, "%s", stage->ctl_path);
    (void)snprintf(slabs_path, sizeof slabs_path, "%s", stage->slabs_path);
    stage_close(stage, false);
    check(stat(ctl_path, &st) == 0);
    ctl_len = st.st_size;
    check(stat(slabs_path, &st) == 0);
    slabs_len = st.st_size;
    return 0;
}

static uint64_t durable(uint64_t ino, uint64_t *ret_size, void *arg)
{
    (void)arg;
    *ret_size = 0;
    return ino ? 1 : UINT64_MAX;
}

static void put_header(struct input *in, bool mended)
{
    struct stage_header header;
    size_t len = in->left < sizeof header ? in->left : sizeof header;
    memcpy((void *)&header, (const void *)&sound, sizeof header);
    if (len)
        memcpy((void *)&header, input_bytes(in, len), len);
    if (mended) {
        header.magic = sound.magic;
        header.version = sound.version;
        memcpy(header.store, sound.store, sizeof header.store);
        memcpy(header.name, sound.name, sizeof header.name);
        memcpy(header.boot_id, sound.boot_id, sizeof header.boot_id);
        header.crc = header_crc(&header);
    }
    int fd = open(ctl_path, O_RDWR | O_CLOEXEC);
    check(fd >= 0 && pwrite(fd, &header, sizeof header, 0) == (ssize_t)sizeof header &&
          close(fd) == 0);
}

static void look_at(struct stage *stage)
{
    struct stage_rebuild how = {.durable = durable, .pack_of = pack_of};
    uint64_t epoch, next;
    check((size_t)ctl_len == stage->ctl_len && (off_t)stage->slabs_len == slabs_len);
    check(stage->log[1] + stage->header->log_half_len <= (uint8_t *)stage->header + stage->ctl_len);
    stage_epochs(stage, &epoch, &next);
    uint64_t tail = atomic_load(&stage->header->log_tail[atomic_load(&stage->header->log_active)]);
    stage_begin_recovery(stage, 2);
    if (stage_rebuild_layers(stage, &how) == 0)
        check(tail <= stage->header->log_half_len && stage_usage(stage).dirty_bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint8_t what = input_u8(&in);
    off_t cut = what >> 3;
    struct stage *stage;
    if (what & 2)
        check(truncate(ctl_path, ctl_len - cut * 4096) == 0);
    if (what & 4)
        check(truncate(slabs_path, slabs_len - cut * 4096) == 0);
    put_header(&in, what & 1);
    if (stage_open(&config, &stage) == 0) {
        look_at(stage);
        stage_close(stage, false);
    }
    check(truncate(ctl_path, ctl_len) == 0 && truncate(slabs_path, slabs_len) == 0);
    return 0;
}
