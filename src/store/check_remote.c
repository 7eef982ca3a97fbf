// SPDX-License-Identifier: Apache-2.0
/* First heads and runs are verified (prefix/check.c), then packs, in parallel, one a thread; then
 * the namespace is walked, and each file is reported that needs a chunk that cannot be read.
 *
 * A bad chunk also affects the chunks that are stored by it. If it lies in a pack whose content is
 * not read, its dependents detect it (struct chunk_entry). */
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "prefix/check.h"
#include "remote/chunks.h"
#include "remote/state.h"
#include "store/check_remote_internal.h"

#define QUEUE 64u
#define DEPTH_MAX 1024u
#define NAMED_MAX 3u /* packs in the line of a file */

static void report_finding(struct remote_check *c, const struct remote_finding *finding)
{
    c->counts.problems++;
    c->options->found(finding, c->options->arg);
}

void remote_check_report(const char *object, const char *what, void *arg)
{
    const struct remote_finding finding = {.object = object, .what = what};
    report_finding(arg, &finding);
}

void remote_check_note(const char *line, void *arg)
{
    struct remote_check *c = arg;
    c->options->note(line, c->options->arg);
}

/* --- chunks that cannot be read --------------------------------------------------------------- */

static struct bad_chunk *find_bad_chunk(struct remote_check *c, const struct chunk_name *name)
{
    struct bad_chunk *bad;
    HASH_FIND(hh, c->found.bad, name, sizeof *name, bad);
    return bad;
}

/* False: the chunk is known already. An error of the chunk itself takes precedence over one of its
 * bases. */
static bool add_bad_chunk(struct remote_check *c, const struct bad_chunk *found)
{
    struct bad_chunk *bad = find_bad_chunk(c, &found->name);
    if (bad)
        return false;
    bad = xmalloc(sizeof *bad);
    *bad = *found;
    HASH_ADD(hh, c->found.bad, name, sizeof bad->name, bad);
    return true;
}

static int ignore_part(uint64_t offset, const void *bytes, size_t length, void *arg)
{
    (void)offset;
    (void)bytes;
    (void)length;
    (void)arg;
    return 0;
}

static int compare_pack_checks(const void *a, const void *b)
{
    return compare_u64(&((const struct pack_check *)a)->pack.pack,
                       &((const struct pack_check *)b)->pack.pack);
}

/* A bad base is detected by its dependent: the base's own pack may not be read. */
static int note_lost_chunk(const struct reader_loss *loss, void *arg)
{
    struct pack_check *check = arg;
    struct remote_check *c = check->all;
    const struct bad_chunk bad = {.name = loss->is_through_base ? loss->base : loss->chunk,
                                  .pack = loss->pack,
                                  .error = loss->error};
    const struct pack_check key = {.pack.pack = loss->pack};
    LOCK_SCOPE(&c->found.lock);
    struct pack_check *hurt = vector_search(&c->packs, &key, compare_pack_checks);
    if (add_bad_chunk(c, &bad) && hurt)
        hurt->bad_chunks++;
    return 0;
}

/* --- packs ------------------------------------------------------------------------------------ */

static int check_pack_group(struct reader_group *group, void *arg)
{
    struct pack_check *check = arg;
    const struct reader_calls calls = {ignore_part, note_lost_chunk, check};
    int r = check->all->options->is_interrupted() ? -EINTR
                                                  : reader_fetch(check->all->store, group, &calls);
    reader_group_free(group);
    return r;
}

static int read_index(void *arg)
{
    struct pack_check *check = arg;
    return reader_check_index(check->all->store, &check->pack);
}

/* Chunks of a pack that is missing, or too short, cannot be read; if only its index is damaged,
 * readers are not affected. */
static int check_pack_index(struct pack_check *check)
{
    if (check->known)
        return 0;
    int r = remote_look_twice(check->all->store->remote, check->pack.pack, read_index, check);
    check->index_error = reader_is_damage(r) ? r : 0;
    return reader_is_damage(r) ? 0 : r;
}

/* Leaves out chunks that were checked for another state. */
static void leave_out_known(struct pack_check *check)
{
    size_t kept = 0;
    for (size_t i = 0; check->known && i < check->entries.count; i++)
        if (!vector_search(&check->known->offsets, &check->entries.at[i].offset, compare_u64))
            check->entries.at[kept++] = check->entries.at[i];
    if (check->known)
        check->entries.count = kept;
}

