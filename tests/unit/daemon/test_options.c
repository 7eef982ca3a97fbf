// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <sys/stat.h>

#include "../../remove_tree.h"
#include "../expect.h"
#include "base/io.h"
#include "codec/encode.h"
#include "daemon/keep_text.h"
#include "daemon/options.h"
#include "daemon/remote_address.h"
#include "tier/tier.h"

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
    assert_i64(options_set_list(&o, list, false, &error), 0, "%s: %s", list, error);
}

/* The error names `word`. */
static void expect_error(const char *list, const char *word)
{
    _cleanup_free_ char *error = NULL;
    assert_i64(options_set_list(&o, list, false, &error), -EINVAL, "%s", list);
    cr_assert_not_null(strstr(error, word), "%s: '%s' does not say '%s'", list, error, word);
    cr_assert_null(strchr(error, '\n'));
}

/* As the next program reads them. */
static void expect_again(void)
{
    struct mount_options again;
    char *error = NULL, *list = options_print(&o);
    options_init(&again);
    assert_i64(options_set_list(&again, list, false, &error), 0, "%s: %s", list, error);
    for (const struct option_spec *spec = option_table; spec->name; spec++) {
        const void *a = (char *)&o + spec->offset, *b = (char *)&again + spec->offset;
        bool is_flag = spec->kind == OPTION_SET || spec->kind == OPTION_CLEAR;
        if (spec->kind != OPTION_STRING && spec->kind != OPTION_PATH)
            assert_i64(memcmp(a, b, is_flag ? sizeof(bool) : sizeof(uint64_t)), 0, "%s in %s",
                       spec->name, list);
        else if (*(char *const *)a)
            assert_str(*(char *const *)a, *(char *const *)b);
        else
            cr_assert_null(*(char *const *)b);
    }
    options_done(&again);
    free(list);
}

Test(options, printed_and_read_again)
{
    expect_again();
    expect_ok(
        "stage=1536M,nvme=9007199254740993,fsync=stage,writeback_delay=250ms,entry_timeout=0,attr_"
        "timeout=1.5,threads=7,noallow_other,ro,suid,dev,"
        "noexec,noatime,successor=on,crash_window=0,fuse_minor=39,log_level=debug,writeback_limit="
        "1G");
    expect_ok("remote=s3://bucket/a\\,b,profile=back\\\\slash,log=/"
              "a\\,\\\\b,takeover,unfenced,checksum=md5,connections=9,lease=90s,gc_grace=0,metrics="
              "[::1]:9464");
    assert_str(o.log_path, "/a,\\b");
    expect_again();
}

Test(options, what_is_kept)
{
    struct head_keep keep;
    expect_ok("remote=dir:/r,keep=weekly:4,last:10,gc_grace=1m,hourly:24");
    assert_str(o.keep, "weekly:4,last:10,hourly:24");
    expect_again();
    expect_ok("keep=last:3\\,daily:1000,ro");
    char *why = NULL;
    assert_i64(keep_parse(o.keep, &keep, &why), 0);
    cr_assert(keep.last == 3 && keep.hourly == 0 && keep.daily == 1000 && keep.weekly == 0);
    expect_ok("keep=none");
    assert_i64(keep_parse(o.keep, &keep, &why), 0);
    cr_assert_not(head_keep_is_set(&keep));
}

Test(options, what_cannot_be_kept)
{
    static const char *const bad[] = {"",          "last",          "last:",      "last:0",
                                      "last:1001", "last:-1",       "last:x",     "hourly:1,",
                                      "yearly:1",  "last:1,last:2", "none,last:1"};
    struct head_keep keep;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        _cleanup_free_ char *why = NULL;
        assert_i64(keep_parse(bad[i], &keep, &why), -EINVAL, "%s", bad[i]);
        cr_expect_not_null(why);
    }
    expect_error("last:3", "last:3"); /* without keep= before it */
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
        assert_i64(parse_size(good[i].text, &bytes), 0, "%s", good[i].text);
        assert_u64(bytes, good[i].bytes, "%s", good[i].text);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_i64(parse_size(bad[i], &bytes), -EINVAL, "%s", bad[i]);
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
    static const char *const bad[] = {
        "", "s", "-1s", "1x", "1 s", "1S", "nan", "99999999999999999999h", "1ms2"};
    int64_t ns;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_i64(parse_duration(good[i].text, &ns), 0, "%s", good[i].text);
        assert_i64(ns, good[i].ns, "%s", good[i].text);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_i64(parse_duration(bad[i], &ns), -EINVAL, "%s", bad[i]);
}

