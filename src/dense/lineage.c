// SPDX-License-Identifier: Apache-2.0
/* Files are handled in order of mtime, so that the base of each file is settled before it: a cut
 * may contain several checkpoints, and then the bases of later ones are among its own chunks. */
#include "dense/lineage.h"

#include <sys/stat.h>

#include "base/clock.h"
#include "codec/dx.h"
#include "dense/chains.h"
#include "dense/changed.h"
#include "dense/final_name.h"
#include "dense/internal.h"
#include "dense/series.h"
#include "view/cut_files.h"

#define MEMBERS_MAX 4096u /* members examined per series */
/* CPU time for paths and members of series, per cut: directories may have very many files. Files
 * beyond the limit get no bases. */
#define NAMES_NS_MAX (3 * SECOND_NS)
#define SAMPLES 8u /* pairs examined per file */
/* a difference that saves less than this part means that the file is not similar */
#define WORTH_SHARE 64u

struct lineage {
    struct chains *chains;
};

unsigned lineage_base(const struct lineage *lineage, const struct chunk_name *name,
                      struct chunk_name *ret_base)
{
    return chains_planned(lineage->chains, name, ret_base);
}

void lineage_free(struct lineage *lineage)
{
    if (!lineage)
        return;
    chains_free(lineage->chains);
    free(lineage);
}

/* --- files ------------------------------------------------------------------------------------ */

/* A file of a series, and the cut that contains it. */
struct member {
    struct file_key key;
    struct view_cut *cut;
};

/* The files of a series at the cut, followed by those in the newest head. */
struct roster {
    char *series; /* its path; NULL: unused */
    VECTOR(struct member) files;
};

struct build {
    struct dense *dense;
    struct view_cut *cut;
    struct view_cut *published; /* of the newest head; NULL: not open */
    struct chains *chains;
    struct changed_files files;
    /* the series in which the base of the preceding file was found */
    unsigned favourite;
    /* of the last file's series: its siblings share most of them */
    struct roster rosters[SERIES_MAX];
    int64_t time;                 /* remaining time for names */
    uint8_t *stored, *raw, *base; /* buffers for one chunk each */
};

/* -ENOENT: in no tier. */
static int read_chunk(struct build *b, const struct chunk_name *name, uint8_t *raw,
                      uint32_t *ret_len)
{
    struct chunk_entry entry = {.name = *name};
    int r = view_cut_chunk(b->cut, name, &entry);
    if (r == 0 || r == -ENOENT)
        r = b->dense->remote.read_chunk(b->dense->store, &entry, b->stored, raw);
    *ret_len = entry.raw_len;
    return r;
}

/* --- bases ------------------------------------------------------------------------------------ */

/* A file to be sent. */
struct file {
    const struct changed_file *about;
    struct parts parts;
    VECTOR(uint32_t) pending; /* parts of numbers that are neither in the remote nor planned yet */
};

static void file_done(struct file *file)
{
    vector_free(&file->parts);
    vector_free(&file->pending);
}

/* A possible base of a file to be sent. */
struct candidate {
    struct parts parts;
    uint32_t *partners; /* for each part of the file: an index of these, or UNPAIRED */
    uint64_t gain;      /* by the samples; 0: not similar */
    uint64_t dead_gain; /* part of that from bases that no file refers to */
    uint64_t new_gain;  /* gain if the partners of those were the bases */
};

static void candidate_done(struct candidate *candidate)
{
    vector_free(&candidate->parts);
    free(candidate->partners);
    *candidate = (struct candidate){0};
}

/* By how many permille the chunk in b->raw shrinks as a difference to the one in b->base; 0: by
 * less than this part. */
static uint32_t gain_of(const struct build *b, size_t raw_len, uint32_t share)
{
    struct fx_guess guess;
    fx_look(b->raw, raw_len, &guess);
    uint32_t plain = (uint32_t)min_u64(guess.permille, 1000);
    const struct dx_pair pair = {b->raw, b->base, raw_len};
    uint32_t dense = dx_gate(dx_kernels_of(cpu_level()), &guess, &pair);
    return dense < plain - plain / share ? plain - dense : 0;
}

