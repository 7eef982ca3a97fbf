// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "daemon/options.h"
#include "store/store.h"

#define HOUR_NS (3600 * SECOND_NS)
#define FIELD(f) offsetof(struct mount_options, f)
#define REMOTE(f) FIELD(remote.f)

static const char *const fsync_words[] = {"nvme", "stage", "remote", NULL};
/* In the order of their enums: reduce (then REDUCE_AUTO), successor_mode, s3_addressing,
 * s3_checksum. */
static const char *const reduce_words[] = {"off", "fast", "dense", "auto", NULL};
static const char *const successor_words[] = {"auto", "on", "off", NULL};
static const char *const addressing_words[] = {"auto", "path", "virtual", NULL};
static const char *const checksum_words[] = {"auto", "crc32", "md5", "none", NULL};

/* clang-format off */
const struct option_spec option_table[] = {
    {.name = "stage_dir", .group = GROUP_TIERS, .kind = OPTION_PATH, .offset = FIELD(stage_dir),
     .min = 1, .max = 4000, .fallback = "/dev/shm",
     .help = "directory of the stage: a tmpfs that outlives the daemon"},
    {.name = "stage", .group = GROUP_TIERS, .kind = OPTION_SIZE, .offset = FIELD(stage_bytes),
     .min = STAGE_SIZE_MIN, .max = 1ull << 46, .fallback = "0",
     .help = "size of the stage, the memory for data not yet on NVMe; 0: a quarter of what "
             "machine and cgroup allow"},
    {.name = "nvme", .group = GROUP_TIERS, .kind = OPTION_SIZE, .offset = FIELD(nvme_bytes),
     .min = 100 * MIB, .max = 1ull << 56, .fallback = "0",
     .help = "maximum size of the store on its disk; 0: the size of the disk"},
    {.name = "cache_size", .group = GROUP_TIERS, .kind = OPTION_SIZE, .offset = FIELD(nvme_bytes),
     .min = 100 * MIB, .max = 1ull << 56, .alias_of = "nvme",
     .help = "the same as nvme"},
    {.name = "fsync", .group = GROUP_TIERS, .kind = OPTION_ENUM, .offset = FIELD(fsync),
     .fallback = "nvme", .words = fsync_words,
     .help = "the tier that fsync waits for; with stage, power loss may lose data that was "
             "fsynced"},
    {.name = "writeback_threads", .group = GROUP_TIERS, .kind = OPTION_COUNT,
     .offset = FIELD(writeback_threads), .min = 1, .max = STORE_WRITEBACK_THREADS_MAX,
     .fallback = "2",
     .help = "number of threads that write data from the stage to NVMe"},
    {.name = "writeback_limit", .group = GROUP_TIERS, .kind = OPTION_SIZE,
     .offset = FIELD(writeback_limit), .min = 4 * KIB, .max = 1ull << 46, .fallback = "0",
     .help = "bytes per second that these may write; lifted while an fsync, wait or umount "
             "waits; 0: no limit"},
    {.name = "writeback_delay", .group = GROUP_TIERS, .kind = OPTION_DURATION,
     .offset = FIELD(writeback_delay_ns), .max = HOUR_NS, .fallback = "1s",
     .help = "time that data may stay in the stage before it is written; data deleted sooner is "
             "never written"},
    {.name = "reduce", .group = GROUP_TIERS, .kind = OPTION_ENUM, .offset = FIELD(reduce),
     .fallback = "auto", .words = reduce_words,
     .help = "reduction of chunks: fast (tensors and text, each chunk by itself), dense "
             "(besides, in the remote and in old files, tensors by others), or off (stored as "
             "they are); auto: dense with a remote, else fast. If half of a remote's packs are "
             "lost, 26 % of small checkpoints stay whole with fast, 11 to 26 % with dense"},
    {.name = "reduce_after", .group = GROUP_TIERS, .kind = OPTION_DURATION,
     .offset = FIELD(reduce_after_ns), .max = 8760 * HOUR_NS, .fallback = "10m",
     .help = "with reduce=dense: age of a file, as against the newest of its series, from which "
             "on it is made dense on NVMe, too"},
    {.name = "remote", .group = GROUP_REMOTE, .kind = OPTION_STRING, .offset = REMOTE(address),
     .min = 1, .max = 1000,
     .help = "remote that everything is uploaded to: s3://BUCKET/PREFIX, or dir:/PATH on a "
             "shared filesystem"},
    {.name = "endpoint_url", .group = GROUP_REMOTE, .kind = OPTION_STRING,
     .offset = REMOTE(endpoint_url), .min = 1, .max = 1000,
     .help = "address of an S3 that is not AWS (else AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the "
             "profile)"},
    {.name = "region", .group = GROUP_REMOTE, .kind = OPTION_STRING, .offset = REMOTE(region),
     .min = 1, .max = 100,
     .help = "region of the bucket (else AWS_REGION, AWS_DEFAULT_REGION, the profile, us-east-1)"},
    {.name = "profile", .group = GROUP_REMOTE, .kind = OPTION_STRING, .offset = REMOTE(profile),
     .min = 1, .max = 200,
     .help = "section of ~/.aws/config and ~/.aws/credentials (else AWS_PROFILE, default)"},
    {.name = "no_sign_request", .group = GROUP_REMOTE, .kind = OPTION_SET,
     .offset = REMOTE(no_sign_request),
     .help = "use no credentials (public buckets, with ro)"},
    {.name = "addressing", .group = GROUP_REMOTE, .kind = OPTION_ENUM, .offset = REMOTE(addressing),
     .fallback = "auto", .words = addressing_words,
     .help = "place of the bucket name in a URL: the path, or the host name (virtual)"},
    {.name = "checksum", .group = GROUP_REMOTE, .kind = OPTION_ENUM, .offset = REMOTE(checksum),
     .fallback = "auto", .words = checksum_words,
     .help = "checksum that the server verifies uploads with"},
    {.name = "storage_class", .group = GROUP_REMOTE, .kind = OPTION_STRING,
     .offset = REMOTE(storage_class), .min = 1, .max = 100,
     .help = "storage class of the objects"},
    {.name = "sse", .group = GROUP_REMOTE, .kind = OPTION_STRING, .offset = REMOTE(sse), .min = 1,
     .max = 100,
     .help = "encryption by the server: AES256 or aws:kms"},
    {.name = "sse_kms_key_id", .group = GROUP_REMOTE, .kind = OPTION_STRING,
     .offset = REMOTE(sse_kms_key_id), .min = 1, .max = 1000,
     .help = "key of sse=aws:kms"},
    {.name = "ca_bundle", .group = GROUP_REMOTE, .kind = OPTION_PATH, .offset = REMOTE(ca_bundle),
     .min = 1, .max = 4000,
     .help = "file with the certificates to trust (else AWS_CA_BUNDLE, the system's)"},
    {.name = "connections", .group = GROUP_REMOTE, .kind = OPTION_COUNT,
     .offset = REMOTE(connections), .min = 1, .max = 512, .fallback = "32",
     .help = "maximum number of connections"},
    {.name = "remote_timeout", .group = GROUP_REMOTE, .kind = OPTION_DURATION,
     .offset = REMOTE(timeout_ns), .min = SECOND_NS, .max = 24 * HOUR_NS, .fallback = "60s",
     .help = "time that one call keeps retrying; uploads are retried for ever"},
    {.name = "upload_threads", .group = GROUP_REMOTE, .kind = OPTION_COUNT,
     .offset = REMOTE(upload_threads), .min = 1, .max = 64, .fallback = "4",
     .help = "number of packs uploaded in parallel"},
    {.name = "fetch_threads", .group = GROUP_REMOTE, .kind = OPTION_COUNT,
     .offset = REMOTE(fetch_threads), .min = 1, .max = 64, .fallback = "16",
     .help = "number of ranges of up to 8 MiB fetched in parallel, ahead of readers"},
    {.name = "upload_limit", .group = GROUP_REMOTE, .kind = OPTION_SIZE,
     .offset = REMOTE(upload_limit), .min = 4 * KIB, .max = 1ull << 46, .fallback = "0",
     .help = "bytes per second that may be uploaded; lifted while a call waits for the remote; "
             "0: no limit"},
    {.name = "lease", .group = GROUP_REMOTE, .kind = OPTION_DURATION, .offset = REMOTE(lease_ns),
     .min = SECOND_NS, .max = 24 * HOUR_NS, .fallback = "60s",
     .help = "time after which a writer that did not renew its lease may be replaced by another "
             "mount"},
    {.name = "takeover", .group = GROUP_REMOTE, .kind = OPTION_SET, .offset = REMOTE(takeover),
     .help = "replace the writer that holds the remote, even if it is alive; its unpublished "
             "data stays on its node. A second node that writes needs a prefix of its own instead"},
    {.name = "rollback", .group = GROUP_REMOTE, .kind = OPTION_SET, .offset = REMOTE(rollback),
     .help = "if the newest published state is damaged in the remote, go on from the newest one "
             "that is whole, and give up what came later; with ro, and without a mount, that one "
             "is shown anyway"},
    {.name = "unfenced", .group = GROUP_REMOTE, .kind = OPTION_SET, .offset = REMOTE(unfenced),
     .help = "use a bucket that cannot detect a second writer; you have to ensure that there is "
             "only one"},
    {.name = "gc_grace", .group = GROUP_REMOTE, .kind = OPTION_DURATION,
     .offset = REMOTE(gc_grace_ns), .max = 8760 * HOUR_NS, .fallback = "1h",
     .help = "time that unreferenced objects are kept, for readers that lag behind"},
    {.name = "rollback_keep", .group = GROUP_REMOTE, .kind = OPTION_DURATION,
     .offset = REMOTE(rollback_keep_ns), .max = 8760 * HOUR_NS, .fallback = "336h",
     .help = "time that the heads which rollback gave up are kept, with all that they name"},
    {.name = "follow", .group = GROUP_REMOTE, .kind = OPTION_DURATION, .offset = REMOTE(follow_ns),
     .max = 24 * HOUR_NS, .fallback = "10s",
     .help = "with ro: interval of looking for newly published states; 0: never"},
    {.name = "entry_timeout", .group = GROUP_ACCESS, .kind = OPTION_DURATION,
     .offset = FIELD(entry_timeout_ns), .max = 24 * HOUR_NS, .fallback = "1h",
     .help = "time that the kernel may cache names"},
    {.name = "attr_timeout", .group = GROUP_ACCESS, .kind = OPTION_DURATION,
     .offset = FIELD(attr_timeout_ns), .max = 24 * HOUR_NS, .fallback = "1h",
     .help = "time that the kernel may cache attributes"},
    {.name = "threads", .group = GROUP_ACCESS, .kind = OPTION_COUNT, .offset = FIELD(threads),
     .min = 1, .max = 256, .fallback = "0",
     .help = "number of threads that receive requests; 0: chosen by the number of cores"},
    {.name = "log", .group = GROUP_DAEMON, .kind = OPTION_PATH, .offset = FIELD(log_path), .min = 1,
     .max = 4000,
     .help = "log file (else STORE/log); with -f, lines go to standard error, too"},
    {.name = "log_level", .group = GROUP_DAEMON, .kind = OPTION_ENUM, .offset = FIELD(log_level),
     .fallback = "info", .words = log_level_words,
     .help = "lowest level that is logged"},
    {.name = "metrics", .group = GROUP_DAEMON, .kind = OPTION_STRING, .offset = FIELD(metrics),
     .min = 1, .max = 100,
     .help = "ADDRESS:PORT that serves /metrics and /healthz over HTTP, such as 127.0.0.1:9464 "
             "or [::1]:9464"},
    {.name = "successor", .group = GROUP_DAEMON, .kind = OPTION_ENUM, .offset = FIELD(successor),
     .fallback = "auto", .words = successor_words,
     .help = "whether a successor takes over the mount when the daemon dies; auto: on in the "
             "background"},
    {.name = "crash_window", .group = GROUP_DAEMON, .kind = OPTION_DURATION,
     .offset = FIELD(crash_window_ns), .max = HOUR_NS, .fallback = "10s",
     .help = "a daemon that dies sooner has died quickly; after six in a row the mount is given "
             "up; 0: never"},
    {.name = "no_resend", .group = GROUP_DAEMON, .kind = OPTION_SET, .offset = FIELD(no_resend)},
    {.name = "foreground", .group = GROUP_DAEMON, .kind = OPTION_SET, .offset = FIELD(foreground),
     .help = "run in the foreground (also -f)"},
    {.name = "allow_other", .group = GROUP_ACCESS, .kind = OPTION_SET, .offset = FIELD(allow_other),
     .help = "let other users in, as permissions allow (default for root)"},
    {.name = "noallow_other", .group = GROUP_ACCESS, .kind = OPTION_CLEAR,
     .offset = FIELD(allow_other),
     .help = "let in only the user who mounts (default for others)"},
    {.name = "ro", .group = GROUP_ACCESS, .kind = OPTION_SET, .offset = FIELD(read_only),
     .help = "mount read-only"},
    {.name = "rw", .group = GROUP_ACCESS, .kind = OPTION_CLEAR, .offset = FIELD(read_only),
     .help = "mount writable (default)"},
    {.name = "suid", .group = GROUP_ACCESS, .kind = OPTION_CLEAR, .offset = FIELD(nosuid),
     .help = "honour set-user-ID bits (root only)"},
    {.name = "nosuid", .group = GROUP_ACCESS, .kind = OPTION_SET, .offset = FIELD(nosuid),
     .help = "ignore set-user-ID bits (default)"},
    {.name = "dev", .group = GROUP_ACCESS, .kind = OPTION_CLEAR, .offset = FIELD(nodev),
     .help = "honour device files (root only)"},
    {.name = "nodev", .group = GROUP_ACCESS, .kind = OPTION_SET, .offset = FIELD(nodev),
     .help = "ignore device files (default)"},
    {.name = "exec", .group = GROUP_ACCESS, .kind = OPTION_CLEAR, .offset = FIELD(noexec),
     .help = "allow execution of programs (default)"},
    {.name = "noexec", .group = GROUP_ACCESS, .kind = OPTION_SET, .offset = FIELD(noexec),
     .help = "forbid execution of programs"},
    {.name = "noatime", .group = GROUP_ACCESS, .kind = OPTION_SET, .offset = FIELD(noatime),
     .help = "do not update access times"},
    {.name = "relatime", .group = GROUP_ACCESS, .kind = OPTION_CLEAR, .offset = FIELD(noatime),
     .help = "update access times as Linux does (default)"},
    {.name = "atime", .group = GROUP_ACCESS, .kind = OPTION_CLEAR, .offset = FIELD(noatime)},
    {.name = "remount", .group = GROUP_ACCESS, .kind = OPTION_SET, .offset = FIELD(remount)},
    {.name = "default_permissions", .group = GROUP_ACCESS, .kind = OPTION_SET,
     .offset = FIELD(default_permissions)},
    {.name = "fsname", .group = GROUP_ACCESS, .kind = OPTION_STRING, .offset = FIELD(fsname),
     .max = 4000},
    {.name = "subtype", .group = GROUP_ACCESS, .kind = OPTION_STRING, .offset = FIELD(subtype),
     .max = 4000},
    {0},
};
/* clang-format on */

const char *const option_group_titles[GROUP_COUNT] = {[GROUP_TIERS] = "Stage and NVMe",
                                                      [GROUP_REMOTE] = "Remote",
                                                      [GROUP_ACCESS] = "Files, users, kernel",
                                                      [GROUP_DAEMON] = "The daemon"};
