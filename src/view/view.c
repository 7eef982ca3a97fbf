// SPDX-License-Identifier: Apache-2.0
/* Opening and closing. */
#include "view/view.h"

#include <stdatomic.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "view/db.h"

#define MEMTABLE_BYTES (16 * MIB)
#define MEMTABLES 2
#define CACHE_BYTES_MIN (8 * MIB)
#define SMALL_MEMTABLE_BYTES MIB
#define WAL_BYTES_MAX (64 * MIB)
#define OPEN_FILES_MAX 256
/* Disables RocksDB's own log, headers included. It is written through the same file writer that
 * asserts that it is not used after an error, without a check: a line that reported a full disk
 * ended the daemon. Errors are reported by the calls that fail. */
#define INFO_LOG_NOTHING 6
/* Limit of files from sessions that ended before a compaction; each slows down every read. */
#define LEVEL0_FILES_MAX 20u
#define LEVEL0_PATIENCE_MS 30000

/* Index and filter blocks are in the cache too, so that the cache bounds the memory of reads. They
 * are partitioned into a few KiB: the whole filter of a large table exceeds a shard of the cache,
 * and would be read again for each look-up of a chunk. */
static void set_tables(struct view *view, const struct view_options *options)
{
    size_t memtables = MEMTABLES * MEMTABLE_BYTES;
    size_t cache = options->is_small ? options->cache_bytes
                   : options->cache_bytes > memtables + CACHE_BYTES_MIN
                       ? options->cache_bytes - memtables
                       : CACHE_BYTES_MIN;
    view->cache = rocksdb_cache_create_lru(cache);
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(table, view->cache);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
    rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table, 1);
    rocksdb_block_based_options_set_index_type(
        table, rocksdb_block_based_table_index_type_two_level_index_search);
    rocksdb_block_based_options_set_partition_filters(table, 1);
    rocksdb_block_based_options_set_pin_top_level_index_and_filter(table, 1);
    rocksdb_block_based_options_set_filter_policy(table,
                                                  rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_block_based_options_set_format_version(table, 5);
    rocksdb_options_set_block_based_table_factory(view->options, table);
    rocksdb_block_based_options_destroy(table);
}

static void set_view_options(struct view *view, const struct view_options *options)
{
    rocksdb_options_t *o = view->options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(o, options->create);
    rocksdb_options_set_paranoid_checks(o, 1);
    rocksdb_options_set_write_buffer_size(o, options->is_small ? SMALL_MEMTABLE_BYTES
                                                               : MEMTABLE_BYTES);
    rocksdb_options_set_max_write_buffer_number(o, MEMTABLES);
    rocksdb_options_set_max_total_wal_size(o, WAL_BYTES_MAX);
    rocksdb_options_set_max_open_files(o, OPEN_FILES_MAX);
    rocksdb_options_set_compression(o, rocksdb_lz4_compression);
    rocksdb_options_set_max_background_jobs(o, 2);
    rocksdb_options_set_disable_auto_compactions(o, view->is_quiet);
    rocksdb_options_set_info_log_level(o, INFO_LOG_NOTHING);
    rocksdb_options_set_keep_log_file_num(o, 1);
    view->env = rocksdb_create_default_env();
    rocksdb_env_set_background_threads(view->env, 2);
    rocksdb_env_lower_thread_pool_cpu_priority(view->env);
    rocksdb_env_lower_thread_pool_io_priority(view->env);
    rocksdb_options_set_env(o, view->env);
    set_tables(view, options);
    view->read = rocksdb_readoptions_create();
    view->write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_no_slowdown(view->write, 1);
}

/* The state of an empty history: the root directory. */
static int make_root(struct view *view, int64_t time)
{
    struct inode_row root = {.pub = {.ino = ROOT_INO, .nlink = 2, .parent = ROOT_INO}};
    root.pub.attrs = (struct attrs){.mode = S_IFDIR | 0755,
                                    .uid = geteuid(),
                                    .gid = getegid(),
                                    .atime = time,
                                    .mtime = time,
                                    .ctime = time,
                                    .btime = time};
    struct txn txn;
    txn_begin(&txn, view);
    txn_put_inode(&txn, &root);
    txn.state.max_ino = ROOT_INO;
    int r = txn_commit(&txn);
    txn_end(&txn);
    return r;
}