static int find_base(struct build *b, const struct file *file, const struct part *part,
                     const struct part *partner, struct chain_base *ret)
{
    struct chunk_entry entry;
    struct chain_place place = {.name = &part->chunk,
                                .partner = &partner->chunk,
                                .raw_len = part->length,
                                .form = file->about->is_chained ? FORM_CHAIN : FORM_STAR};
    TRY(view_cut_chunk(b->cut, &part->chunk, &entry));
    if (place.form == FORM_STAR && dense_width(b->dense->store, &entry) > 2)
        place.form = FORM_NESTED;
    int r = chains_find_base(b->chains, b->dense->store->local.view, &place, ret);
    if (r == 0 && ret->depth > 0 && ret->is_placed)
        r = view_cut_base(b->cut, &ret->name, &entry);
    if (r == -ENOENT) {
        ret->depth = 0;
        r = 0;
    }
    return r;
}

/* As gain_of(), for a base that is read first; 0 also if that fails. */
static uint32_t gain_by(struct build *b, const struct chunk_name *base, uint32_t len,
                        uint32_t share)
{
    uint32_t base_len;
    return read_chunk(b, base, b->base, &base_len) == 0 && base_len == len ? gain_of(b, len, share)
                                                                           : 0;
}

/* Adds the gain of a pair of chunks. Chunks that cannot be read are skipped. */
static int look_at_pair(struct build *b, const struct file *file, const struct part *part,
                        const struct part *partner, struct candidate *candidate)
{
    struct chain_base base;
    uint32_t len;
    int r = find_base(b, file, part, partner, &base);
    if (r < 0 || base.depth == 0)
        return r;
    if (read_chunk(b, &part->chunk, b->raw, &len) < 0)
        return dense_is_stopping(b->dense) ? -ECANCELED : 0;
    uint32_t gain = gain_by(b, &base.name, len, base.is_dead ? DEAD_WORTH_SHARE : WORTH_SHARE);
    candidate->gain += gain;
    if (base.is_dead && !chunk_name_equal(&base.name, &partner->chunk)) {
        candidate->dead_gain += gain;
        candidate->new_gain += gain_by(b, &partner->chunk, len, DEAD_WORTH_SHARE);
    }
    return dense_is_stopping(b->dense) ? -ECANCELED : 0;
}

/* For a file that was overwritten many times, the distance to a base kept only by differences keeps
 * growing. A new keyframe pays once the base saves a fifth less than a keyframe as recent as the
 * partner would: within four versions, if the gain continues to fall at this rate. In a chain most
 * chunks have a nearer base, so there it pays at two fifths. */
static bool is_stale(const struct file *file, const struct candidate *candidate)
{
    uint64_t fifths = file->about->is_chained ? 3 : 4;
    return 5 * candidate->dead_gain < fifths * candidate->new_gain;
}

static bool is_pair(const struct file *file, const struct candidate *candidate, uint32_t part)
{
    uint32_t partner = candidate->partners[part];
    return partner != UNPAIRED &&
           !chunk_name_equal(&file->parts.at[part].chunk, &candidate->parts.at[partner].chunk);
}

/* Takes samples from the whole file, as only a small part may be similar: e.g. the weights in a
 * state with optimizer moments. */
static int measure_candidate(struct build *b, const struct file *file, struct candidate *candidate)
{
    VECTOR(uint32_t) paired = {0};
    for (size_t i = 0; i < file->pending.count; i++)
        if (is_pair(file, candidate, file->pending.at[i]))
            vector_add(&paired, file->pending.at[i]);
    size_t samples = (size_t)min_u64(paired.count, SAMPLES);
    int r = 0;
    for (size_t i = 0; i < samples && r == 0; i++) {
        uint32_t part = paired.at[(2 * i + 1) * paired.count / (2 * samples)];
        r = look_at_pair(b, file, &file->parts.at[part],
                         &candidate->parts.at[candidate->partners[part]], candidate);
    }
    if (is_stale(file, candidate))
        candidate->gain = 0;
    vector_free(&paired);
    return r;
}

/* --- names of tensors ------------------------------------------------------------------------- */

