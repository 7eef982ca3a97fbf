// SPDX-License-Identifier: Apache-2.0
/* By order: a tensor is split every CHUNK_SIZE_MAX bytes, and nearly always either its last chunk
 * is shorter, or the chunk after it (a zip has some bytes between two tensors). So a file is
 * treated as a row of spans, each of which ends with a chunk shorter than CHUNK_SIZE_MAX. Spans of
 * equal length are assumed to be the same tensor; short spans may differ a little, since the bytes
 * between tensors contain the file's name, whose number may have one digit more. Where two spans
 * differ, the nearest place is searched from which the rows agree again; spans at corresponding
 * positions before it are the same tensor in two sizes. */
#include "dense/pairing.h"

#include "codec/chunker.h"

#define AGREE_SPANS 3u /* consecutive equal spans required for agreement */
#define BETWEEN_MAX CHUNKER_WRITE_MIN
#define BETWEEN_DIFFERENCE 128u /* plus a sixteenth of the shorter one */
#define SKIP_MAX 48u            /* spans skipped in search of it, in both rows together */

struct span {
    uint32_t first, count; /* of parts */
    uint64_t length;
};

DEFINE_VECTOR(spans, struct span);

static struct spans spans_of(const struct parts *parts)
{
    struct spans spans = {0};
    struct span span = {0};
    check(parts->count < UNPAIRED);
    for (size_t i = 0; i < parts->count; i++) {
        span.count++;
        span.length += parts->at[i].length;
        if (parts->at[i].length == CHUNK_SIZE_MAX && i + 1 < parts->count)
            continue;
        vector_add(&spans, span);
        span = (struct span){.first = (uint32_t)i + 1};
    }
    check(span.count == 0);
    return spans;
}

static bool spans_are_alike(const struct span *a, const struct span *b)
{
    uint64_t shorter = min_u64(a->length, b->length), longer = max_u64(a->length, b->length);
    return shorter == longer ||
           (longer < BETWEEN_MAX && longer - shorter <= BETWEEN_DIFFERENCE + shorter / 16);
}

struct row {
    const struct parts *parts;
    struct spans spans;
    size_t at; /* next span to be paired */
};

static void pair_spans(const struct row *row, size_t a, const struct row *base, size_t b,
                       uint32_t *ret)
{
    check(a < row->spans.count && b < base->spans.count);
    const struct span *span = &row->spans.at[a], *other = &base->spans.at[b];
    for (uint32_t i = 0; i < span->count && i < other->count; i++)
        if (row->parts->at[span->first + i].length == base->parts->at[other->first + i].length)
            ret[span->first + i] = other->first + i;
}

/* Are the next spans alike in both rows, or do both rows end there? */
static bool rows_agree(const struct row *row, size_t a, const struct row *base, size_t b)
{
    for (size_t i = 0; i < AGREE_SPANS; i++) {
        bool ends = a + i >= row->spans.count, base_ends = b + i >= base->spans.count;
        if (ends || base_ends)
            return ends && base_ends;
        if (!spans_are_alike(&row->spans.at[a + i], &base->spans.at[b + i]))
            return false;
    }
    return true;
}

/* Advances both rows to where they agree again. False: not within reach. */
static bool find_agreement(struct row *row, struct row *base, uint32_t *ret)
{
    for (size_t skipped = 1; skipped <= SKIP_MAX; skipped++)
        for (size_t a = 0; a <= skipped; a++) {
            size_t b = skipped - a;
            if (row->at + a > row->spans.count || base->at + b > base->spans.count ||
                !rows_agree(row, row->at + a, base, base->at + b))
                continue;
            for (size_t i = 0; a == b && i < a; i++)
                pair_spans(row, row->at + i, base, base->at + i, ret);
            row->at += a;
            base->at += b;
            return true;
        }
    return false;
}

/* Pairs backwards from the ends, as long as spans are alike. */
static void pair_tails(const struct row *row, const struct row *base, uint32_t *ret)
{
    size_t a = row->spans.count, b = base->spans.count;
    while (a > row->at && b > base->at &&
           spans_are_alike(&row->spans.at[a - 1], &base->spans.at[b - 1]))
        pair_spans(row, --a, base, --b, ret);
}

static void pair_rows(struct row *row, struct row *base, uint32_t *ret)
{
    while (row->at < row->spans.count && base->at < base->spans.count) {
        if (spans_are_alike(&row->spans.at[row->at], &base->spans.at[base->at])) {
            pair_spans(row, row->at++, base, base->at++, ret);
        } else if (!find_agreement(row, base, ret)) {
            pair_tails(row, base, ret);
            return;
        }
    }
}

static void unpair_all(const struct parts *parts, uint32_t *ret)
{
    for (size_t i = 0; i < parts->count; i++)
        ret[i] = UNPAIRED;
}

void parts_pair_by_order(const struct parts *parts, const struct parts *base, uint32_t *ret)
{
    struct row row = {.parts = parts, .spans = spans_of(parts)};
    struct row base_row = {.parts = base, .spans = spans_of(base)};
    unpair_all(parts, ret);
    pair_rows(&row, &base_row, ret);
    vector_free(&row.spans);
    vector_free(&base_row.spans);
}

bool parts_are_alike(const struct parts *parts, const struct parts *base)
{
    if (parts->count != base->count || parts->count == 0 ||
        !chunk_name_equal(&parts->at[0].chunk, &base->at[0].chunk))
        return false;
    for (size_t i = 0; i < parts->count; i++)
        if (parts->at[i].length != base->at[i].length)
            return false;
    return true;
}

/* --- by name ---------------------------------------------------------------------------------- */

/* The place in a tensor at which a part begins. */
struct place {
    uint64_t name, within;
    uint32_t length; /* of the part */
    uint32_t index;  /* of the part: the result of the search, not its key */
};

DEFINE_VECTOR(places, struct place);

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    if (x->within != y->within)
        return x->within < y->within ? -1 : 1;
    return (x->length > y->length) - (x->length < y->length);
}

/* Both parts and tensors ascend. A part that does not begin in a named tensor has no place. */
static struct places places_in_tensors(const struct parts *parts, const struct tensor_list *tensors)
{
    struct places places = {0};
    size_t t = 0;
    for (size_t i = 0; i < parts->count; i++) {
        const struct part *part = &parts->at[i];
        while (t < tensors->count && tensors->at[t].end <= part->offset)
            t++;
        if (t == tensors->count)
            break;
        const struct tensor *tensor = &tensors->at[t];
        if (tensor->start <= part->offset && tensor->name)
            vector_add(&places, (struct place){tensor->name, part->offset - tensor->start,
                                               part->length, (uint32_t)i});
    }
    return places;
}

void parts_pair_by_name(const struct parts *parts, const struct tensor_list *tensors,
                        const struct parts *base, const struct tensor_list *base_tensors,
                        uint32_t *ret)
{
    struct places places = places_in_tensors(parts, tensors),
                  others = places_in_tensors(base, base_tensors);
    unpair_all(parts, ret);
    vector_sort(&others, compare_places);
    for (size_t i = 0; i < places.count; i++) {
        struct place *found = vector_search(&others, &places.at[i], compare_places);
        if (!found || found->index == UNPAIRED)
            continue;
        check(ret[places.at[i].index] == UNPAIRED && found->index < base->count);
        ret[places.at[i].index] = found->index;
        found->index = UNPAIRED;
    }
    vector_free(&places);
    vector_free(&others);
}
