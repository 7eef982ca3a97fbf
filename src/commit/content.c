// SPDX-License-Identifier: Apache-2.0
/* The content of a version on its way into packs: split into chunks, named, deduplicated, encoded,
 * placed; and the extents that describe the result. */
#include "base/pool.h"
#include "commit/packs_internal.h"
#include "commit/writeback_internal.h"

#define ALONE_MAX (64 * KIB)
/* bytes of a stretch that are split and passed to the workers at a time */
#define WINDOW_BYTES (64 * MIB)

void content_done(struct packs *packs, struct content *content)
{
    for (size_t i = 0; i < content->pinned.count; i++)
        packs_unpin(packs, content->pinned.at[i]);
    vector_free(&content->pinned);
    vector_free(&content->extents);
    free(content->inline_bytes);
    *content = (struct content){0};
}

/* --- chunks ----------------------------------------------------------------------------------- */

struct chunk_job {
    struct packs *packs;
    uint64_t offset; /* in the file */
    struct packs_chunk chunk;
};

static void write_chunk_job(void *arg)
{
    struct chunk_job *job = arg;
    packs_add(job->packs, &job->chunk, thread_buffer(THREAD_BUFFER_ENCODE, PACKS_SCRATCH_LEN));
}

/* The memory of consecutive parts as one list, and where application writes begin. */
struct stretch {
    struct iovec *iov;
    size_t iov_count;
    uint64_t *write_starts;
    size_t write_count;
    uint64_t offset, length;
};

static void stretch_build(struct stretch *stretch, const struct stage_part *parts, size_t count)
{
    *stretch = (struct stretch){.offset = parts[0].offset};
    stretch->iov = xcalloc(count, sizeof *stretch->iov);
    stretch->write_starts = xcalloc(count, sizeof *stretch->write_starts);
    for (size_t i = 0; i < count; i++) {
        stretch->iov[i] = (struct iovec){(void *)(uintptr_t)parts[i].memory, parts[i].length};
        if (parts[i].starts_write)
            stretch->write_starts[stretch->write_count++] = parts[i].offset;
        stretch->length += parts[i].length;
    }
    stretch->iov_count = count;
}

/* Returns [skip, skip + length) of `iov` as a new list. */
static struct iovec *slice_iovec(const struct iovec *iov, size_t count, uint64_t skip,
                                 uint64_t length, size_t *ret_count)
{
    size_t first = 0;
    while (skip >= iov[first].iov_len)
        skip -= iov[first++].iov_len;
    size_t used = 0;
    uint64_t covered = 0;
    for (size_t i = first; i < count && covered < skip + length; i++, used++)
        covered += iov[i].iov_len;
    struct iovec *out = xcalloc(used, sizeof *out);
    for (size_t i = 0; i < used; i++) {
        uint64_t from = i == 0 ? skip : 0;
        uint64_t len = min_u64(iov[first + i].iov_len - from, length);
        out[i] = (struct iovec){(uint8_t *)iov[first + i].iov_base + from, len};
        length -= len;
    }
    *ret_count = used;
    return out;
}

/* Computes the names of the chunks that end at `borders` (the first begins at `start`) and adds
 * their extents. */
static void write_chunks(struct commit *commit, const struct stretch *stretch, uint64_t start,
                         const uint64_t *borders, size_t border_count, struct content *content)
{
    _cleanup_free_ struct chunk_job *jobs = xcalloc(border_count, sizeof *jobs);
    for (size_t i = 0; i < border_count; i++) {
        struct chunk_job *job = &jobs[i];
        job->packs = commit->packs;
        job->offset = i ? borders[i - 1] : start;
        job->chunk.length = borders[i] - job->offset;
        job->chunk.iov =
            slice_iovec(stretch->iov, stretch->iov_count, job->offset - stretch->offset,
                        job->chunk.length, &job->chunk.iov_count);
        /* a single small chunk is finished before another thread would start */
        if (border_count == 1 && job->chunk.length <= ALONE_MAX)
            write_chunk_job(job);
        else
            pool_submit(commit->writeback->workers, write_chunk_job, job);
    }
    pool_drain(commit->writeback->workers);
    for (size_t i = 0; i < border_count; i++) {
        const struct packs_chunk *chunk = &jobs[i].chunk;
        vector_add(&content->extents, (struct extent){.offset = jobs[i].offset,
                                                      .length = chunk->length,
                                                      .kind = EXTENT_CHUNK,
                                                      .chunk = chunk->name});
        if (chunk->pinned)
            vector_add(&content->pinned, chunk->pinned);
        free(chunk->iov);
    }
}

