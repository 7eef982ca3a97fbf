// SPDX-License-Identifier: Apache-2.0
/* Options of a mount: one table serves the flags of `cairn mount`, the lists of -o (and so fstab)
 * and the help text. Not thread-safe: used at start only. */
#pragma once

#include "base/base.h"
#include "base/log.h"
#include "codec/encode.h"

enum history_mode { HISTORY_ON, HISTORY_OFF };
enum successor_mode { SUCCESSOR_AUTO, SUCCESSOR_ON, SUCCESSOR_OFF };

enum fsync_level { FSYNC_NVME, FSYNC_STAGE, FSYNC_REMOTE };

#define REDUCE_AUTO (REDUCE_DENSE + 1u) /* dense with a remote, without one fast */

struct remote_mount_options {
    char *address; /* NULL: none; after options_finish() as remote_address prints it */
    char *at;      /* WHEN (daemon/when.h); NULL: the newest state. After options_finish() no age */
    char *endpoint_url, *region, *profile, *storage_class, *sse, *sse_kms_key_id, *ca_bundle;
    uint64_t addressing, checksum; /* enum s3_addressing, enum s3_checksum (tier/tier.h) */
    uint64_t connections;
    uint64_t upload_threads, fetch_threads;
    uint64_t replaces;     /* the number of a node; 0: none */
    uint64_t upload_limit; /* bytes a second; 0: none */
    int64_t timeout_ns, clock_error_ns, lease_ns, gc_grace_ns, rollback_keep_ns, follow_ns;
    bool nodes, converts, takeover, rollback, unfenced, no_sign_request;
};

struct mount_options {
    char *stage_dir;
    uint64_t stage_bytes;     /* 0 until options_finish() has chosen */
    uint64_t nvme_bytes;      /* limit of the store; 0: as much as the disk has */
    uint64_t writeback_limit; /* bytes a second; 0: no limit */
    uint64_t writeback_threads;
    uint64_t threads;       /* that receive FUSE requests; 0: chosen by the service */
    uint64_t fsync;         /* enum fsync_level */
    uint64_t history;       /* enum history_mode */
    char *keep;             /* text for keep_parse(); NULL: not given */
    uint64_t history_space; /* limit without a remote; 0: a tenth of NVMe */
    int64_t history_every_ns;
    uint64_t successor;      /* enum successor_mode */
    int64_t crash_window_ns; /* daemons that served for less count as quick deaths */
    uint64_t fuse_minor;     /* front_options.fuse_minor */
    uint64_t log_level;
    int64_t writeback_delay_ns;
    uint64_t reduce; /* enum reduce (codec/encode.h), or REDUCE_AUTO until options_finish() */
    int64_t reduce_after_ns;
    int64_t entry_timeout_ns;
    int64_t attr_timeout_ns;
    char *log_path; /* NULL: STORE/log */
    char *metrics;  /* "ADDRESS:PORT" to serve metrics at; NULL: not served */
    bool foreground;
    bool allow_other;
    bool default_permissions; /* always on: the kernel enforces permissions */
    bool read_only;
    bool nosuid, nodev, noexec, noatime;
    bool remount; /* from mount(8): change the existing mount */
    struct remote_mount_options remote;
    /* accepted for fstab and ignored: the source of a mount is always its store */
    char *fsname, *subtype;
    uint64_t memory_granted; /* by machine and cgroup; set by options_finish() */
};

/* The order of the help text. */
enum option_group { GROUP_TIERS, GROUP_REMOTE, GROUP_ACCESS, GROUP_DAEMON, GROUP_COUNT };

enum option_kind {
    OPTION_SIZE,     /* 512M, 4G, 1T: binary; uint64_t */
    OPTION_DURATION, /* 250ms, 10s, 5m, 1h, 1.5 (seconds); int64_t ns */
    OPTION_COUNT,    /* uint64_t */
    OPTION_SET,      /* flag that sets a bool */
    OPTION_CLEAR,    /* flag that clears a bool */
    OPTION_STRING,   /* char * */
    OPTION_PATH,     /* char * */
    OPTION_ENUM,     /* index in `words`; uint64_t */
};

struct option_spec {
    const char *name; /* with '_'; '-' is the same */
    enum option_group group;
    enum option_kind kind;
    size_t offset; /* in struct mount_options */
    /* inclusive; sizes in bytes, durations in ns. 0 is accepted if the default is 0. */
    uint64_t min, max;
    const char *fallback;     /* default, as text; NULL: zero, or set by options_finish() */
    const char *const *words; /* OPTION_ENUM: ends with NULL */
    const char *alias_of;     /* this spelling is another name for that option */
    const char *help;         /* NULL: understood, but not shown */
};

/* Ends with an entry without a name. */
extern const struct option_spec option_table[];

extern const char *const option_group_titles[GROUP_COUNT];

/* Returns the default as help shows it; NULL: none worth showing. */
const char *option_shown_default(const struct option_spec *spec);

/* Returns the name of the option's value in help texts: "SIZE", "TIME", ...; NULL if it takes
 * none. */
const char *option_value_kind(const struct option_spec *spec);

void options_init(struct mount_options *o);
void options_done(struct mount_options *o);

/* Sets one option. `value` is NULL if none was given. -EINVAL with *ret_error, one line to be
 * freed, that names the option, the error and the remedy. */
CAIRN_MUST_CHECK int options_set(struct mount_options *o, const char *name, const char *value,
                                 char **ret_error);

/* Sets all options of a list in the form of -o: name[=value],... ; "\," is a comma in a value, "\\"
 * a backslash. With `sloppy` (-s of mount(8)) unknown options are ignored. */
CAIRN_MUST_CHECK int options_set_list(struct mount_options *o, const char *list, bool sloppy,
                                      char **ret_error);

/* Checks combinations of options and chooses defaults that depend on the machine. */
CAIRN_MUST_CHECK int options_finish(struct mount_options *o, char **ret_error);

/* Returns the options that differ from those of options_init(), as a list for options_set_list();
 * caller frees. After options_finish() nothing in it depends on the working directory, nor on the
 * memory of the machine. */
char *options_print(const struct mount_options *o);

/* Returns the path of the log of a mount of `store`; caller frees. */
char *options_log_path(const struct mount_options *o, const char *store);

/* Parse sizes, durations and numbers of up to 9 digits, as everywhere in `cairn`. -EINVAL for
 * anything else. */
CAIRN_MUST_CHECK int parse_size(const char *text, uint64_t *ret_bytes);
CAIRN_MUST_CHECK int parse_duration(const char *text, int64_t *ret_ns);
CAIRN_MUST_CHECK int parse_count(const char *text, uint64_t *ret);

/* Returns the bytes of RAM that machine and cgroups (v1 and v2, with all parents) let this process
 * use. */
uint64_t options_memory_granted(void);
/* Returns the bytes that programs can still allocate without swapping; UINT64_MAX: not known. */
uint64_t options_memory_available(void);

/* As options_memory_granted(), with `root` before every path that is read. For tests. */
uint64_t options_memory_granted_below(const char *root);
