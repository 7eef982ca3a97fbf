/* What this libfuse has no name for in the kernel's protocol: TMPFILE, and two things that are asked for in the reply to INIT, and
 * tried before anybody relies on them.
 *
 *   DIRECT_IO_ALLOW_MMAP  files that bypass the page cache can still be mapped shared (loaders map what they read)
 *   HANDLE_KILLPRIV_V2    we clear setuid bits ourselves, so the kernel need not ask for an xattr before every write */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "base/log.h"
#include "fuse/internal.h"

#define READAHEAD_KB "8192"
#define SELF_TEST_MS 10000
#define INIT_IN_FLAGS 12u   /* offsets in the arguments of INIT */
#define INIT_IN_FLAGS2 16u
#define INIT_OUT_FLAGS 12u  /* offsets in its answer */
#define INIT_OUT_FLAGS2 32u
#define INIT_OUT_LEN 64u

static struct front *mounting; /* libfuse hands no context to these hooks before INIT; one mount a process */
static uint32_t offered_flags;

void front_see_request(struct front *front, void *mem, size_t size)
{
    struct wire_in_header *header = mem;
    if (header->opcode == WIRE_TMPFILE)
        header->opcode = WIRE_CREATE; /* the same but for its name, which no other file can have */
    if (header->opcode != WIRE_INIT || size < WIRE_IN_HEADER_LEN + INIT_IN_FLAGS2 + 4)
        return;
    const uint8_t *args = (uint8_t *)mem + WIRE_IN_HEADER_LEN;
    uint32_t flags2;
    memcpy(&offered_flags, args + INIT_IN_FLAGS, sizeof offered_flags);
    memcpy(&flags2, args + INIT_IN_FLAGS2, sizeof flags2);
    mounting = front;
    atomic_store(&front->mmap_offered,
                 offered_flags & WIRE_INIT_EXT && flags2 & WIRE2_DIRECT_IO_ALLOW_MMAP);
}

static void patch_init(uint8_t *answer)
{
    uint32_t flags, flags2;
    memcpy(&flags, answer + INIT_OUT_FLAGS, sizeof flags);
    memcpy(&flags2, answer + INIT_OUT_FLAGS2, sizeof flags2);
    flags |= offered_flags & WIRE_HANDLE_KILLPRIV_V2;
    if (atomic_load(&mounting->mmap_offered)) {
        flags |= WIRE_INIT_EXT;
        flags2 |= WIRE2_DIRECT_IO_ALLOW_MMAP;
    }
    memcpy(answer + INIT_OUT_FLAGS, &flags, sizeof flags);
    memcpy(answer + INIT_OUT_FLAGS2, &flags2, sizeof flags2);
}

static ssize_t write_reply(int fd, struct iovec *iov, int count, void *userdata)
{
    (void)userdata;
    if (mounting && !atomic_exchange(&mounting->init_done, true) && count == 2 && iov[1].iov_len == INIT_OUT_LEN) {
        uint8_t answer[INIT_OUT_LEN];
        memcpy(answer, iov[1].iov_base, sizeof answer);
        patch_init(answer);
        struct iovec patched[2] = {iov[0], {answer, sizeof answer}};
        return writev(fd, patched, 2);
    }
    return writev(fd, iov, count);
}

static ssize_t read_request(int fd, void *buf, size_t len, void *userdata)
{
    (void)userdata;
    return read(fd, buf, len);
}

const struct fuse_custom_io front_io = {.writev = write_reply, .read = read_request};

/* --- self-test ------------------------------------------------------------------------------------------------------------ */

/* Writes and maps must see each other, both ways. */
static int try_shared_mapping(int fd)
{
    static const char first[] = "written", second[] = "stored";
    char back[sizeof second] = {0};
    if (pwrite(fd, first, sizeof first, 0) != (ssize_t)sizeof first)
        return -errno;
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    int r = memcmp(map, first, sizeof first) == 0 ? 0 : -EIO;
    memcpy(map, second, sizeof second);
    if (r == 0 && msync(map, 4096, MS_SYNC) < 0)
        r = -errno;
    if (r == 0 && pread(fd, back, sizeof back, 0) != (ssize_t)sizeof back)
        r = -EIO;
    if (r == 0 && memcmp(back, second, sizeof back) != 0)
        r = -EIO;
    (void)munmap(map, 4096);
    return r;
}

/* Sequential readers of sealed files: one request should carry as much as it can. */
static void raise_readahead(const struct stat *st)
{
    char path[96];
    (void)snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major(st->st_dev), minor(st->st_dev));
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, READAHEAD_KB, strlen(READAHEAD_KB)) < 0)
        (void)0; /* only a wish: as an ordinary user it is not granted */
    if (fd >= 0)
        (void)close(fd);
}

/* The file has no name when it is closed, so it never becomes part of the history. */
static int try_mount(const struct front *front, const char *path)
{
    /* The first request waits in the kernel for the answer to INIT. */
    struct stat st;
    if (stat(front->options.mountpoint, &st) < 0)
        return -errno;
    raise_readahead(&st);
    if (front->options.read_only)
        return -EOPNOTSUPP;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || unlink(path) < 0)
        return -errno;
    return try_shared_mapping(fd);
}

/* Waits for the child; what it says, or -ETIMEDOUT. */
static int result_of(pid_t child)
{
    for (int ms = 0; ms < SELF_TEST_MS; ms += 5) {
        int status;
        pid_t pid = waitpid(child, &status, WNOHANG);
        if (pid == child)
            return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    (void)kill(child, SIGKILL);
    return -ETIMEDOUT;
}

/* In a process of its own: a daemon that is killed with a request to itself under way, or with a file on its own mount
 * open, could never end. The child keeps no descriptor of ours, else the mount would outlive us. */
void front_self_test(struct front *front)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/" SELF_TEST_NAME "%d", front->options.mountpoint, (int)getpid());
    /* INIT is answered before the child's first request is: what it tries is the direct way. */
    atomic_store(&front->mmap_shared, true);
    atomic_store(&front->testing, true);
    pid_t child = fork();
    if (child == 0) {
        (void)close_range(0, UINT_MAX, 0);
        _exit(-try_mount(front, path));
    }
    int r = child < 0 ? -errno : result_of(child);
    atomic_store(&front->testing, false);
    if (r < 0 && r != -EOPNOTSUPP)
        log_info("files that are open for reading and writing use the page cache: shared mappings with direct I/O do not "
                 "work here (%s)",
                 strerror(-r));
    atomic_store(&front->mmap_shared, r == 0 && atomic_load(&front->mmap_offered));
}