Test(options, defaults)
{
    assert_str(o.stage_dir, "/dev/shm");
    assert_u64(o.fsync, FSYNC_NVME);
    assert_u64(o.writeback_threads, 2);
    assert_i64(o.writeback_delay_ns, 1000000000);
    assert_u64(o.reduce, REDUCE_AUTO);
    assert_u64(o.log_level, LOG_LEVEL_INFO);
    assert_u64(o.allow_other, geteuid() == 0);
    cr_assert(o.default_permissions && o.nosuid && o.nodev && !o.noexec && !o.read_only &&
              !o.foreground);
    char *error = NULL;
    assert_i64(options_finish(&o, &error), 0);
    cr_assert_geq(o.stage_bytes, 16 * MIB);
    cr_assert_leq(o.stage_bytes, max_u64(o.memory_granted / 4, 16 * MIB));
    assert_u64(o.reduce, REDUCE_FAST, "there is no remote");
}

Test(options, reduce_goes_by_the_remote_where_no_word_is_given)
{
    char *error = NULL;
    expect_ok("remote=dir:/tmp");
    assert_i64(options_finish(&o, &error), 0);
    assert_u64(o.reduce, REDUCE_DENSE);
    expect_ok("reduce=fast");
    assert_i64(options_finish(&o, &error), 0);
    assert_u64(o.reduce, REDUCE_FAST);
    expect_ok("reduce=off,reduce=auto");
    assert_i64(options_finish(&o, &error), 0);
    assert_u64(o.reduce, REDUCE_DENSE);
}

Test(options, every_kind)
{
    expect_ok("stage=2G,nvme=10G,fsync=stage,writeback-threads=4,writeback_limit=100M,writeback_"
              "delay=250ms,reduce=off");
    expect_ok("entry-timeout=0.5,attr_timeout=2s,threads=8,log=/tmp/"
              "l,log_level=debug,foreground,ro,noallow_other");
    expect_ok("noatime,noexec,suid,dev,default_permissions,fsname=x,subtype=y");
    assert_u64(o.stage_bytes, 2 * GIB);
    assert_u64(o.nvme_bytes, 10 * GIB);
    assert_u64(o.fsync, FSYNC_STAGE);
    assert_u64(o.writeback_threads, 4);
    assert_u64(o.writeback_limit, 100 * MIB);
    assert_i64(o.writeback_delay_ns, 250000000);
    assert_u64(o.reduce, REDUCE_OFF);
    assert_i64(o.entry_timeout_ns, 500000000);
    assert_i64(o.attr_timeout_ns, 2000000000);
    assert_u64(o.threads, 8);
    assert_str(o.log_path, "/tmp/l");
    assert_u64(o.log_level, LOG_LEVEL_DEBUG);
    cr_assert(o.foreground && o.read_only && !o.allow_other && o.noatime && o.noexec && !o.nosuid &&
              !o.nodev);
}

Test(options, later_wins_and_alias)
{
    expect_ok("ro,rw,stage=1G,stage=2G,cache-size=3G,allow_other,noallow_other");
    cr_assert_not(o.read_only);
    assert_u64(o.stage_bytes, 2 * GIB);
    assert_u64(o.nvme_bytes, 3 * GIB);
    cr_assert_not(o.allow_other);
    expect_ok("stage=0,nvme=0,cache_size=0,writeback_limit=0,threads=0");
    assert_u64(o.stage_bytes, 0);
}

Test(options, escapes)
{
    expect_ok("stage_dir=/a\\,b\\\\c=d\\x,ro");
    assert_str(o.stage_dir, "/a,b\\c=d\\x");
    cr_assert(o.read_only);
    expect_ok(",,rw,");
    cr_assert_not(o.read_only);
    expect_ok("log=/ends\\");
    assert_str(o.log_path, "/ends\\");
}