/* Reads the first `len` bytes of a file, which must be in chunks without a gap. */
static bool read_start(struct build *b, const struct parts *parts, uint8_t *buf, size_t len)
{
    size_t done = 0;
    for (size_t i = 0; i < parts->count && done < len; i++) {
        const struct part *part = &parts->at[i];
        uint32_t raw_len;
        if (part->offset != done || read_chunk(b, &part->chunk, b->raw, &raw_len) < 0 ||
            raw_len != part->length)
            return false;
        size_t more = (size_t)min_u64(raw_len, len - done);
        memcpy(buf + done, b->raw, more);
        done += more;
    }
    return done == len;
}

/* Reads the list of tensors of a safetensors file. Entries of torch's zips are named by ordinals,
 * which tell no more than their order. */
static bool read_tensors(struct build *b, const struct parts *parts, struct tensor **ret_tensors,
                         struct tensor_list *ret)
{
    uint8_t first[9];
    size_t len = read_start(b, parts, first, sizeof first) ? tensors_header_len(first) : 0;
    _cleanup_free_ uint8_t *header = xmalloc(len ? len : 1);
    if (len == 0 || !read_start(b, parts, header, len))
        return false;
    tensors_list(header, len, ret_tensors, &ret->count);
    ret->at = *ret_tensors;
    return true;
}

static void pair_parts(struct build *b, const struct parts *parts, struct candidate *candidate)
{
    _cleanup_free_ struct tensor *tensors = NULL, *base_tensors = NULL;
    struct tensor_list list, base_list;
    candidate->partners = xcalloc(parts->count, sizeof *candidate->partners);
    if (!parts_are_alike(parts, &candidate->parts) && read_tensors(b, parts, &tensors, &list) &&
        read_tensors(b, &candidate->parts, &base_tensors, &base_list))
        parts_pair_by_name(parts, &list, &candidate->parts, &base_list, candidate->partners);
    else
        parts_pair_by_order(parts, &candidate->parts, candidate->partners);
}

/* --- the base of a file ----------------------------------------------------------------------- */

struct members {
    const struct series *series;
    VECTOR(char *) paths;
};

static int note_member(const char *name, uint64_t ino, void *arg)
{
    struct members *members = arg;
    (void)ino;
    char *path = series_member(members->series, name);
    if (path)
        vector_add(&members->paths, path);
    return members->paths.count == MEMBERS_MAX;
}

static int list_members(struct view_cut *cut, struct members *members)
{
    const struct series *series = members->series;
    _cleanup_free_ char *directory = xasprintf("%.*s", (int)series->directory_len, series->path);
    struct view_inode inode;
    int r = view_cut_lookup(cut, directory, &inode);
    return r < 0 ? r
                 : view_cut_names(cut, inode.ino, series_prefix(series), series->prefix_len,
                                  note_member, members);
}

static int note_in_roster(struct view_cut *cut, struct roster *roster, const char *path)
{
    struct view_inode inode;
    int r = view_cut_lookup(cut, path, &inode);
    if (r == 0 && S_ISREG(inode.attrs.mode))
        vector_add(&roster->files, (struct member){{inode.attrs.mtime, inode.ino}, cut});
    return r == -ENOENT ? 0 : r;
}

static int list_series_at_cut(struct view_cut *cut, const struct series *series,
                              struct roster *roster)
{
    struct members members = {.series = series};
    int r = list_members(cut, &members);
    for (size_t i = 0; i < members.paths.count; i++) {
        if (r == 0)
            r = note_in_roster(cut, roster, members.paths.at[i]);
        free(members.paths.at[i]);
    }
    vector_free(&members.paths);
    return r == -ENOENT ? 0 : r;
}

/* A file that is only in the newest head was deleted, or overwritten. If the database was opened
 * again, that cut is void, and its files are unknown. */
static int list_roster(struct build *b, const struct series *series, struct roster *roster)
{
    int r = list_series_at_cut(b->cut, series, roster);
    if (r == 0 && b->published)
        r = list_series_at_cut(b->published, series, roster);
    return r == -ESTALE ? 0 : r;
}

static void roster_done(struct roster *roster)
{
    free(roster->series);
    vector_free(&roster->files);
    *roster = (struct roster){0};
}