static int check_pack_content(struct pack_check *check)
{
    struct remote_check *c = check->all;
    const struct reader_entries *entries = &check->entries;
    const struct reader_calls calls = {ignore_part, note_lost_chunk, check};
    uint64_t bytes = 0;
    int r = 0;
    if (check->index_error == -ENOENT) {
        for (size_t i = 0; i < entries->count; i++) {
            const struct reader_loss loss = {
                .chunk = entries->at[i].name, .pack = check->pack.pack, .error = -ENOENT};
            (void)note_lost_chunk(&loss, check);
        }
        return 0;
    }
    /* The content shows the effect of a damaged index. */
    check->is_read = check->is_read || check->index_error < 0;
    if (check->is_read && entries->count > 0)
        r = reader_plan_pack(c->store, entries, check_pack_group, &calls);
    for (size_t i = 0; i < entries->count; i++)
        bytes += entries->at[i].stored_len;
    LOCK_SCOPE(&c->found.lock);
    c->found.chunks += check->is_read ? entries->count : 0;
    c->found.bytes += check->is_read ? bytes : 0;
    return r;
}

static void check_one_pack(void *arg)
{
    struct pack_check *check = arg;
    struct remote_check *c = check->all;
    int r = c->options->is_interrupted() ? -EINTR : check_pack_index(check);
    if (r == 0)
        r = reader_pack_chunks(c->store, check->pack.pack, &check->entries);
    leave_out_known(check);
    if (r == 0)
        r = check_pack_content(check);
    LOCK_SCOPE(&c->found.lock);
    if (r < 0 && c->found.error == 0)
        c->found.error = r;
}

static bool is_sampled(unsigned percent)
{
    uint32_t dice = 0;
    (void)!getrandom(&dice, sizeof dice, 0);
    return dice % 100 < percent;
}

static int add_pack(const struct view_remote_pack *pack, void *arg)
{
    struct remote_check *c = arg;
    struct known_pack *known = vector_search(&c->known, &pack->pack, compare_u64);
    if (pack->unreferenced || pack->gone || pack->live_count == 0 || (known && known->is_done))
        return 0;
    vector_add(&c->packs, (struct pack_check){.all = c,
                                              .pack = *pack,
                                              .known = known,
                                              .is_read = known ? known->is_read
                                                               : is_sampled(c->options->sample)});
    return 0;
}

char *remote_check_describe(const struct pack_check *check)
{
    if (check->index_error == -ENOENT)
        return xasprintf("is missing; %u chunks that files need lie there", check->pack.live_count);
    if (check->index_error < 0)
        return xasprintf("is truncated, or its index is damaged; %llu of %u chunks that files need "
                         "cannot be read",
                         (unsigned long long)check->bad_chunks, check->pack.live_count);
    return check->bad_chunks
               ? xasprintf("%llu of %u chunks that files need are damaged",
                           (unsigned long long)check->bad_chunks, check->pack.live_count)
               : NULL;
}

/* If all chunks of a pack were checked, their offsets need not be recorded. */
static void note_known(struct known_pack *known, const struct pack_check *check)
{
    size_t count = check->is_read ? check->entries.count : 0;
    known->is_done =
        check->index_error == -ENOENT || known->offsets.count + count >= check->pack.count;
    for (size_t i = 0; i < count && !known->is_done; i++)
        vector_add(&known->offsets, check->entries.at[i].offset);
    if (known->is_done)
        vector_free(&known->offsets);
    vector_sort(&known->offsets, compare_u64);
}

static void count_pack(struct remote_check *c, struct pack_check *check)
{
    bool is_bad = check->index_error < 0 || check->bad_chunks > 0;
    struct known_pack first = {.pack = check->pack.pack, .is_read = check->is_read};
    struct known_pack *known = check->known ? check->known : &first;
    c->counts.bad_packs += is_bad && !known->is_bad;
    known->is_bad = known->is_bad || is_bad;
    note_known(known, check);
    vector_free(&check->entries);
    if (check->known)
        return;
    c->counts.packs++;
    c->counts.pack_bytes += check->pack.length;
    c->counts.read_packs += check->is_read && check->index_error != -ENOENT;
    vector_add(&c->known, first);
}