Test(options, ignored)
{
    expect_ok(
        "_netdev,nofail,auto,noauto,user,users,defaults,x-systemd.requires=a.service,x-gvfs-hide,"
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
    expect_error("reduce=denser", "off, fast, dense, auto");
    expect_error("ro=1", "no value");
    expect_error("stage_dir=", "stage_dir");
    expect_error("rw,bogus,ro", "bogus");
}

/* As `list` says on top of what was set; finishing names `word`. */
static void expect_unfinished(const char *list, const char *word)
{
    _cleanup_free_ char *error = NULL;
    expect_ok(list);
    assert_i64(options_finish(&o, &error), -EINVAL, "%s", list);
    cr_assert_not_null(strstr(error, word), "%s: '%s' does not say '%s'", list, error, word);
    cr_assert_null(strchr(error, '\n'));
    cr_assert_null(strstr(error, "hunter2"), "a secret is repeated: %s", error);
    options_done(&o);
    options_init(&o);
}

static void expect_finished(const char *list)
{
    char *error = NULL;
    expect_ok(list);
    assert_i64(options_finish(&o, &error), 0, "%s: %s", list, error);
}

Test(options, relative_stage_is_refused)
{
    expect_unfinished("stage_dir=shm", "stage_dir");
}

Test(options, defaults_of_a_remote)
{
    cr_assert_null(o.remote.address);
    cr_assert_null(o.remote.endpoint_url);
    assert_u64(o.remote.addressing, 0);
    assert_u64(o.remote.checksum, 0);
    assert_u64(o.remote.connections, 32);
    assert_u64(o.remote.upload_threads, 4);
    assert_u64(o.remote.fetch_threads, 16);
    assert_u64(o.remote.upload_limit, 0);
    assert_i64(o.remote.timeout_ns, 60000000000);
    assert_i64(o.remote.lease_ns, 60000000000);
    assert_i64(o.remote.gc_grace_ns, 3600000000000);
    assert_i64(o.remote.follow_ns, 10000000000);
    cr_assert(!o.remote.takeover && !o.remote.unfenced && !o.remote.no_sign_request);
}

Test(options, of_a_remote)
{
    expect_finished(
        "remote=s3://bucket/a/b/,endpoint-url=http://"
        "127.0.0.1:8000,region=moon-1,profile=p,addressing=path,"
        "checksum=md5,storage_class=COLD,sse=aws:kms,sse-kms-key-id=k,ca_bundle=/c,connections=8,"
        "remote_timeout=5s,upload_threads=2,upload_limit=10M,lease=1s,gc_grace=5m,follow=250ms,"
        "unfenced,"
        "no-sign-request,fsync=remote");
    assert_str(o.remote.address, "s3://bucket/a/b");
    assert_str(o.remote.endpoint_url, "http://127.0.0.1:8000");
    assert_str(o.remote.region, "moon-1");
    assert_str(o.remote.profile, "p");
    assert_str(o.remote.storage_class, "COLD");
    assert_str(o.remote.sse, "aws:kms");
    assert_str(o.remote.sse_kms_key_id, "k");
    assert_str(o.remote.ca_bundle, "/c");
    assert_u64(o.remote.addressing, S3_ADDRESSING_PATH);
    assert_u64(o.remote.checksum, S3_CHECKSUM_MD5);
    assert_u64(o.remote.connections, 8);
    assert_i64(o.remote.timeout_ns, 5000000000);
    assert_u64(o.remote.upload_threads, 2);
    assert_u64(o.remote.upload_limit, 10 * MIB);
    assert_i64(o.remote.lease_ns, 1000000000);
    assert_i64(o.remote.gc_grace_ns, 300000000000);
    assert_i64(o.remote.follow_ns, 250000000);
    assert_u64(o.fsync, FSYNC_REMOTE);
    cr_assert(o.remote.unfenced && o.remote.no_sign_request && !o.remote.takeover);
}

Test(options, words_of_a_remote_are_those_of_its_tier)
{
    expect_ok("addressing=virtual,checksum=none");
    assert_u64(o.remote.addressing, S3_ADDRESSING_VIRTUAL);
    assert_u64(o.remote.checksum, S3_CHECKSUM_NONE);
    expect_ok("addressing=auto,checksum=crc32");
    assert_u64(o.remote.addressing, S3_ADDRESSING_AUTO);
    assert_u64(o.remote.checksum, S3_CHECKSUM_CRC32);
}

Test(options, wrong_values_of_a_remote)
{
    expect_error("remote=", "remote");
    expect_error("addressing=sideways", "virtual");
    expect_error("checksum=sha1", "crc32");
    expect_error("lease=999ms", "1s");
    expect_error("remote_timeout=0", "remote_timeout");
    expect_error("connections=0", "connections");
    expect_error("upload_threads=0", "1 to 64");
    expect_error("upload_limit=1K", "4K");
    expect_error("takeover=yes", "no value");
}

Test(options, bad_remotes)
{
    static const char *const bad[] = {"ftp://host/x",   "s3:bucket",       "s3://",
                                      "s3:///prefix",   "/a/path",         "s3://b",
                                      "s3://-bucket/x", "s3://a bucket/x", "s3://bucket/a//b",
                                      "dir:",           "dir:/",           "s3://bucket/a\nb",
                                      "file:///x"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        _cleanup_free_ char *list = xasprintf("remote=%s", bad[i]);
        expect_unfinished(list, "option remote");
    }
    expect_unfinished("remote=s3://key:hunter2@bucket/x", "credentials");
    expect_unfinished("remote=s3://bucket/x,endpoint_url=https://key:hunter2@host", "endpoint_url");
    expect_unfinished("remote=s3://bucket/x,ro,takeover", "takeover");
}

Test(options, what_needs_a_remote_says_so)
{
    expect_unfinished("fsync=remote", "no remote is configured");
    expect_unfinished("region=moon-1", "option region: no remote");
    expect_unfinished("ca_bundle=/c", "option ca_bundle: no remote");
    expect_unfinished("takeover", "option takeover: no remote");
    expect_finished("lease=5s");
}

Test(options, remotes_are_shown_alike)
{
    static const char *const pairs[][2] = {{"s3://bucket", "s3://bucket"},
                                           {"s3://bucket///", "s3://bucket"},
                                           {"s3://my.bucket-1/a/b//", "s3://my.bucket-1/a/b"},
                                           {"dir:/nfs/ckpt/", "dir:/nfs/ckpt"},
                                           {"dir://nfs/ckpt", "dir:/nfs/ckpt"}};
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        _cleanup_free_ char *list = xasprintf("remote=%s", pairs[i][0]);
        expect_finished(list);
        assert_str(o.remote.address, pairs[i][1]);
    }
}