/* Splits one window of a stretch, and moves *at to the start of the next: bytes that were held back
 * are read again. False: the stretch has ended, or its rest is held back. */
static bool write_window(struct commit *commit, const struct stretch *stretch, uint64_t *at,
                         struct chunker *state, bool more, struct content *content)
{
    uint64_t end = stretch->offset + stretch->length;
    uint64_t length = min_u64(end - *at, WINDOW_BYTES);
    size_t iov_count;
    _cleanup_free_ struct iovec *iov =
        slice_iovec(stretch->iov, stretch->iov_count, *at - stretch->offset, length, &iov_count);
    size_t first = 0, count = 0;
    while (first < stretch->write_count && stretch->write_starts[first] < *at)
        first++;
    while (first + count < stretch->write_count &&
           stretch->write_starts[first + count] < *at + length)
        count++;
    struct chunker_input in = {.iov = iov,
                               .iov_count = iov_count,
                               .offset = *at,
                               .write_starts = stretch->write_starts + first,
                               .write_count = count,
                               .is_last = *at + length == end && !more};
    size_t max = length / 512 + 16;
    _cleanup_free_ uint64_t *borders = xcalloc(max, sizeof *borders);
    size_t border_count = chunker_find_borders(state, &in, borders, max);
    if (border_count == 0)
        return false;
    write_chunks(commit, stretch, *at, borders, border_count, content);
    bool is_stuck = *at == borders[border_count - 1];
    *at = borders[border_count - 1];
    return !is_stuck && *at < end;
}

void content_write_stretch(struct commit *commit, const struct stage_part *parts, size_t count,
                           struct chunker *state, bool more, struct content *content)
{
    struct stretch stretch;
    stretch_build(&stretch, parts, count);
    uint64_t at = stretch.offset;
    if (at == 0 && !more)
        chunker_look_ahead(state, stretch.iov, stretch.iov_count);
    while (write_window(commit, &stretch, &at, state, more, content))
        ;
    free(stretch.iov);
    free(stretch.write_starts);
}

/* --- a version -------------------------------------------------------------------------------- */

static void keep_inline(struct content *content, const struct stage_part *part)
{
    if (!content->inline_bytes)
        content->inline_bytes = xmalloc(INLINE_MAX);
    memcpy(content->inline_bytes + content->inline_len, part->memory, part->length);
    content->inline_len += (uint32_t)part->length;
    vector_add(
        &content->extents,
        (struct extent){.offset = part->offset, .length = part->length, .kind = EXTENT_INLINE});
}

static void write_memory(struct commit *commit, const struct stage_part *parts, size_t count,
                         struct content *content)
{
    /* content from the middle of a file has no header to parse: its grid starts where it does */
    struct chunker state = {.anchor = parts[0].offset};
    content_write_stretch(commit, parts, count, &state, false, content);
    chunker_done(&state);
}

static bool part_continues(const struct stage_part *a, const struct stage_part *b)
{
    return a->kind == PART_MEMORY && b->kind == PART_MEMORY && a->offset + a->length == b->offset;
}

static void write_parts(struct commit *commit, const struct stage_part *parts, size_t count,
                        bool is_inline, struct content *content)
{
    for (size_t i = 0, next; i < count; i = next) {
        next = i + 1;
        if (parts[i].kind == PART_MEMORY && is_inline) {
            keep_inline(content, &parts[i]);
        } else if (parts[i].kind == PART_MEMORY) {
            while (next < count && part_continues(&parts[next - 1], &parts[next]))
                next++;
            write_memory(commit, parts + i, next - i, content);
        } else {
            struct extent extent = {
                .offset = parts[i].offset, .length = parts[i].length, .kind = EXTENT_HOLE};
            if (parts[i].kind == PART_CHUNK) {
                extent.kind = EXTENT_CHUNK;
                extent.chunk = parts[i].name;
                extent.chunk_offset = parts[i].chunk_offset;
            }
            vector_add(&content->extents, extent);
        }
    }
}

void content_write_layer(struct commit *commit, const struct stage_sealed *version,
                         struct content *ret)
{
    *ret = (struct content){0};
    _cleanup_free_ struct stage_part *parts = xcalloc(version->ranges, sizeof *parts);
    size_t count =
        stage_layer_parts(commit->local->stage, version->layer, 0, parts, version->ranges);
    bool is_inline = version->bytes <= INLINE_MAX && version->ranges <= RECORD_EXTENTS_MAX;
    write_parts(commit, parts, count, is_inline, ret);
}
