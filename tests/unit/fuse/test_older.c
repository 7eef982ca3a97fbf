// SPDX-License-Identifier: Apache-2.0
/* Who is older than a node that opened anew, and what a request of the kernel asks for. The
 * processes are real ones. */
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "../../remove_tree.h"
#include "../expect.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "fuse/older.h"
#include "fuse/ops.h"

#define CLOSED_NS (500 * MS_NS)

static struct older older;
static char directory[] = "/tmp/cairn-older-XXXXXX";
static char *path;

static void begin(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    cr_assert_not_null(mkdtemp(directory));
    path = xasprintf("%s/rejoined", directory);
    older_init(&older, &(struct front_times){.closed_ns = CLOSED_NS}, path);
}

static void end(void)
{
    older_done(&older);
    remove_tree(directory);
    free(path);
}

TestSuite(older, .init = begin, .fini = end, .timeout = 120);

/* A new daemon. */
static void start_after(int64_t opens, int64_t died_at)
{
    older_done(&older);
    older_init(&older, &(struct front_times){opens, CLOSED_NS, died_at}, path);
}

static void start_again(int64_t opens)
{
    start_after(opens, 0);
}

/* A process that leads a group. */
static pid_t start_group(void)
{
    pid_t child = fork();
    if (child == 0)
        for (;;)
            (void)pause();
    assert_i64(setpgid(child, child), 0);
    return child;
}

static pid_t start_member(pid_t group)
{
    pid_t child = fork();
    if (child == 0)
        for (;;)
            (void)pause();
    assert_i64(setpgid(child, group), 0);
    return child;
}

static void end_process(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    assert_i64(waitpid(pid, NULL, 0), pid);
}

/* The next process starts in a later tick. */
static int64_t open_now(void)
{
    (void)usleep(30000);
    int64_t now = clock_boottime_ns();
    (void)usleep(30000);
    return now;
}

Test(older, nobody_is_as_long_as_the_node_was_open)
{
    expect_u64(older_look(&older, getpid()), OLDER_NOT);
    expect_u64(older_look(&older, 0), OLDER_NOT);
}

Test(older, a_group_is_that_began_before_and_no_later_one)
{
    pid_t old = start_group();
    int64_t opens = open_now();
    pid_t late_member = start_member(old), fresh = start_group();
    older_set(&older, opens);
    for (int i = 0; i < 2; i++) {
        expect_u64(older_look(&older, old), OLDER_IS);
        expect_u64(older_look(&older, late_member), OLDER_IS, "its group is what counts");
        expect_u64(older_look(&older, fresh), OLDER_NOT);
    }
    expect_u64(older_look(&older, 0), OLDER_UNKNOWN);
    older_set(&older, open_now());
    expect_u64(older_look(&older, fresh), OLDER_IS, "the node opened again");
    older_set(&older, 0);
    expect_u64(older_look(&older, old), OLDER_NOT);
    end_process(late_member);
    end_process(old);
    end_process(fresh);
    older_set(&older, opens);
    expect_u64(older_look(&older, old), OLDER_UNKNOWN, "it has ended");
}

Test(older, a_group_that_rejoined_is_not_also_for_a_successor)
{
    pid_t old = start_group(), other = start_group();
    int64_t opens = open_now();
    older_set(&older, opens);
    pid_t member = start_member(old);
    assert_i64(older_rejoin(&older, member), 0);
    expect_u64(older_look(&older, old), OLDER_NOT);
    expect_u64(older_look(&older, member), OLDER_NOT);
    expect_u64(older_look(&older, other), OLDER_IS);
    start_again(opens);
    expect_u64(older_look(&older, old), OLDER_NOT);
    expect_u64(older_look(&older, other), OLDER_IS);
    assert_i64(older_rejoin(&older, other), 0);
    start_again(opens);
    expect_u64(older_look(&older, old), OLDER_NOT);
    expect_u64(older_look(&older, other), OLDER_NOT);
    older_set(&older, open_now());
    expect_u64(older_look(&older, old), OLDER_IS, "it rejoined before");
    assert_i64(older_rejoin(&older, old), 0);
    expect_u64(older_look(&older, old), OLDER_NOT);
    end_process(member);
    end_process(old);
    end_process(other);
    expect_i64(older_rejoin(&older, old), -ESRCH);
}