/* Known packs first: adding others to the vector moves the known ones. */
static void count_packs(struct remote_check *c)
{
    for (unsigned round = 0; round < 2; round++)
        for (size_t i = 0; i < c->packs.count; i++)
            if (round == (c->packs.at[i].known == NULL))
                count_pack(c, &c->packs.at[i]);
    for (size_t i = 0; i < c->packs.count; i++)
        c->packs.at[i].known = NULL;
    vector_sort(&c->known, compare_u64);
}

int remote_check_packs(struct remote_check *c)
{
    struct pool *pool;
    c->packs.count = 0;
    TRY(view_remote_packs(c->store->local.view, add_pack, c));
    if (c->packs.count == 0)
        return 0;
    TRY(pool_new("cairn-check", c->options->threads, QUEUE, NULL, NULL, &pool));
    vector_sort(&c->packs, compare_pack_checks);
    for (size_t i = 0; i < c->packs.count; i++)
        pool_submit(pool, check_one_pack, &c->packs.at[i]);
    pool_free(pool);
    count_packs(c);
    c->counts.chunks = c->found.chunks;
    c->counts.bytes = c->found.bytes;
    return c->found.error;
}

static void report_bad_packs(struct remote_check *c)
{
    for (size_t i = 0; i < c->packs.count; i++) {
        char object[32];
        _cleanup_free_ char *what = remote_check_describe(&c->packs.at[i]);
        pack_object_name(c->packs.at[i].pack.pack, object);
        if (what)
            remote_check_report(object, what, c);
    }
}

/* --- their dependents ------------------------------------------------------------------------- */

/* Adds chunks of which a base is bad; returns how many. */
static int spread_in_pack(struct remote_check *c, uint64_t pack, size_t *ret_added)
{
    _cleanup_vector_ struct reader_entries entries = {0};
    TRY(reader_pack_chunks(c->store, pack, &entries));
    for (size_t i = 0; i < entries.count; i++)
        for (size_t k = 0; k < entries.at[i].ref_count; k++) {
            const struct bad_chunk *base = find_bad_chunk(c, &entries.at[i].refs[k].name);
            if (!base)
                continue;
            const struct bad_chunk bad = {.name = entries.at[i].name,
                                          .pack = base->pack,
                                          .error = base->error,
                                          .is_through_base = true};
            *ret_added += add_bad_chunk(c, &bad);
        }
    return 0;
}

/* Chains are at most CHUNK_DEPTH_MAX long. */
static int spread_to_dependents(struct remote_check *c)
{
    size_t added = HASH_COUNT(c->found.bad);
    for (unsigned depth = 0; depth < CHUNK_DEPTH_MAX && added > 0; depth++) {
        added = 0;
        for (size_t i = 0; i < c->packs.count; i++)
            TRY(spread_in_pack(c, c->packs.at[i].pack.pack, &added));
    }
    return 0;
}

/* --- files ------------------------------------------------------------------------------------ */

struct file_check {
    struct remote_check *all;
    struct remote_finding finding;
    struct reader_loss named[NAMED_MAX]; /* of different packs */
    size_t named_count;
};

static void name_bad_pack(struct file_check *file, const struct bad_chunk *bad)
{
    for (size_t i = 0; i < file->named_count; i++)
        if (file->named[i].pack == bad->pack)
            return;
    if (file->named_count < NAMED_MAX)
        file->named[file->named_count++] =
            (struct reader_loss){.pack = bad->pack,
                                 .error = bad->error,
                                 .is_remote = true,
                                 .is_through_base = bad->is_through_base};
}

static int check_extent(const struct view_extent *extent, void *arg)
{
    struct file_check *file = arg;
    struct store *store = file->all->store;
    struct chunk_entry place;
    if (extent->extent.kind != EXTENT_CHUNK)
        return 0;
    file->finding.chunks++;
    const struct bad_chunk none = {.error = -ENOENT};
    const struct bad_chunk *bad = find_bad_chunk(file->all, &extent->extent.chunk);
    int r = bad ? 0 : view_remote_place(store->local.view, &extent->extent.chunk, &place);
    if (r == -ENOENT)
        bad = &none;
    else if (r < 0)
        return r;
    if (!bad)
        return 0;
    file->finding.is_through_base =
        bad->is_through_base && (file->finding.bad_chunks == 0 || file->finding.is_through_base);
    file->finding.bad_chunks++;
    file->finding.bad_bytes += extent->extent.length;
    name_bad_pack(file, bad);
    return 0;
}