/* A database without a state must be empty. */
static int check_empty(struct view *view)
{
    rocksdb_iterator_t *iter = rocksdb_create_iterator(view->db, view->read);
    rocksdb_iter_seek_to_first(iter);
    bool empty = !rocksdb_iter_valid(iter);
    int r = iter_error(view, iter);
    rocksdb_iter_destroy(iter);
    if (r < 0)
        return r;
    if (!empty)
        log_error("view: the database has no state");
    return empty ? 0 : -EUCLEAN;
}

static int load_has_dependents(struct view *view)
{
    _cleanup_scan_ struct scan scan;
    scan_view_type(&scan, view, KEY_DEPENDENT);
    int r = scan_step(&scan);
    atomic_store(&view->has_dependents, r > 0);
    return r < 0 ? r : 0;
}

/* Counts suspect packs from the rows: they are few, and the total number of packs is moderate. */
static int load_suspects(struct view *view, struct view_remote *remote)
{
    int r;
    _cleanup_scan_ struct scan scan;
    scan_view_type(&scan, view, KEY_REMOTE_PACK);
    while ((r = scan_row(&scan)) > 0) {
        bool is_suspect = scan.row.remote_pack.pub.suspect != 0;
        remote->suspect_packs += is_suspect;
        remote->suspect_chunks += is_suspect ? scan.row.remote_pack.pub.live_count : 0;
    }
    atomic_store(&view->has_suspects, remote->suspect_packs > 0);
    return r;
}

static int view_load_remote(struct view *view)
{
    _cleanup_value_ struct value value = {0};
    struct remote_state_row remote = {0};
    int r = db_get(view, NULL, key_type(NEW_KEY, KEY_REMOTE_STATE), &value);
    if (r == 0)
        r = remote_state_row_decode(value.data, value.len, &remote);
    if (r == -EUCLEAN)
        log_error("view: its rows of the remote are damaged or of another version");
    if (r < 0 && r != -ENOENT)
        return r;
    TRY(load_suspects(view, &remote.pub));
    mutex_lock(&view->lock);
    view->remote = remote;
    mutex_unlock(&view->lock);
    return load_has_dependents(view);
}

/* Loads the state. With `create`, a new database gets its root. */
static int load_view_state(struct view *view, bool create, int64_t root_time)
{
    _cleanup_value_ struct value value = {0};
    int r = db_get(view, NULL, key_type(NEW_KEY, KEY_STATE), &value);
    if (r == -ENOENT) {
        r = check_empty(view);
        return r < 0 ? r : create ? make_root(view, root_time) : -EUCLEAN;
    }
    if (r < 0)
        return r;
    struct view_state state;
    r = state_decode(value.data, value.len, &state);
    if (r < 0) {
        log_warn("view: the state in the database is %s", r == -ESTALE
                                                              ? "of an earlier version of the view"
                                                              : "damaged or of a later version");
        return r;
    }
    mutex_lock(&view->lock);
    view->state = state;
    mutex_unlock(&view->lock);
    view_note_applied(view, state.applied_seq);
    return view_load_remote(view);
}

/* RocksDB reports a missing database as an invalid argument, and sometimes a damaged one, too. */
static bool is_missing(const char *path)
{
    _cleanup_free_ char *current = xasprintf("%s/CURRENT", path);
    return access(current, F_OK) < 0 && errno == ENOENT;
}

void view_begin_compactions(struct view *view)
{
    LOCK_SCOPE(&view->change); /* so that the database is not replaced meanwhile */
    if (atomic_exchange(&view->is_quiet, false) && view->db)
        db_set_compactions(view, true);
}

static unsigned level0_files(struct view *view)
{
    char *files = view->db ? rocksdb_property_value(view->db, "rocksdb.num-files-at-level0") : NULL;
    unsigned count = files ? (unsigned)strtoul(files, NULL, 10) : 0;
    rocksdb_free(files);
    return count;
}