static enum older_word settle(pid_t pid, int64_t *ret_wait_ns)
{
    enum older_word word;
    assert_i64(older_settle(&older, pid, &word, ret_wait_ns), 0);
    return word;
}

Test(older, a_group_that_began_when_the_node_had_gone_back_waits_and_rejoins)
{
    int64_t wait_ns;
    pid_t old = start_group();
    int64_t opens = open_now() + CLOSED_NS;
    pid_t fresh = start_group(), member = start_member(old);
    older_set(&older, opens);
    expect_u64(settle(fresh, &wait_ns), OLDER_WAITS);
    cr_expect(wait_ns > 0 && wait_ns < CLOSED_NS);
    expect_u64(older_look(&older, fresh), OLDER_IS, "it has not rejoined yet");
    expect_u64(settle(old, &wait_ns), OLDER_IS);
    while (clock_boottime_ns() < opens)
        (void)usleep(10000);
    expect_u64(older_look(&older, fresh), OLDER_IS, "it has not asked again");
    expect_u64(settle(old, &wait_ns), OLDER_IS);
    expect_u64(settle(member, &wait_ns), OLDER_IS, "its group is what counts");
    expect_u64(settle(fresh, &wait_ns), OLDER_NOT);
    expect_u64(older_look(&older, fresh), OLDER_NOT);
    start_again(opens);
    expect_u64(older_look(&older, fresh), OLDER_NOT);
    older_set(&older, INT64_MAX);
    expect_u64(settle(fresh, &wait_ns), OLDER_IS, "the node is about to go back again");
    expect_u64(settle(0, &wait_ns), OLDER_UNKNOWN);
    older_set(&older, 0);
    expect_u64(settle(old, &wait_ns), OLDER_NOT);
    end_process(member);
    end_process(old);
    end_process(fresh);
}

/* Also while the daemon went back, which may take a while: none acknowledged anything. */
Test(older, a_group_that_began_when_the_daemon_before_had_died_rejoins)
{
    int64_t wait_ns;
    pid_t old = start_group();
    int64_t died_at = open_now();
    pid_t fresh = start_group();
    int64_t opens = open_now();
    start_after(opens + CLOSED_NS, died_at);
    expect_u64(settle(old, &wait_ns), OLDER_IS);
    expect_u64(settle(fresh, &wait_ns), OLDER_WAITS);
    start_after(opens + CLOSED_NS, 0);
    expect_u64(settle(fresh, &wait_ns), OLDER_IS);
    start_after(opens + CLOSED_NS, open_now());
    expect_u64(settle(fresh, &wait_ns), OLDER_IS,
               "the daemon before had gone back long before it died");
    end_process(old);
    end_process(fresh);
}

static void *rejoin_own(void *arg)
{
    pid_t *pid = arg;
    *pid = older_rejoin(&older, *pid) == 0 ? 0 : *pid;
    return NULL;
}

Test(older, all_that_rejoin_at_once_are_in_the_file)
{
    pid_t groups[16], left[16];
    pthread_t threads[16];
    for (size_t i = 0; i < ARRAY_LEN(groups); i++)
        left[i] = groups[i] = start_group();
    int64_t opens = open_now();
    older_set(&older, opens);
    for (size_t i = 0; i < ARRAY_LEN(groups); i++)
        assert_i64(pthread_create(&threads[i], NULL, rejoin_own, &left[i]), 0);
    for (size_t i = 0; i < ARRAY_LEN(groups); i++)
        assert_i64(pthread_join(threads[i], NULL), 0);
    start_again(opens);
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        expect_i64(left[i], 0);
        expect_u64(older_look(&older, groups[i]), OLDER_NOT);
        end_process(groups[i]);
    }
}