/* Cached: listing it for each of its files would take quadratic time. */
static int get_roster(struct build *b, const struct series *series, struct roster *roster)
{
    if (roster->series && strcmp(roster->series, series->path) == 0)
        return 0;
    roster_done(roster);
    int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int r = list_roster(b, series, roster);
    b->time -= clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
    if (r == 0)
        roster->series = xstrdup(series->path);
    return r;
}

/* Finds the newest member that is older than the file. -ENOENT: none. */
static int find_older(const struct roster *roster, const struct file *file, struct member *ret)
{
    const struct member *newest = NULL;
    for (size_t i = 0; i < roster->files.count; i++) {
        const struct member *member = &roster->files.at[i];
        if (member->key.ino != file->about->key.ino &&
            file_keys_compare(&member->key, &file->about->key) < 0 &&
            (!newest || file_keys_compare(&newest->key, &member->key) < 0))
            newest = member;
    }
    if (newest)
        *ret = *newest;
    return newest ? 0 : -ENOENT;
}

/* Measures how similar another file is. */
static int try_file(struct build *b, const struct file *file, struct view_cut *cut, uint64_t ino,
                    struct candidate *ret)
{
    int r = parts_of_file(cut, ino, &ret->parts);
    if (r == 0 && ret->parts.count) {
        pair_parts(b, &file->parts, ret);
        r = measure_candidate(b, file, ret);
    }
    return r;
}

/* Measures its predecessor in one of its series. */
static int try_series(struct build *b, const struct file *file, const struct series *series,
                      unsigned i, struct candidate *ret)
{
    struct member base;
    *ret = (struct candidate){0};
    int r = get_roster(b, &series[i], &b->rosters[i]);
    if (r == 0)
        r = find_older(&b->rosters[i], file, &base);
    if (r == 0)
        r = try_file(b, file, base.cut, base.key.ino, ret);
    return r == -ENOENT || (r == -ESTALE && base.cut == b->published) ? 0 : r;
}

/* Finds the file with the same path, or else one with a path to which this file may be renamed, in
 * the newest head. */
static int find_replaced(struct build *b, const char *path, uint64_t *ret_ino)
{
    char *paths[1 + FINAL_PATHS_MAX] = {xstrdup(path)};
    unsigned count = 1 + final_name_paths(path, paths + 1);
    int r = -ENOENT;
    for (unsigned i = 0; i < count; i++) {
        struct view_inode inode;
        if (r == -ENOENT)
            r = view_cut_lookup(b->published, paths[i], &inode);
        if (r == 0 && !S_ISREG(inode.attrs.mode))
            r = -ENOENT;
        if (r == 0)
            *ret_ino = inode.ino;
        free(paths[i]);
    }
    return r;
}

/* Measures the file that it replaces. */
static int try_replaced(struct build *b, const struct file *file, struct candidate *ret)
{
    uint64_t ino = 0;
    *ret = (struct candidate){0};
    if (!b->published)
        return 0;
    int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int r = find_replaced(b, file->about->path, &ino);
    b->time -= clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
    if (r == 0)
        r = try_file(b, file, b->published, ino, ret);
    return r == -ENOENT || r == -ESTALE ? 0 : r;
}

/* Tries the other series for the largest gain; *best has the result of the favourite. */
static int try_others(struct build *b, const struct file *file, const struct series *series,
                      unsigned count, struct candidate *best)
{
    unsigned tried = b->favourite;
    int r = 0;
    for (unsigned i = 0; i < count && r == 0; i++) {
        struct candidate other;
        if (i == tried)
            continue;
        r = try_series(b, file, series, i, &other);
        if (r == 0 && other.gain > best->gain) {
            struct candidate worse = *best;
            *best = other;
            other = worse;
            b->favourite = i;
        }
        candidate_done(&other);
    }
    return r;
}

/* Paths of one checkpoint's files are built alike: the series that worked for the last file is
 * tried first, and used if its file is similar. */
static int choose_of_series(struct build *b, const struct file *file, struct candidate *best)
{
    struct series series[SERIES_MAX];
    unsigned count = series_of(file->about->path, series);
    int r = b->favourite < count ? try_series(b, file, series, b->favourite, best) : 0;
    if (r == 0 && best->gain == 0)
        r = try_others(b, file, series, count, best);
    for (unsigned i = 0; i < count; i++)
        series_done(&series[i]);
    return r;
}