static bool has_errors(struct view *view)
{
    uint64_t errors = 0;
    return !view->db || rocksdb_property_int(view->db, "rocksdb.background-errors", &errors) != 0 ||
           errors > 0;
}

void view_compact_leftovers(struct view *view)
{
    if (!atomic_load(&view->is_quiet) || level0_files(view) < LEVEL0_FILES_MAX)
        return;
    view_begin_compactions(view);
    int64_t until = clock_monotonic_ns() + LEVEL0_PATIENCE_MS * 1000000ll;
    while (level0_files(view) >= LEVEL0_FILES_MAX && !has_errors(view) &&
           clock_monotonic_ns() < until)
        (void)usleep(1000);
}

int view_open_database(struct view *view, bool create, int64_t root_time)
{
    char *message = NULL;
    if (!create && is_missing(view->path))
        return -ENOENT;
    rocksdb_options_set_disable_auto_compactions(view->options, atomic_load(&view->is_quiet));
    rocksdb_t *db = view->is_read_only
                        ? rocksdb_open_for_read_only(view->options, view->path, 0, &message)
                        : rocksdb_open(view->options, view->path, &message);
    if (message)
        return db_error("cannot open", message);
    view->db = db;
    view_note_changing(true);
    int r = load_view_state(view, create, root_time);
    view_note_changing(false);
    if (r < 0) {
        rocksdb_close(view->db);
        view->db = NULL;
    }
    return r;
}

int view_open(const char *path, const struct view_options *options, int64_t root_time,
              struct view **ret_view)
{
    if (!options->create && is_missing(path))
        return -ENOENT;
    struct view *view = xcalloc(1, sizeof *view);
    view->now.view = view;
    view->path = xstrdup(path);
    view_uses_init(&view->uses);
    mutex_init(&view->change, LOCK_VIEW);
    mutex_init(&view->lock, LOCK_LEAF);
    /* a new one has no due compactions, and may be about to replay a whole journal */
    view->is_quiet = options->begins_quietly && !is_missing(path);
    view->is_read_only = options->is_read_only;
    set_view_options(view, options);
    int r = view_open_database(view, true, root_time);
    if (r < 0) {
        view_close(view);
        return r;
    }
    /* from sessions that died: others compacted when they ended */
    if (!view->is_read_only && level0_files(view) > LEVEL0_FILES_MAX)
        view_begin_compactions(view);
    *ret_view = view;
    return 0;
}

void view_close(struct view *view)
{
    if (!view)
        return;
    if (view->db)
        rocksdb_close(view->db);
    rocksdb_writeoptions_destroy(view->write);
    rocksdb_readoptions_destroy(view->read);
    rocksdb_cache_destroy(view->cache);
    rocksdb_options_destroy(view->options);
    rocksdb_env_destroy(view->env);
    view_uses_done(&view->uses);
    mutex_done(&view->lock);
    mutex_done(&view->change);
    free(view->path);
    free(view);
}

struct view_state view_state(struct view *view)
{
    LOCK_SCOPE(&view->lock);
    return view->state;
}

/* Flushes the memtables rather than the WAL: recovery from a damaged WAL silently drops its
 * tail. */
int view_flush(struct view *view)
{
    char *message = NULL;
    LOCK_SCOPE(&view->change);
    if (!view->db || atomic_load(&view->has_failed))
        return -EIO;
    rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(options, 1);
    rocksdb_flush(view->db, options, &message);
    rocksdb_flushoptions_destroy(options);
    if (!message)
        return 0;
    atomic_store(&view->has_failed, true);
    return db_error("cannot flush", message);
}

static int copy_database(rocksdb_t *db, const char *path)
{
    char *message = NULL;
    rocksdb_checkpoint_t *copy = rocksdb_checkpoint_object_create(db, &message);
    if (!message)
        rocksdb_checkpoint_create(copy, path, 0, &message); /* after the flush it has no log */
    if (copy)
        rocksdb_checkpoint_object_destroy(copy);
    return message ? db_error("cannot copy", message) : 0;
}

int view_copy(struct view *view, const char *path)
{
    LOCK_SCOPE(&view->change);
    return !view->db || atomic_load(&view->has_failed) ? -EIO : copy_database(view->db, path);
}
