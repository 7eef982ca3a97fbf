// SPDX-License-Identifier: Apache-2.0
/* The two files of a stage: creation, opening, locking, mapping. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/crc.h"
#include "stage/internal.h"

#define LOG_HALF_MIN (8 * MIB)
#define LOG_HALF_SHARE 160u    /* a half of the log is 1/160 of the stage, plus its minimum */
#define RANGE_SHARE (32 * KIB) /* one range for each 32 KiB of the stage, plus RANGES_MIN */
#define RANGES_MIN 16384u
#define SLABS_MIN 16u
#define RESERVE_MIN 8u
#define RESERVE_SHARE 16u
#define LOCK_MS 1000
#define LOCK_STEP_MS 10

int stage_boot_id(char id[40])
{
    memset(id, 0, 40);
    /* a proc file has no size, so it is read without one */
    _cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, id, BOOT_ID_LEN);
    return n == (ssize_t)BOOT_ID_LEN ? 0 : -EIO;
}

static size_t table_len(uint32_t slab_count)
{
    return align_up(slab_count * sizeof(struct slab_entry), 4096);
}

static size_t handles_len(void)
{
    return align_up(HANDLES_MAX * sizeof(struct handle_entry) +
                        REQUESTS_MAX * sizeof(struct request_slot) +
                        STAGE_DUE_MAX * sizeof(uint64_t),
                    4096);
}

static size_t ctl_len_of(uint32_t slab_count, uint64_t half)
{
    return 4096 + table_len(slab_count) + handles_len() + 2 * half;
}

static uint64_t half_len_of(uint64_t size_bytes)
{
    return align_up(LOG_HALF_MIN + size_bytes / LOG_HALF_SHARE, 4096);
}

unsigned stage_format_version(void)
{
    return STAGE_VERSION;
}

uint64_t stage_size_within(uint64_t bytes)
{
    /* slightly more than needed for the rest */
    uint64_t ctl = ctl_len_of((uint32_t)(bytes / SLAB_STRIDE), half_len_of(bytes));
    return bytes >= ctl + STAGE_SIZE_MIN ? bytes - ctl : 0;
}

static uint32_t crc_unkeyed(const struct stage_header *h)
{
    return crc32_of(0, h, offsetof(struct stage_header, crc_unkeyed));
}

/* Does not cover the version, which is set last. */
uint32_t header_crc(const struct stage_header *h)
{
    const uint32_t version = STAGE_VERSION;
    const size_t after = offsetof(struct stage_header, version) + sizeof version;
    uint32_t crc = crc32_of(0, h, offsetof(struct stage_header, version));
    crc = crc32_of(crc, &version, sizeof version);
    crc = crc32_of(crc, (const uint8_t *)h + after,
                   offsetof(struct stage_header, crc_unkeyed) - after);
    crc = crc32_of(crc, h->secret, sizeof h->secret);
    return crc32_of(crc, h->name, sizeof h->name);
}

int header_key(struct stage_header *h, const uint8_t name[16])
{
    memcpy(h->name, name, sizeof h->name);
    if (getrandom(h->secret, sizeof h->secret, 0) != (ssize_t)sizeof h->secret)
        return -EIO;
    h->crc = header_crc(h);
    atomic_thread_fence(memory_order_release);
    return 0;
}

static struct stage *stage_new(const struct stage_config *config)
{
    struct stage *stage = xcalloc(1, sizeof *stage);
    stage->ctl_path = stage_path(config->dir, config->name, "ctl");
    stage->slabs_path = stage_path(config->dir, config->name, "slabs");
    memcpy(stage->name, config->name, sizeof stage->name);
    stage->ctl_fd = stage->slabs_fd = -1;
    stage->read_only = config->read_only;
    mutex_init(&stage->locked.lock, LOCK_STAGE);
    cond_init(&stage->slabs_changed);
    TAILQ_INIT(&stage->locked.drafts);
    TAILQ_INIT(&stage->locked.sealed);
    return stage;
}

/* The lock is held as long as the file description is open: until the daemon ends, for whatever
 * reason. -EBUSY: another process holds it. */
static int lock_ctl(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &whole) == 0)
        return 0;
    return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
}

/* A killed daemon may have released the store already, but not yet its stage. */
static int lock_ctl_patiently(int fd)
{
    int r = lock_ctl(fd);
    for (int waited = 0; r == -EBUSY && waited < LOCK_MS; waited += LOCK_STEP_MS) {
        (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_STEP_MS * 1000000l}, NULL);
        r = lock_ctl(fd);
    }
    return r;
}

static int map_ctl(struct stage *stage, size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, stage->ctl_fd, 0);
    if (p == MAP_FAILED)
        return -errno;
    stage->header = p;
    stage->ctl_len = len;
    return 0;
}