static void write_text(const char *text)
{
    assert_i64(io_write_file_durable(path, text, strlen(text)), 0);
}

Test(older, a_file_that_is_damaged_or_of_another_boot_says_nothing)
{
    _cleanup_free_ char *text = NULL;
    pid_t old = start_group();
    int64_t opens = open_now();
    older_set(&older, opens);
    assert_i64(older_rejoin(&older, old), 0);
    assert_i64(io_read_file(path, 65536, &text, NULL), 0);
    char *at = strstr(text, "group ") + 6, digit = *at;
    *at = digit == '1' ? '2' : '1';
    write_text(text);
    start_again(opens);
    expect_u64(older_look(&older, old), OLDER_IS);
    *at = digit;
    write_text(text);
    start_again(opens);
    expect_u64(older_look(&older, old), OLDER_NOT);
    write_text("");
    start_again(opens);
    expect_u64(older_look(&older, old), OLDER_IS);
    end_process(old);
}

Test(older, groups_that_ended_leave_their_place_to_others)
{
    pid_t ended = start_group(), kept = start_group(), first = start_group();
    int64_t opens = open_now();
    older_set(&older, opens);
    assert_i64(older_rejoin(&older, first), 0);
    assert_i64(older_rejoin(&older, ended), 0);
    while (older.group_count < OLDER_GROUPS_MAX) { /* of a number, with other starts: they live */
        older.groups[older.group_count] = older.groups[0];
        older.groups[older.group_count++].group.started++;
    }
    end_process(ended);
    assert_i64(older_rejoin(&older, kept), 0);
    expect_u64(older.group_count, OLDER_GROUPS_MAX);
    expect_u64(older_look(&older, kept), OLDER_NOT);
    expect_u64(older_look(&older, first), OLDER_NOT, "the ended one's place was enough");
    end_process(kept);
    end_process(first);
}

/* --- requests --------------------------------------------------------------------------------- */

struct request {
    struct wire_in_header header;
    union {
        uint32_t words[16];
        char bytes[64];
        struct fuse_open_in open;
        struct fuse_setattr_in setattr;
        struct fuse_write_in write;
        struct fuse_fallocate_in fallocate;
        struct fuse_copy_file_range_in copy;
        struct fuse_fsync_in fsync;
        struct fuse_flush_in flush;
    } args;
};

static struct request_asks asks_of(struct request *request, uint32_t opcode)
{
    struct request_asks asks;
    request->header = (struct wire_in_header){.len = sizeof *request, .opcode = opcode};
    request_asks(&request->header, &asks);
    return asks;
}

/* Every request that has a handler, and those that libfuse answers. */
static const uint32_t changing[] = {
    FUSE_SETATTR, FUSE_SYMLINK,   FUSE_MKNOD,       FUSE_MKDIR,
    FUSE_UNLINK,  FUSE_RMDIR,     FUSE_RENAME,      FUSE_LINK,
    FUSE_WRITE,   FUSE_CREATE,    FUSE_TMPFILE,     FUSE_SETXATTR,
    FUSE_RENAME2, FUSE_FALLOCATE, FUSE_REMOVEXATTR, FUSE_COPY_FILE_RANGE};
static const uint32_t harmless[] = {
    FUSE_LOOKUP,  FUSE_FORGET,  FUSE_GETATTR,   FUSE_READLINK,    FUSE_OPEN,      FUSE_READ,
    FUSE_STATFS,  FUSE_RELEASE, FUSE_FSYNC,     FUSE_GETXATTR,    FUSE_LISTXATTR, FUSE_FLUSH,
    FUSE_INIT,    FUSE_OPENDIR, FUSE_READDIR,   FUSE_RELEASEDIR,  FUSE_FSYNCDIR,  FUSE_READDIRPLUS,
    FUSE_DESTROY, FUSE_LSEEK,   FUSE_INTERRUPT, FUSE_BATCH_FORGET};