Test(options, paths_become_absolute)
{
    assert_i64(chdir("/usr"), 0);
    expect_finished("remote=dir:lib/x,ca_bundle=share/c");
    assert_str(o.remote.address, "dir:/usr/lib/x");
    assert_str(o.remote.ca_bundle, "/usr/share/c");
}

Test(options, addresses_are_taken_apart)
{
    struct remote_address a;
    char *error = NULL;
    assert_i64(remote_address_parse("s3://bucket/a/b", &a, &error), 0);
    assert_u64(a.kind, REMOTE_KIND_S3);
    assert_str(a.bucket, "bucket");
    assert_str(a.prefix, "a/b");
    cr_assert_null(a.path);
    remote_address_done(&a);
    assert_i64(remote_address_parse("s3://bucket", &a, &error), 0);
    assert_str(a.prefix, "");
    remote_address_done(&a);
    assert_i64(remote_address_parse("dir:/x", &a, &error), 0);
    assert_u64(a.kind, REMOTE_KIND_DIR);
    assert_str(a.path, "/x");
    remote_address_done(&a);
}

Test(options, every_one_has_a_group_and_a_unique_name)
{
    for (const struct option_spec *a = option_table; a->name; a++) {
        cr_assert_lt(a->group, GROUP_COUNT);
        for (const struct option_spec *b = a + 1; b->name; b++)
            cr_assert_str_neq(a->name, b->name);
    }
}

/* A machine's files below a directory of our own. */
static char root[] = "/tmp/cairn-options-XXXXXX";

static void put(const char *path, const char *text)
{
    _cleanup_free_ char *whole = xasprintf("%s%s", root, path);
    for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(whole, 0700);
        *slash = '/';
    }
    assert_i64(io_write_file_durable(whole, text, strlen(text)), 0);
}

static void make_machine(void)
{
    cr_assert_not_null(mkdtemp(root));
    put("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");
}

static void drop_machine(void)
{
    remove_tree(root);
}

TestSuite(memory, .init = make_machine, .fini = drop_machine);

Test(memory, of_the_machine)
{
    assert_u64(options_memory_granted_below(root), 8 * GIB);
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    assert_u64(options_memory_granted_below(root), 8 * GIB);
}

Test(memory, of_cgroup_v2_and_its_parents)
{
    put("/proc/self/cgroup", "0::/a.slice/b.scope\n");
    put("/sys/fs/cgroup/a.slice/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n");
    assert_u64(options_memory_granted_below(root), 2 * GIB);
    put("/sys/fs/cgroup/a.slice/b.scope/memory.high", "1073741824\n");
    assert_u64(options_memory_granted_below(root), GIB);
}

Test(memory, of_cgroup_v1)
{
    put("/proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/job\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
    assert_u64(options_memory_granted_below(root), GIB);
}

Test(memory, of_a_container_that_sees_its_host_s_path)
{
    put("/proc/self/cgroup", "4:memory:/docker/0123\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
    assert_u64(options_memory_granted_below(root), 512 * MIB);
}

Test(memory, of_garbage)
{
    put("/proc/self/cgroup", "memory\n::\n4:memory\nx:memory:y\n\n");
    put("/proc/meminfo", "nothing\n");
    assert_u64(options_memory_granted_below(root), GIB);
}