/* Maps the rest of the files, once header->slab_count and log_half_len are known. */
static int map_rest(struct stage *stage)
{
    struct stage_header *h = stage->header;
    stage->slab_count = h->slab_count;
    stage->slab_reserve = (uint32_t)max_u64(stage->slab_count / RESERVE_SHARE, RESERVE_MIN);
    stage->slabs_len = (size_t)stage->slab_count * SLAB_STRIDE;
    stage->ranges_max = (uint32_t)max_u64(stage->slabs_len / RANGE_SHARE, RANGES_MIN);
    uint8_t *at = (uint8_t *)h + 4096;
    stage->slab_table = (struct slab_entry *)(void *)at;
    at += table_len(stage->slab_count);
    stage->handles = (struct handle_entry *)(void *)at;
    stage->requests = (struct request_slot *)(void *)(stage->handles + HANDLES_MAX);
    stage->due = (_Atomic uint64_t *)(void *)(stage->requests + REQUESTS_MAX);
    at += handles_len();
    stage->log[0] = at;
    stage->log[1] = at + h->log_half_len;
    /* Maps one more page, without memory behind it: read(2) into the last slab may be given a
     * larger count than it has. */
    void *p =
        mmap(NULL, stage->slabs_len + 4096, PROT_READ | PROT_WRITE, MAP_SHARED, stage->slabs_fd, 0);
    if (p == MAP_FAILED)
        return -errno;
    stage->slab_memory = p;
    (void)madvise(p, stage->slabs_len, MADV_HUGEPAGE);
    (void)madvise(p, stage->slabs_len, MADV_DONTDUMP);
    slabs_init(stage);
    return 0;
}

void handles_reset(struct stage *stage)
{
    for (uint32_t i = 0; i < HANDLES_MAX; i++)
        stage->handles[i] = (struct handle_entry){.next_free = i + 1};
    stage->locked.handle_free = stage->locked.handle_count = 0;
}

void handles_adopt(struct stage *stage)
{
    uint32_t *next = &stage->locked.handle_free;
    stage->locked.handle_count = 0;
    for (uint32_t i = 0; i < HANDLES_MAX; i++) {
        struct handle_entry *entry = &stage->handles[i];
        if (entry->ino) {
            stage->locked.handle_count++;
            continue;
        }
        *next = i;
        next = &entry->next_free;
    }
    *next = HANDLES_MAX;
}

/* The file must be as long as its mapping: an access behind its end raises SIGBUS. */
static int check_len(int fd, size_t len)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    return (uint64_t)st.st_size < len ? -EIO : 0;
}

static int create_files(struct stage *stage, size_t ctl_len, size_t slabs_len)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    stage->ctl_fd = open(stage->ctl_path, flags, 0600);
    if (stage->ctl_fd < 0)
        return -errno;
    /* first, so that no daemon mistakes this stage for an abandoned one; a daemon that examines it
     * holds the lock for a moment */
    TRY(lock_ctl_patiently(stage->ctl_fd));
    stage->slabs_fd = open(stage->slabs_path, flags, 0600);
    if (stage->slabs_fd < 0)
        return -errno;
    if (fallocate(stage->ctl_fd, 0, 0, (off_t)ctl_len) < 0 ||
        ftruncate(stage->slabs_fd, (off_t)slabs_len) < 0)
        return -errno;
    int r = check_len(stage->ctl_fd, ctl_len);
    return r < 0 ? r : check_len(stage->slabs_fd, slabs_len);
}

static int make_stage(struct stage *stage, const struct stage_config *config)
{
    uint64_t half = half_len_of(config->size_bytes);
    uint32_t slabs = (uint32_t)max_u64(config->size_bytes / SLAB_STRIDE, SLABS_MIN);
    TRY(create_files(stage, ctl_len_of(slabs, half), (size_t)slabs * SLAB_STRIDE));
    TRY(map_ctl(stage, ctl_len_of(slabs, half)));
    struct stage_header *h = stage->header;
    h->magic = STAGE_MAGIC;
    h->slab_count = slabs;
    h->log_half_len = half;
    h->created_epoch = config->epoch;
    h->handle_tag = config->handle_tag;
    memcpy(h->store, config->store, sizeof h->store);
    TRY(stage_boot_id(h->boot_id));
    atomic_store(&h->epoch, config->epoch);
    TRY(header_key(h, config->name));
    atomic_store(&h->version, STAGE_VERSION);
    stage->locked.seq = config->epoch << SEQ_EPOCH_SHIFT;
    TRY(map_rest(stage));
    handles_reset(stage);
    requests_reset(stage);
    return slabs_start(stage);
}

int stage_create(const struct stage_config *config, struct stage **ret_stage)
{
    struct stage *stage = stage_new(config);
    int r = make_stage(stage, config);
    if (r < 0) {
        stage_close(stage, r != -EEXIST);
        return r;
    }
    *ret_stage = stage;
    return 0;
}

