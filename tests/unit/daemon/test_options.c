#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/io.h"
#include "daemon/options.h"

static struct mount_options o;

static void begin(void)
{
    options_init(&o);
}

static void end(void)
{
    options_done(&o);
}

TestSuite(options, .init = begin, .fini = end);

static void expect_ok(const char *list)
{
    char *error = NULL;
    cr_assert_eq(options_set_list(&o, list, &error), 0, "%s: %s", list, error);
}

/* The error names `word`. */
static void expect_error(const char *list, const char *word)
{
    char *error = NULL;
    cr_assert_eq(options_set_list(&o, list, &error), -EINVAL, "%s", list);
    cr_assert_not_null(strstr(error, word), "%s: '%s' does not say '%s'", list, error, word);
    cr_assert_null(strchr(error, '\n'));
    free(error);
}

Test(options, sizes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"512M", 512 * MIB},
                {"4G", 4 * GIB},
                {"1T", 1024 * GIB},
                {"1.5g", 3 * GIB / 2},
                {"7KiB", 7 * KIB},
                {"9007199254740993", 9007199254740993ull}};
    static const char *const bad[] = {"",    "G",   "-1",           "1X",   "4GB",
                                      "4 G", "1.",  ".5G",          "0x10", "1e3",
                                      "nan", "inf", "99999999999P", "4Gi",  "18446744073709551616"};
    uint64_t bytes;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        cr_assert_eq(parse_size(good[i].text, &bytes), 0, "%s", good[i].text);
        cr_assert_eq(bytes, good[i].bytes, "%s", good[i].text);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_eq(parse_size(bad[i], &bytes), -EINVAL, "%s", bad[i]);
}

Test(options, durations)
{
    static const struct {
        const char *text;
        int64_t ns;
    } good[] = {{"0", 0},
                {"1", 1000000000},
                {"1.5", 1500000000},
                {"250ms", 250000000},
                {"10s", 10000000000},
                {"5m", 300000000000},
                {"1h", 3600000000000},
                {"0.1s", 100000000}};
    static const char *const bad[] = {"",    "s", "-1s", "1x", "1 s", "1S", "nan", "99999999999999999999h",
                                      "1ms2"};
    int64_t ns;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        cr_assert_eq(parse_duration(good[i].text, &ns), 0, "%s", good[i].text);
        cr_assert_eq(ns, good[i].ns, "%s", good[i].text);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_eq(parse_duration(bad[i], &ns), -EINVAL, "%s", bad[i]);
}

Test(options, defaults)
{
    cr_assert_str_eq(o.stage_dir, "/dev/shm");
    cr_assert_eq(o.fsync, FSYNC_NVME);
    cr_assert_eq(o.writeback_threads, 2);
    cr_assert_eq(o.writeback_delay_ns, 1000000000);
    cr_assert_eq(o.log_level, LOG_LEVEL_INFO);
    cr_assert_eq(o.allow_other, geteuid() == 0);
    cr_assert(o.default_permissions && o.nosuid && o.nodev && !o.noexec && !o.read_only && !o.foreground);
    char *error = NULL;
    cr_assert_eq(options_finish(&o, &error), 0);
    cr_assert_geq(o.stage_bytes, 16 * MIB);
    cr_assert_leq(o.stage_bytes, max_u64(o.memory_granted / 4, 16 * MIB));
}

Test(options, every_kind)
{
    expect_ok("stage=2G,nvme=10G,fsync=stage,writeback-threads=4,writeback_limit=100M,writeback_delay=250ms");
    expect_ok(
        "entry-timeout=0.5,attr_timeout=2s,threads=8,log=/tmp/l,log_level=debug,foreground,ro,noallow_other");
    expect_ok("noatime,noexec,suid,dev,default_permissions,fsname=x,subtype=y");
    cr_assert_eq(o.stage_bytes, 2 * GIB);
    cr_assert_eq(o.nvme_bytes, 10 * GIB);
    cr_assert_eq(o.fsync, FSYNC_STAGE);
    cr_assert_eq(o.writeback_threads, 4);
    cr_assert_eq(o.writeback_limit, 100 * MIB);
    cr_assert_eq(o.writeback_delay_ns, 250000000);
    cr_assert_eq(o.entry_timeout_ns, 500000000);
    cr_assert_eq(o.attr_timeout_ns, 2000000000);
    cr_assert_eq(o.threads, 8);
    cr_assert_str_eq(o.log_path, "/tmp/l");
    cr_assert_eq(o.log_level, LOG_LEVEL_DEBUG);
    cr_assert(o.foreground && o.read_only && !o.allow_other && o.noatime && o.noexec && !o.nosuid &&
              !o.nodev);
}