static int choose_base(struct build *b, const struct file *file, struct candidate *best)
{
    int r = try_replaced(b, file, best);
    if (r < 0 || best->gain > 0)
        return r;
    candidate_done(best);
    return choose_of_series(b, file, best);
}

/* --- the pairs of a file ---------------------------------------------------------------------- */

/* Is this the whole chunk, and does it contain numbers? */
static int is_numbers(struct build *b, const struct part *part, bool *ret)
{
    struct chunk_entry entry;
    int r = view_cut_chunk(b->cut, &part->chunk, &entry);
    *ret = r == 0 && entry.encoding == ENCODING_FX && entry.raw_len == part->length &&
           part->length >= FX_RAW_MIN;
    return r == -ENOENT ? 0 : r;
}

static int pair_part(struct build *b, const struct file *file, const struct part *part,
                     const struct part *partner)
{
    struct chain_base base;
    bool is_whole = false;
    int r = is_numbers(b, partner, &is_whole);
    if (r < 0 || !is_whole || chains_know(b->chains, &part->chunk))
        return r;
    r = find_base(b, file, part, partner, &base);
    if (r == 0 && base.depth > 0)
        chains_add(b->chains, &part->chunk, &base);
    return r;
}

static int add_pairs(struct build *b, const struct file *file, const struct candidate *candidate)
{
    int r = 0;
    for (size_t i = 0; i < file->pending.count && r == 0; i++) {
        uint32_t part = file->pending.at[i];
        if (is_pair(file, candidate, part))
            r = pair_part(b, file, &file->parts.at[part],
                          &candidate->parts.at[candidate->partners[part]]);
    }
    return r;
}

static int find_pending(struct build *b, struct file *file)
{
    int r = 0;
    for (size_t i = 0; i < file->parts.count && r == 0; i++) {
        const struct part *part = &file->parts.at[i];
        struct chunk_entry entry;
        bool may_pay = false;
        if (chains_know(b->chains, &part->chunk))
            continue;
        r = view_remote_place(b->dense->store->local.view, &part->chunk, &entry);
        if (r == -ENOENT)
            r = is_numbers(b, part, &may_pay);
        if (may_pay)
            vector_add(&file->pending, (uint32_t)i);
    }
    return r;
}

static int pair_file(struct build *b, struct file *file)
{
    struct candidate best = {0};
    int r = file->about->path ? parts_of_file(b->cut, file->about->key.ino, &file->parts) : -ENOENT;
    if (r == 0)
        r = find_pending(b, file);
    if (r == 0 && file->pending.count)
        r = choose_base(b, file, &best);
    if (r == 0 && best.gain)
        r = add_pairs(b, file, &best);
    candidate_done(&best);
    return r == -ENOENT ? 0 : r;
}

static int pair_files(struct build *b)
{
    int r = changed_list(b->dense, b->cut, &b->time, &b->files);
    for (size_t i = 0; i < b->files.count && r == 0 && b->time > 0; i++) {
        struct file file = {.about = &b->files.at[i]};
        r = dense_is_stopping(b->dense) ? -ECANCELED : pair_file(b, &file);
        file_done(&file);
    }
    return r;
}

static void build_done(struct build *b)
{
    changed_done(&b->files);
    for (size_t i = 0; i < ARRAY_LEN(b->rosters); i++)
        roster_done(&b->rosters[i]);
    free(b->stored);
    free(b->raw);
    free(b->base);
}

int lineage_build(struct dense *dense, struct view_cut *cut, struct view_cut *published,
                  struct lineage **ret)
{
    struct lineage *lineage = xcalloc(1, sizeof *lineage);
    lineage->chains = chains_new();
    struct build b = {.dense = dense,
                      .cut = cut,
                      .published = published,
                      .chains = lineage->chains,
                      .favourite = SERIES_MAX,
                      .time = NAMES_NS_MAX};
    b.stored = xmalloc(CHUNK_SIZE_MAX);
    b.raw = xmalloc(CHUNK_SIZE_MAX);
    b.base = xmalloc(CHUNK_SIZE_MAX);
    int r = pair_files(&b);
    build_done(&b);
    if (r < 0)
        lineage_free(lineage);
    else
        *ret = lineage;
    return r < 0 ? r : 0;
}