void stage_own(struct stage *stage, const char *owner)
{
    struct stage_header *h = stage->header;
    size_t len = strlen(owner);
    memset(h->owner, 0, sizeof h->owner);
    if (len < sizeof h->owner) /* otherwise the path is not recorded */
        memcpy(h->owner, owner, len);
    stage_directory_identity(owner, &h->owner_device, &h->owner_ino);
    h->owner_crc = h->owner_ino ? stage_owner_crc(h) : 0;
    atomic_store(&h->pid, (int32_t)getpid());
}

void stage_note_named(struct stage *stage)
{
    atomic_store(&stage->header->is_named, 1);
}

static int check_header(const struct stage_header *h, uint64_t len,
                        const struct stage_config *config)
{
    char boot_id[40];
    TRY(stage_boot_id(boot_id));
    if (h->magic != STAGE_MAGIC)
        return -EUCLEAN;
    uint32_t version = atomic_load(&h->version);
    if (version != STAGE_VERSION && version != STAGE_VERSION_UNKEYED)
        return -EPROTONOSUPPORT;
    if (version == STAGE_VERSION ? h->crc != header_crc(h) : h->crc_unkeyed != crc_unkeyed(h))
        return -EBADMSG;
    if (version == STAGE_VERSION && memcmp(h->name, config->name, sizeof h->name) != 0)
        return -EUCLEAN;
    if (memcmp(h->boot_id, boot_id, sizeof boot_id) != 0 ||
        memcmp(h->store, config->store, 16) != 0)
        return -ESTALE;
    if (h->slab_count == 0 || h->log_half_len > len ||
        ctl_len_of(h->slab_count, h->log_half_len) != len || atomic_load(&h->log_active) > 1)
        return -EUCLEAN;
    return 0;
}

static int open_files(struct stage *stage, const struct stage_config *config)
{
    stage->ctl_fd = open(stage->ctl_path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (stage->ctl_fd < 0 || fstat(stage->ctl_fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return -EACCES;
    if (st.st_size < 4096)
        return -EUCLEAN;
    TRY(lock_ctl_patiently(stage->ctl_fd));
    TRY(map_ctl(stage, (size_t)st.st_size));
    TRY(check_header(stage->header, (uint64_t)st.st_size, config));
    stage->slabs_fd = open(stage->slabs_path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (stage->slabs_fd < 0 || fstat(stage->slabs_fd, &st) < 0)
        return -errno;
    return (uint64_t)st.st_size == (uint64_t)stage->header->slab_count * SLAB_STRIDE ? 0 : -EUCLEAN;
}

int stage_open(const struct stage_config *config, struct stage **ret_stage)
{
    struct stage *stage = stage_new(config);
    int r = open_files(stage, config);
    if (r == 0)
        r = map_rest(stage);
    if (r < 0) {
        stage_close(stage, false);
        return r;
    }
    *ret_stage = stage;
    return 0;
}

void stage_epochs(struct stage *stage, uint64_t *ret_epoch, uint64_t *ret_next_epoch)
{
    *ret_epoch = atomic_load(&stage->header->epoch);
    *ret_next_epoch = atomic_load(&stage->header->next_epoch);
}

uint64_t stage_durable_seq(struct stage *stage)
{
    return atomic_load(&stage->header->version) == STAGE_VERSION
               ? atomic_load(&stage->header->durable_seq)
               : 0;
}

void stage_note_durable(struct stage *stage, uint64_t seq)
{
    atomic_store_explicit(&stage->header->durable_seq, seq, memory_order_release);
}

void stage_begin_recovery(struct stage *stage, uint64_t epoch)
{
    atomic_store(&stage->header->next_epoch, epoch);
}

/* Frees only the heap: the shared memory must stay as it is for the next recovery. */
static void free_heap(struct stage *stage)
{
    struct stage_file *file, *next;
    HASH_ITER(hh, stage->locked.files, file, next)
    {
        for (size_t i = 0; i < LAYER_STATES; i++)
            layer_abandon(file->layers[i]);
    }
    HASH_FREE_ALL(stage->locked.files);
    HASH_FREE_ALL(stage->locked.packs);
}

void stage_close(struct stage *stage, bool remove)
{
    if (!stage)
        return;
    stage_stop(stage);
    if (remove) {
        (void)unlink(stage->ctl_path);
        (void)unlink(stage->slabs_path);
    }
    free_heap(stage);
    if (stage->slab_memory)
        (void)munmap(stage->slab_memory, stage->slabs_len + 4096);
    if (stage->header)
        (void)munmap(stage->header, stage->ctl_len);
    if (stage->slabs_fd >= 0)
        (void)close(stage->slabs_fd);
    if (stage->ctl_fd >= 0)
        (void)close(stage->ctl_fd);
    free(stage->locked.slabs);
    free(stage->ctl_path);
    free(stage->slabs_path);
    mutex_done(&stage->locked.lock);
    (void)pthread_cond_destroy(&stage->slabs_changed);
    free(stage);
}