static char *describe_named(const struct file_check *file)
{
    char *text = NULL;
    for (size_t i = 0; i < file->named_count; i++) {
        _cleanup_free_ char *before = text;
        _cleanup_free_ char *one = reader_describe_loss(&file->named[i]);
        text = before ? xasprintf("%s; %s", before, one) : xstrdup(one);
    }
    return text;
}

static int check_file(struct remote_check *c, const struct ns_inode *inode, const char *path)
{
    struct file_check file = {.all = c, .finding = {.path = path}};
    TRY(view_extents(c->store->local.view, inode->ino, 0, INT64_MAX, check_extent, &file));
    c->counts.files++;
    if (file.finding.bad_chunks == 0)
        return 0;
    _cleanup_free_ char *what = describe_named(&file);
    file.finding.what = what;
    c->counts.bad_files++;
    c->counts.through_base_files += file.finding.is_through_base;
    report_finding(c, &file.finding);
    return 0;
}

struct named_inode {
    char *name;
    uint64_t ino;
};
DEFINE_VECTOR(named_inodes, struct named_inode);

static int add_named(const struct view_entry *entry, const char *name, size_t len, void *arg)
{
    struct named_inodes *all = arg;
    vector_add(all, (struct named_inode){xasprintf("%.*s", (int)len, name), entry->ino});
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct named_inode *)a)->name, ((const struct named_inode *)b)->name);
}

static int check_tree(struct remote_check *c, uint64_t directory, const char *path, unsigned depth)
{
    struct named_inodes all = {0};
    int r = depth > DEPTH_MAX
                ? -ELOOP
                : ns_readdir(c->store->local.ns, directory, 0, SIZE_MAX, add_named, &all);
    vector_sort(&all, compare_names);
    for (size_t i = 0; i < all.count; i++) {
        struct ns_inode inode;
        _cleanup_free_ char *below = xasprintf("%s/%s", path, all.at[i].name);
        if (r == 0)
            r = c->options->is_interrupted() ? -EINTR
                                             : ns_inode(c->store->local.ns, all.at[i].ino, &inode);
        if (r == 0 && S_ISDIR(inode.attrs.mode))
            r = check_tree(c, inode.ino, below, depth + 1);
        else if (r == 0 && S_ISREG(inode.attrs.mode))
            r = check_file(c, &inode, below);
        free(all.at[i].name);
    }
    vector_free(&all);
    return r;
}

/* --- the whole check --- */

struct remote_check *remote_check_new(const struct remote_check_options *options)
{
    struct remote_check *c = xcalloc(1, sizeof *c);
    c->options = options;
    mutex_init(&c->found.lock, LOCK_LEAF);
    return c;
}

void remote_check_free(struct remote_check *c)
{
    if (!c)
        return;
    HASH_FREE_ALL(c->found.bad);
    for (size_t i = 0; i < c->known.count; i++)
        vector_free(&c->known.at[i].offsets);
    vector_free(&c->packs);
    vector_free(&c->known);
    mutex_done(&c->found.lock);
    free(c);
}

const struct remote_check_counts *remote_check_counts(const struct remote_check *c)
{
    return &c->counts;
}

int remote_check_newest(struct remote_check *c, struct store *store)
{
    struct prefix_check heads = {.problem = remote_check_report,
                                 .note = remote_check_note,
                                 .arg = c,
                                 .threads = c->options->threads,
                                 .is_interrupted = c->options->is_interrupted};
    check(store->remote != NULL);
    c->store = store;
    int r = prefix_check_heads(remote_prefix(store->remote), &heads);
    c->counts.heads = heads.heads;
    c->counts.runs = heads.runs;
    TRY(r);
    TRY(prefix_check_of_nodes(remote_prefix(store->remote), &heads));
    r = remote_check_packs(c);
    report_bad_packs(c);
    TRY(r);
    r = spread_to_dependents(c);
    c->counts.bad_chunks = HASH_COUNT(c->found.bad);
    return r < 0 ? r : check_tree(c, ROOT_INO, "", 0);
}
