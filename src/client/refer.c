// SPDX-License-Identifier: Apache-2.0
#include "client/refer.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/io.h"
#include "client/lane.h"
#include "client/moved.h"

#define COPY_BYTES MIB

/* --- versions --------------------------------------------------------------------------------- */

static void version_free(struct refer_version *version)
{
    for (size_t i = 0; i < version->count; i++) {
        free(version->entries[i].key);
        free(version->entries[i].pieces);
    }
    free(version->entries);
    free(version->pattern);
    free(version->path);
    free(version);
}

static void version_unref_locked(struct refer_version *version)
{
    check_rank_held(LOCK_LANE);
    if (version && --version->refs == 0)
        version_free(version);
}

/* "/mnt/run/step120.pt": "/mnt/run/step0.pt" */
static char *pattern_of(const char *path)
{
    char *pattern = malloc(strlen(path) + 1), *to = pattern;
    for (const char *at = path; pattern && *at; at++) {
        bool digit = isdigit((unsigned char)*at);
        if (!digit)
            *to++ = *at;
        else if (to == pattern || at == path || !isdigit((unsigned char)at[-1]))
            *to++ = '0';
    }
    if (pattern)
        *to = '\0';
    return pattern;
}

static bool is_unchanged(const struct refer_version *version, int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && moved_is_same(&st, &version->st);
}

static int open_version(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
}

static struct refer_version *find_version(struct refer *refer, const char *pattern)
{
    LOCK_SCOPE(refer->lock);
    for (size_t i = 0; i < REFER_VERSIONS_MAX && refer->versions[i]; i++) {
        struct refer_version *version = refer->versions[i];
        if (strcmp(version->pattern, pattern) != 0)
            continue;
        version->refs++;
        return version;
    }
    return NULL;
}

/* Makes the key of the lane's fingerprints on first use. */
static bool has_key(struct refer *refer)
{
    {
        LOCK_SCOPE(refer->lock);
        if (refer->key)
            return true;
    }
    struct fingerprint_key *key = malloc(sizeof *key);
    if (!key || fingerprint_key_make(key) < 0) {
        free(key);
        return false;
    }
    LOCK_SCOPE(refer->lock);
    if (refer->key)
        free(key);
    else
        refer->key = key;
    return true;
}

void refer_begin(struct refer *refer, const struct draft *draft, struct refer_older *ret)
{
    bool has_name = draft->kind == DRAFT_NAMELESS || draft->kind == DRAFT_HIDDEN;
    *ret = REFER_NONE;
    if (!has_name || !has_key(refer))
        return;
    ret->pattern = pattern_of(draft->path);
    ret->version = ret->pattern ? find_version(refer, ret->pattern) : NULL;
    ret->fd = ret->version ? open_version(ret->version->path) : -1;
    if (ret->fd >= 0 && is_unchanged(ret->version, ret->fd))
        return;
    refer_close(ret);
    LOCK_SCOPE(refer->lock);
    version_unref_locked(ret->version);
    ret->version = NULL;
}

void refer_close(struct refer_older *older)
{
    if (older->fd >= 0)
        (void)close(take_fd(&older->fd));
}

void refer_end_locked(struct refer_older *older)
{
    check_rank_held(LOCK_LANE);
    check(older->fd < 0);
    version_unref_locked(older->version);
    free(older->pattern);
    *older = REFER_NONE;
}

void refer_done(struct refer *refer)
{
    for (size_t i = 0; i < REFER_VERSIONS_MAX && refer->versions[i]; i++)
        if (--refer->versions[i]->refs == 0) /* a save that is not freed yet may still use it */
            version_free(refer->versions[i]);
    free(refer->key);
    *refer = (struct refer){0};
}

/* --- pieces ----------------------------------------------------------------------------------- */