Test(options, later_wins_and_alias)
{
    expect_ok("ro,rw,stage=1G,stage=2G,cache-size=3G,allow_other,noallow_other");
    cr_assert_not(o.read_only);
    cr_assert_eq(o.stage_bytes, 2 * GIB);
    cr_assert_eq(o.nvme_bytes, 3 * GIB);
    cr_assert_not(o.allow_other);
    expect_ok("stage=0,nvme=0,cache_size=0,writeback_limit=0,threads=0");
    cr_assert_eq(o.stage_bytes, 0);
}

Test(options, escapes)
{
    expect_ok("stage_dir=/a\\,b\\\\c=d\\x,ro");
    cr_assert_str_eq(o.stage_dir, "/a,b\\c=d\\x");
    cr_assert(o.read_only);
    expect_ok(",,rw,");
    cr_assert_not(o.read_only);
    expect_ok("log=/ends\\");
    cr_assert_str_eq(o.log_path, "/ends\\");
}

Test(options, ignored)
{
    expect_ok("_netdev,nofail,auto,noauto,user,users,defaults,x-systemd.requires=a.service,x-gvfs-hide,"
              "comment=hello");
}

Test(options, errors_name_the_option)
{
    expect_error("stge=4G", "stge");
    expect_error("=4G", "unknown");
    expect_error("Stage=4G", "Stage");
    expect_error("stage", "stage");
    expect_error("stage=", "stage");
    expect_error("stage=4X", "4X");
    expect_error("stage=1M", "16M");
    expect_error("stage=-1", "stage");
    expect_error("writeback_threads=0", "1 to 64");
    expect_error("writeback_threads=65", "64");
    expect_error("writeback_threads=two", "two");
    expect_error("writeback_delay=2h", "3600s");
    expect_error("entry_timeout=soon", "soon");
    expect_error("fsync=never", "nvme, stage");
    expect_error("log_level=loud", "debug");
    expect_error("ro=1", "no value");
    expect_error("stage_dir=", "stage_dir");
    expect_error("rw,bogus,ro", "bogus");
}

Test(options, remote_is_refused)
{
    char *error = NULL;
    expect_ok("fsync=remote");
    cr_assert_eq(options_finish(&o, &error), -EINVAL);
    cr_assert_not_null(strstr(error, "no remote is configured"));
    free(error);
}

Test(options, relative_stage_is_refused)
{
    char *error = NULL;
    expect_ok("stage_dir=shm");
    cr_assert_eq(options_finish(&o, &error), -EINVAL);
    cr_assert_not_null(strstr(error, "stage_dir"));
    free(error);
}

/* A machine's files below a folder of our own. */
static char root[] = "/tmp/cairn-options-XXXXXX";

static void put(const char *path, const char *text)
{
    _cleanup_free_ char *whole = xasprintf("%s%s", root, path);
    for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(whole, 0700);
        *slash = '/';
    }
    cr_assert_eq(io_write_file_durable(whole, text, strlen(text)), 0);
}

static void make_machine(void)
{
    cr_assert_not_null(mkdtemp(root));
    put("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");
}

static void drop_machine(void)
{
    _cleanup_free_ char *command = xasprintf("rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

TestSuite(memory, .init = make_machine, .fini = drop_machine);

Test(memory, of_the_machine)
{
    cr_assert_eq(options_memory_granted_below(root), 8 * GIB);
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    cr_assert_eq(options_memory_granted_below(root), 8 * GIB);
}

Test(memory, of_cgroup_v2_and_its_parents)
{
    put("/proc/self/cgroup", "0::/a.slice/b.scope\n");
    put("/sys/fs/cgroup/a.slice/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n");
    cr_assert_eq(options_memory_granted_below(root), 2 * GIB);
    put("/sys/fs/cgroup/a.slice/b.scope/memory.high", "1073741824\n");
    cr_assert_eq(options_memory_granted_below(root), GIB);
}

Test(memory, of_cgroup_v1)
{
    put("/proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/job\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
    cr_assert_eq(options_memory_granted_below(root), GIB);
}

Test(memory, of_a_container_that_sees_its_host_s_path)
{
    put("/proc/self/cgroup", "4:memory:/docker/0123\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
    cr_assert_eq(options_memory_granted_below(root), 512 * MIB);
}

Test(memory, of_garbage)
{
    put("/proc/self/cgroup", "memory\n::\n4:memory\nx:memory:y\n\n");
    put("/proc/meminfo", "nothing\n");
    cr_assert_eq(options_memory_granted_below(root), GIB);
}