Test(requests, each_that_changes_something_is_known)
{
    struct request request = {0};
    for (size_t i = 0; i < ARRAY_LEN(changing); i++)
        cr_expect(asks_of(&request, changing[i]).changes, "opcode %u", changing[i]);
    for (size_t i = 0; i < ARRAY_LEN(harmless); i++)
        cr_expect_not(asks_of(&request, harmless[i]).changes, "opcode %u", harmless[i]);
}

/* A handler that is new is to be put into one of these lists. TMPFILE and RENAME have the handlers
 * of others; init is INIT's, forget and forget_multi are two of one kind; DESTROY and INTERRUPT
 * have none. */
Test(requests, no_handler_is_in_neither_list)
{
    void (*handlers[sizeof front_ops / sizeof(void (*)(void))])(void);
    size_t count = 0;
    memcpy(handlers, &front_ops, sizeof front_ops);
    for (size_t i = 0; i < ARRAY_LEN(handlers); i++)
        count += handlers[i] != NULL;
    expect_u64(count, ARRAY_LEN(changing) - 2 + ARRAY_LEN(harmless) - 2);
}

Test(requests, an_open_changes_something_if_it_may_be_written_through_or_truncates)
{
    static const uint32_t flags[] = {O_RDONLY,          O_RDONLY | O_TRUNC,  O_WRONLY,
                                     O_RDWR | O_APPEND, O_RDONLY | O_DIRECT, O_RDONLY | O_NOATIME};
    static const bool changes[] = {false, true, true, true, false, false};
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        struct request request = {.args.open.flags = flags[i]};
        expect_u64(asks_of(&request, FUSE_OPEN).changes, changes[i], "flags %o", flags[i]);
    }
}

Test(requests, handles_are_found)
{
    const uint64_t handle = 0x123456789abcdefull;
    struct request request = {.args.write.fh = handle};
    struct request_asks asks = asks_of(&request, FUSE_WRITE);
    cr_expect(asks.has_handle && asks.handle == handle && !asks.is_page);
    request.args.write.write_flags = FUSE_WRITE_CACHE;
    cr_expect(asks_of(&request, FUSE_WRITE).is_page);
    request = (struct request){.args.fallocate.fh = handle};
    expect_u64(asks_of(&request, FUSE_FALLOCATE).handle, handle);
    request = (struct request){.args.copy = {.fh_in = 1, .fh_out = handle}};
    expect_u64(asks_of(&request, FUSE_COPY_FILE_RANGE).handle, handle);
    request = (struct request){.args.fsync.fh = handle};
    expect_u64(asks_of(&request, FUSE_FSYNC).handle, handle);
    expect_u64(asks_of(&request, FUSE_FSYNCDIR).handle, handle);
    request = (struct request){.args.flush.fh = handle};
    expect_u64(asks_of(&request, FUSE_FLUSH).handle, handle);
    request = (struct request){.args.setattr = {.valid = FATTR_SIZE, .fh = handle}};
    cr_expect_not(asks_of(&request, FUSE_SETATTR).has_handle, "truncate() has none");
    request.args.setattr.valid = FATTR_SIZE | FATTR_FH;
    expect_u64(asks_of(&request, FUSE_SETATTR).handle, handle);
}

Test(requests, the_report_of_a_program_that_saves_lazily_is_no_change)
{
    struct request request = {0};
    memcpy(request.args.bytes + FUSE_COMPAT_SETXATTR_IN_SIZE, "user.cairn.lane", 16);
    cr_expect_not(asks_of(&request, FUSE_SETXATTR).changes);
    memcpy(request.args.bytes + FUSE_COMPAT_SETXATTR_IN_SIZE, "user.cairn.pin", 15);
    cr_expect(asks_of(&request, FUSE_SETXATTR).changes);
    memset(request.args.bytes, 'x', sizeof request.args.bytes);
    cr_expect(asks_of(&request, FUSE_SETXATTR).changes, "a name without an end");
}