static int entries_by_key(const void *a, const void *b)
{
    const struct refer_entry *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static const struct refer_entry *find_entry(const struct refer_version *version, const char *key)
{
    const struct refer_entry wanted = {.key = (char *)(uintptr_t)key};
    return version ? bsearch(&wanted, version->entries, version->count, sizeof *version->entries,
                             entries_by_key)
                   : NULL;
}

struct refer_piece *refer_pieces(struct job *job, const char *key)
{
    size_t count = job_pieces(job);
    struct refer_piece *pieces = calloc(count, sizeof *pieces);
    job->key = strdup(key);
    if (!pieces || !job->key) {
        free(pieces);
        return NULL;
    }
    uint64_t given = 0;
    for (size_t i = 0; i < count; i++) {
        pieces[i].at = job->at + given;
        given += job_piece_length(job, given);
    }
    job->older = find_entry(job->save->publishing.older.version, key);
    return pieces;
}

bool refer_known(struct job *job, size_t index, const struct fingerprint *print)
{
    struct refer_piece *piece = &job->prints[index];
    check(index < job_pieces(job) && !piece->is_known);
    piece->print = *print;
    piece->is_known = true;
    if (!job->older || index >= job->older->count || (job->crcs && !job->older->has_crcs))
        return false;
    const struct refer_piece *older = &job->older->pieces[index];
    if (!older->is_known || memcmp(&older->print, print, sizeof *print) != 0)
        return false;
    piece->is_referenced = true;
    piece->from = older->at;
    if (job->crcs)
        job->crcs[index] = older->crc;
    return true;
}

/* --- putting them into the draft -------------------------------------------------------------- */

struct range {
    uint64_t from, to, length;
};

static void skip_in_range(struct range *range, uint64_t bytes)
{
    check(bytes <= range->length);
    range->from += bytes;
    range->to += bytes;
    range->length -= bytes;
}

static int copy_plainly(const struct cairn_save *save, struct range range)
{
    _cleanup_free_ uint8_t *data = malloc(COPY_BYTES);
    if (!data)
        return -ENOMEM;
    while (range.length > 0) {
        size_t n = min_u64(range.length, COPY_BYTES);
        int r = io_pread_full(save->publishing.older.fd, data, n, range.from);
        if (r < 0) {
            r = r == -EUCLEAN ? -ESTALE : r; /* the older file is shorter now */
            cause_note("%s: reading the version before it: %s", save->path, strerror(-r));
            return r;
        }
        TRY(draft_write(&save->publishing.draft, data, n, range.to));
        skip_in_range(&range, n);
    }
    return 0;
}

/* Copies the rest if the filesystem refuses a reference, or references less. */
static int refer_range(const struct cairn_save *save, struct range range)
{
    while (range.length > 0) {
        off_t from = (off_t)range.from, to = (off_t)range.to;
        ssize_t n = copy_file_range(save->publishing.older.fd, &from, save->publishing.draft.fd,
                                    &to, range.length, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return copy_plainly(save, range);
        skip_in_range(&range, (uint64_t)n);
    }
    return 0;
}

/* Joins pieces of one source that are adjacent in both files into one range: only whole chunks can
 * be referenced. */
static int refer_job(const struct cairn_save *save, const struct job *job)
{
    struct range range = {0};
    for (size_t i = 0; job->prints && i < job_pieces(job); i++) {
        const struct refer_piece *piece = &job->prints[i];
        if (!piece->is_referenced)
            continue;
        bool follows = range.length > 0 && piece->at == range.to + range.length &&
                       piece->from == range.from + range.length;
        TRY(follows ? 0 : refer_range(save, range));
        if (!follows)
            range = (struct range){.from = piece->from, .to = piece->at};
        range.length += piece->print.length;
    }
    return refer_range(save, range);
}

int refer_apply(const struct cairn_save *save)
{
    const struct refer_older *older = &save->publishing.older;
    if (!older->version)
        return 0;
    EACH_JOB(job, save)
    {
        TRY(refer_job(save, job));
    }
    if (is_unchanged(older->version, older->fd))
        return 0;
    cause_note("%s: the version before it, which it refers to, was changed", save->path);
    return -ESTALE;
}

/* --- a new version ---------------------------------------------------------------------------- */

static void take_prints(struct job *job, struct refer_entry *ret)
{
    *ret = (struct refer_entry){.key = job->key,
                                .has_crcs = job->crcs != NULL,
                                .count = job_pieces(job),
                                .pieces = job->prints};
    for (size_t k = 0; k < ret->count && job->crcs; k++)
        ret->pieces[k].crc = job->crcs[k];
    job->key = NULL;
    job->prints = NULL;
}

/* NULL: no memory, or another file has the name by now. */
static struct refer_version *version_of(struct cairn_save *save)
{
    struct refer_version *version = calloc(1, sizeof *version);
    size_t count = 1;
    if (!version)
        return NULL;
    EACH_BATCH(batch, save)
    {
        count += batch->job_count;
    }
    version->refs = 1;
    version->entries = calloc(count, sizeof *version->entries);
    version->path = strdup(save->path);
    _cleanup_close_ int fd = open_version(save->path);
    const struct stat *ours = &save->publishing.file;
    bool is_ours = fd >= 0 && fstat(fd, &version->st) == 0 && version->st.st_dev == ours->st_dev &&
                   version->st.st_ino == ours->st_ino;
    if (!version->entries || !version->path || !is_ours) {
        version_free(version);
        return NULL;
    }
    version->pattern = save->publishing.older.pattern;
    save->publishing.older.pattern = NULL;
    EACH_JOB(job, save)
    {
        if (job->prints)
            take_prints(job, &version->entries[version->count++]);
    }
    qsort(version->entries, version->count, sizeof *version->entries, entries_by_key);
    return version;
}

static void put_first_locked(struct refer *refer, struct refer_version *version)
{
    check_rank_held(LOCK_LANE);
    size_t i = 0;
    while (i < REFER_VERSIONS_MAX - 1 && refer->versions[i] &&
           strcmp(refer->versions[i]->pattern, version->pattern) != 0)
        i++;
    version_unref_locked(refer->versions[i]);
    for (; i > 0; i--)
        refer->versions[i] = refer->versions[i - 1];
    refer->versions[0] = version;
}

void refer_publish(struct cairn_save *save)
{
    struct refer_version *version = save->publishing.older.pattern ? version_of(save) : NULL;
    if (!version)
        return;
    LOCK_SCOPE(&save->lane->lock);
    put_first_locked(&save->lane->refer, version);
}
