// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "daemon/options.h"
#include "store/store.h"

#define HOUR_NS (3600 * SECOND_NS)
#define OPTION(text, of_group, of_kind, field)                                                     \
    .name = (text), .group = GROUP_##of_group, .kind = OPTION_##of_kind,                           \
    .offset = offsetof(struct mount_options, field)

static const char *const fsync_words[] = {"nvme", "stage", "remote", NULL};
/* In the order of their enums: reduce (then REDUCE_AUTO), history_mode, successor_mode,
 * s3_addressing, s3_checksum. */
static const char *const reduce_words[] = {"off", "fast", "dense", "auto", NULL};
static const char *const history_words[] = {"on", "off", NULL};
static const char *const successor_words[] = {"auto", "on", "off", NULL};
static const char *const addressing_words[] = {"auto", "path", "virtual", NULL};
static const char *const checksum_words[] = {"auto", "crc32", "md5", "none", NULL};

/* clang-format off */
const struct option_spec option_table[] = {
    {OPTION("stage_dir", TIERS, PATH, stage_dir), .min = 1, .max = 4000, .fallback = "/dev/shm",
     .help = "directory of the stage: a tmpfs that outlives the daemon, such as one with "
             "huge pages"},
    {OPTION("stage", TIERS, SIZE, stage_bytes), .min = STAGE_SIZE_MIN, .max = 1ull << 46,
     .fallback = "0",
     .help = "size of the stage, the memory for data not yet on NVMe; 0: a quarter of what "
             "machine and cgroup allow. Give it the checkpoint of this node, such as 16G: if "
             "it is smaller, writers wait for the disk"},
    {OPTION("nvme", TIERS, SIZE, nvme_bytes), .min = 100 * MIB, .max = 1ull << 56, .fallback = "0",
     .help = "maximum size of the store on its disk; 0: the size of the disk. Give it to "
             "leave room for others, such as 500G: if it is full and nothing can be evicted, "
             "writes fail with ENOSPC"},
    {OPTION("cache_size", TIERS, SIZE, nvme_bytes), .min = 100 * MIB, .max = 1ull << 56,
     .alias_of = "nvme", .help = "the same as nvme"},
    {OPTION("fsync", TIERS, ENUM, fsync), .fallback = "nvme", .words = fsync_words,
     .help = "the tier that fsync waits for. With stage it returns at once, for programs "
             "that fsync often, and power loss may lose data that was fsynced; with remote "
             "it survives the node, and waits for the upload"},
    {OPTION("writeback_threads", TIERS, COUNT, writeback_threads), .min = 1,
     .max = STORE_WRITEBACK_THREADS_MAX, .fallback = "2",
     .help = "number of threads that write data from the stage to NVMe"},
    {OPTION("writeback_limit", TIERS, SIZE, writeback_limit), .min = 4 * KIB, .max = 1ull << 46,
     .fallback = "0",
     .help = "bytes per second that these may write, such as 500M on a disk that others use; "
             "lifted while an fsync, wait or umount waits; 0: no limit. If saves are faster, "
             "the stage fills and writers wait"},
    {OPTION("writeback_delay", TIERS, DURATION, writeback_delay_ns), .max = HOUR_NS,
     .fallback = "1s",
     .help = "time that data may stay in the stage before it is written; data deleted sooner "
             "is never written. A longer time, such as 10s, spares the disk files that live "
             "shortly, and power loss loses as much more"},
    {OPTION("reduce", TIERS, ENUM, reduce), .fallback = "auto", .words = reduce_words,
     .help = "reduction of chunks: fast (tensors and text, each chunk by itself), dense "
             "(besides, in the remote and in old files, tensors by others), or off (stored as "
             "they are); auto: dense with a remote, else fast. If half of a remote's packs are "
             "lost, 26 % of small checkpoints stay whole with fast, 2 to 29 % with dense"},
    {OPTION("reduce_after", TIERS, DURATION, reduce_after_ns), .max = 8760 * HOUR_NS,
     .fallback = "10m",
     .help = "with reduce=dense: age of a file, as against the newest of its series, from which "
             "on it is made dense on NVMe, too"},
    {OPTION("keep", TIERS, STRING, keep), .min = 1, .max = 100,
     .help = "snapshots that stay: the newest ones, and the newest of so many hours, days and "
             "weeks, such as last:10,hourly:24,daily:7,weekly:4. With a remote they are states of "
             "it that stay for longer than gc_grace; without it, as the mount before said. Without "
             "a remote they are taken in the store; without keep none are. none: none stay"},
    {OPTION("history_every", TIERS, DURATION, history_every_ns), .min = 100 * MS_NS,
     .max = 8760 * HOUR_NS, .fallback = "1m",
     .help = "with keep, without a remote: least time from one snapshot to the next; one is taken "
             "only if something changed"},
    {OPTION("history_space", TIERS, SIZE, history_space), .min = MIB, .max = 1ull << 56,
     .fallback = "0",
     .help = "without a remote: bytes on NVMe that snapshots alone may need; the oldest without a "
             "name go first. All go, those with a name last, before a writer gets ENOSPC. 0: a "
             "tenth of nvme"},
    {OPTION("history", TIERS, ENUM, history), .fallback = "on", .words = history_words,
     .help = "whether MOUNTPOINT/.history has the snapshots, each as a read-only directory"},
    {OPTION("remote", REMOTE, STRING, remote.address), .min = 1, .max = 1000,
     .help = "remote that everything is uploaded to: s3://BUCKET/PREFIX, or dir:/PATH on a "
             "shared filesystem"},
    {OPTION("endpoint_url", REMOTE, STRING, remote.endpoint_url), .min = 1, .max = 1000,
     .help = "address of an S3 that is not AWS (else AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the "
             "profile)"},
    {OPTION("region", REMOTE, STRING, remote.region), .min = 1, .max = 100,
     .help = "region of the bucket (else AWS_REGION, AWS_DEFAULT_REGION, the profile, us-east-1)"},
    {OPTION("profile", REMOTE, STRING, remote.profile), .min = 1, .max = 200,
     .help = "section of ~/.aws/config and ~/.aws/credentials (else AWS_PROFILE, default)"},
    {OPTION("no_sign_request", REMOTE, SET, remote.no_sign_request),
     .help = "use no credentials (public buckets, with ro)"},
    {OPTION("addressing", REMOTE, ENUM, remote.addressing), .fallback = "auto",
     .words = addressing_words,
     .help = "place of the bucket name in a URL: the path, or the host name (virtual)"},
    {OPTION("checksum", REMOTE, ENUM, remote.checksum), .fallback = "auto", .words = checksum_words,
     .help = "checksum that the server verifies uploads with"},
    {OPTION("storage_class", REMOTE, STRING, remote.storage_class), .min = 1, .max = 100,
     .help = "storage class of the objects"},
    {OPTION("sse", REMOTE, STRING, remote.sse), .min = 1, .max = 100,
     .help = "encryption by the server: AES256 or aws:kms"},
    {OPTION("sse_kms_key_id", REMOTE, STRING, remote.sse_kms_key_id), .min = 1, .max = 1000,
     .help = "key of sse=aws:kms"},
    {OPTION("ca_bundle", REMOTE, PATH, remote.ca_bundle), .min = 1, .max = 4000,
     .help = "file with the certificates to trust (else AWS_CA_BUNDLE, the system's)"},
    {OPTION("connections", REMOTE, COUNT, remote.connections), .min = 1, .max = 512,
     .fallback = "32",
     .help = "maximum number of connections. Fewer, such as 4, on a slow line: each must "
             "move 1 KiB a second"},
    {OPTION("remote_timeout", REMOTE, DURATION, remote.timeout_ns), .min = SECOND_NS,
     .max = 24 * HOUR_NS, .fallback = "60s",
     .help = "time that one call keeps retrying, and then fails with EIO; uploads are "
             "retried for ever"},
    {OPTION("upload_threads", REMOTE, COUNT, remote.upload_threads), .min = 1, .max = 64,
     .fallback = "4",
     .help = "number of packs uploaded in parallel; each takes 31 MiB of memory"},
    {OPTION("fetch_threads", REMOTE, COUNT, remote.fetch_threads), .min = 1, .max = 64,
     .fallback = "16",
     .help = "number of ranges of up to 8 MiB fetched in parallel, ahead of readers; each "
             "takes as much memory"},
    {OPTION("upload_limit", REMOTE, SIZE, remote.upload_limit), .min = 4 * KIB, .max = 1ull << 46,
     .fallback = "0",
     .help = "bytes per second that may be uploaded, such as 100M to leave the network to "
             "the training; lifted while a call waits for the remote; 0: no limit. If saves "
             "are faster, the remote falls behind"},
    {OPTION("lease", REMOTE, DURATION, remote.lease_ns), .min = SECOND_NS, .max = 24 * HOUR_NS,
     .fallback = "60s",
     .help = "time after which a writer that did not renew its lease may be replaced by "
             "another mount; the same on all machines. A longer one, such as 5m, bears "
             "longer outages and costs fewer requests, and another machine waits as long "
             "after a death"},
    {OPTION("nodes", REMOTE, SET, remote.nodes),
     .help = "this mount is one of several nodes that write the remote together"},
    {OPTION("convert", REMOTE, SET, remote.converts),
     .help = "with nodes, for an empty STORE: make a remote that one mount wrote, and that is "
             "unmounted, one of several nodes; its files are this node's"},
    {OPTION("replaces", REMOTE, COUNT, remote.replaces), .min = 16, .max = UINT32_MAX,
     .fallback = "0",
     .help = "with nodes, for an empty STORE: take the place of a node that never comes back, "
             "with the NODE that 'cairn nodes' shows: what it wrote is this node's from then on"},
    {OPTION("clock_error", REMOTE, DURATION, remote.clock_error_ns), .min = MS_NS,
     .max = 250 * MS_NS,
     .help = "with nodes: how far the clock of this machine may be off, where no time daemon sets "
             "it and the remote does not tell the time; or where the daemon is wrong about that"},
    {OPTION("takeover", REMOTE, SET, remote.takeover),
     .help = "replace the writer that holds the remote, even if it is alive; its unpublished "
             "data stays on its node. A second node that writes needs a prefix of its own "
             "instead"},
    {OPTION("rollback", REMOTE, SET, remote.rollback),
     .help = "if the newest published state is damaged in the remote, go on from the newest one "
             "that is whole, and give up what came later; with ro, and without a mount, that one "
             "is shown anyway"},
    {OPTION("unfenced", REMOTE, SET, remote.unfenced),
     .help = "use a bucket that cannot detect a second writer; you have to ensure that there is "
             "only one"},
    {OPTION("gc_grace", REMOTE, DURATION, remote.gc_grace_ns), .max = 8760 * HOUR_NS,
     .fallback = "1h",
     .help = "time that unreferenced objects are kept, for readers that lag behind and for "
             "undelete. It must be longer than a restore takes, or reads fail; a longer one, "
             "such as 24h, costs the bytes of deleted files"},
    {OPTION("rollback_keep", REMOTE, DURATION, remote.rollback_keep_ns), .max = 8760 * HOUR_NS,
     .fallback = "336h",
     .help = "time that the heads which rollback gave up are kept, with all that they name"},
    {OPTION("follow", REMOTE, DURATION, remote.follow_ns), .max = 24 * HOUR_NS, .fallback = "10s",
     .help = "with ro: interval of looking for newly published states; 0: never. A shorter "
             "one costs more requests"},
    {OPTION("at", REMOTE, STRING, remote.at), .min = 1, .max = 100,
     .help = "with ro: show the newest state that is not later than this, and follow none: a "
             "head's number, a snapshot's name, a time such as 2026-11-28T20:59:08Z, or how long "
             "ago, such as 2h; of a remote it needs a STORE of its own; without one it is a "
             "snapshot of STORE"},
    {OPTION("entry_timeout", ACCESS, DURATION, entry_timeout_ns), .max = 24 * HOUR_NS,
     .fallback = "1h", .help = "time that the kernel may cache names"},
    {OPTION("attr_timeout", ACCESS, DURATION, attr_timeout_ns), .max = 24 * HOUR_NS,
     .fallback = "1h", .help = "time that the kernel may cache attributes"},
    {OPTION("threads", ACCESS, COUNT, threads), .min = 1, .max = 256, .fallback = "0",
     .help = "number of threads that receive requests; 0: chosen by the number of cores"},
    {OPTION("log", DAEMON, PATH, log_path), .min = 1, .max = 4000,
     .help = "log file (else STORE/log); with -f, lines go to standard error, too"},
    {OPTION("log_level", DAEMON, ENUM, log_level), .fallback = "info", .words = log_level_words,
     .help = "lowest level that is logged"},
    {OPTION("metrics", DAEMON, STRING, metrics), .min = 1, .max = 100,
     .help = "ADDRESS:PORT that serves /metrics and /healthz over HTTP, such as "
             "127.0.0.1:9464 or [::1]:9464. There is no password: who reaches it reads "
             "figures and paths"},
    {OPTION("successor", DAEMON, ENUM, successor), .fallback = "auto", .words = successor_words,
     .help = "whether a successor takes over the mount when the daemon dies; auto: on in the "
             "background. Without one, programs get errors until the next mount"},
    {OPTION("crash_window", DAEMON, DURATION, crash_window_ns), .max = HOUR_NS, .fallback = "10s",
     .help = "a daemon that dies sooner has died quickly; after six in a row the mount is given "
             "up; 0: never"},
    {OPTION("fuse_minor", DAEMON, COUNT, fuse_minor), .min = 37, .max = 1000, .fallback = "0"},
    {OPTION("foreground", DAEMON, SET, foreground), .help = "run in the foreground (also -f)"},
    {OPTION("allow_other", ACCESS, SET, allow_other),
     .help = "let other users in, as permissions allow (default for root)"},
    {OPTION("noallow_other", ACCESS, CLEAR, allow_other),
     .help = "let in only the user who mounts (default for others)"},
    {OPTION("ro", ACCESS, SET, read_only), .help = "mount read-only"},
    {OPTION("rw", ACCESS, CLEAR, read_only), .help = "mount writable (default)"},
    {OPTION("suid", ACCESS, CLEAR, nosuid), .help = "honour set-user-ID bits (root only)"},
    {OPTION("nosuid", ACCESS, SET, nosuid), .help = "ignore set-user-ID bits (default)"},
    {OPTION("dev", ACCESS, CLEAR, nodev), .help = "honour device files (root only)"},
    {OPTION("nodev", ACCESS, SET, nodev), .help = "ignore device files (default)"},
    {OPTION("exec", ACCESS, CLEAR, noexec), .help = "allow execution of programs (default)"},
    {OPTION("noexec", ACCESS, SET, noexec), .help = "forbid execution of programs"},
    {OPTION("noatime", ACCESS, SET, noatime), .help = "do not update access times"},
    {OPTION("relatime", ACCESS, CLEAR, noatime),
     .help = "update access times as Linux does (default)"},
    {OPTION("atime", ACCESS, CLEAR, noatime)},
    {OPTION("remount", ACCESS, SET, remount)},
    {OPTION("default_permissions", ACCESS, SET, default_permissions)},
    {OPTION("fsname", ACCESS, STRING, fsname), .max = 4000},
    {OPTION("subtype", ACCESS, STRING, subtype), .max = 4000},
    {0},
};
/* clang-format on */

const char *const option_group_titles[GROUP_COUNT] = {[GROUP_TIERS] = "Stage and NVMe",
                                                      [GROUP_REMOTE] = "Remote",
                                                      [GROUP_ACCESS] = "Files, users, kernel",
                                                      [GROUP_DAEMON] = "The daemon"};
