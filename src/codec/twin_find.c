// SPDX-License-Identifier: Apache-2.0
#include "codec/twin_find.h"

#include "codec/twin_index.h"
#include "codec/twin_kernels.h"
#include "format/le.h"

#define STRETCH 4096u    /* elements in one step of the search */
#define KEY_ELEMENTS 32u /* from a landmark on, from which its key is made */
#define KEY_LEN (2 * KEY_ELEMENTS)

/* Tensors follow each other, sometimes with short ones between two. So within BESIDE elements of a
 * match the image of the tensor before may end, or that of the tensor behind may begin. */
#define BESIDE 8192u
#define LAST_WORTH (64u * 1024) /* an image of at least these bytes is indexed by its end, too */

/* A match continues over elements that do not round to the image as long as it is likely to gain:
 * each such element costs 6 bytes, and one that fits saves at least 2. Behind a loss of LOSS_MAX it
 * ends. */
#define LOSS 3
#define LOSS_MAX 64
#define STEP_GROUPS 16u
#define STEP (STEP_GROUPS * TWIN_GROUP)

static uint64_t key_of(const uint8_t bytes[KEY_LEN])
{
    uint64_t h = 0;
    for (size_t i = 0; i < KEY_LEN; i += 8) {
        h = (h ^ get_le64(bytes + i)) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    return h * 0xd6e8feb86659fd93ull;
}

/* --- landmarks -------------------------------------------------------------------------------- */

/* Returns the landmarks of a stretch whose keys lie in the stretch, too. Close neighbours are left
 * out: in constant content every place is a landmark. */
static size_t spaced_landmarks(const struct twin_kernels *kernels, const uint8_t *values,
                               size_t count, uint16_t ret[STRETCH])
{
    if (count < KEY_ELEMENTS)
        return 0;
    size_t all = kernels->landmarks(values, count - KEY_ELEMENTS + 1, ret), kept = 0;
    for (size_t i = 0; i < all; i++)
        if (kept == 0 || ret[i] >= ret[kept - 1] + KEY_ELEMENTS)
            ret[kept++] = ret[i];
    return kept;
}

/* Stretches overlap, so that each key lies wholly in one stretch. */
static size_t stretch_len(size_t left)
{
    return (size_t)min_u64(left, STRETCH + KEY_ELEMENTS - 1);
}

void twin_index_add(struct twin_index *index, enum cpu_level level, const struct fx_guess *guess,
                    const void *bytes, size_t len, uint64_t tag)
{
    check(len <= CHUNK_SIZE_MAX);
    if (guess->width != 2)
        return;
    const uint8_t *values = (const uint8_t *)bytes + guess->phase;
    size_t count = (len - guess->phase) / 2;
    twin_index_begin(index, len, tag);
    if (count >= KEY_ELEMENTS)
        twin_index_put(index, key_of(values), guess->phase);
    for (size_t at = 0; at < count; at += STRETCH) {
        uint16_t marks[STRETCH];
        size_t n = spaced_landmarks(twin_kernels_of(level), values + 2 * at,
                                    stretch_len(count - at), marks);
        for (size_t i = 0; i < n; i++) {
            size_t offset = 2 * (at + marks[i]);
            twin_index_put(index, key_of(values + offset), (uint32_t)(guess->phase + offset));
        }
    }
    if (len >= LAST_WORTH) {
        size_t offset = 2 * (count - KEY_ELEMENTS);
        twin_index_put(index, key_of(values + offset), (uint32_t)(guess->phase + offset));
    }
}

/* --- matches ---------------------------------------------------------------------------------- */

struct search {
    const struct twin_index *index;
    const struct twin_kernels *kernels;
    const struct twin_images *images;
    const uint8_t *elements; /* of the chunk */
    size_t count, phase;
    size_t covered; /* the elements before it are matched, or were searched */
    size_t end;     /* the elements from it on are matched */
    unsigned gets;
    size_t match_count;
    struct twin_match matches[CHUNK_REFS_MAX + 1];
};

/* The growth of a match: its gain so far, the best gain, and the length at that point. */
struct growth {
    int gain, best;
    size_t len, best_len;
};

/* The lowest bit of the mask is the next element. False: the match ends here. */
static bool grow_by(struct growth *g, uint64_t mask, size_t count)
{
    for (size_t left = count; left > 0;) {
        size_t fit = mask ? (size_t)min_u64((uint64_t)__builtin_ctzll(mask), left) : left;
        g->len += fit;
        g->gain += (int)fit;
        left -= fit;
        if (g->gain > g->best) {
            g->best = g->gain;
            g->best_len = g->len;
        }
        if (left == 0)
            break;
        g->len++;
        g->gain -= LOSS;
        left--;
        mask = fit < 63 ? mask >> (fit + 1) : 0;
        if (g->gain < g->best - LOSS_MAX)
            return false;
    }
    return true;
}

static size_t grow_forwards(const struct search *s, const uint8_t *src, const uint8_t *image,
                            size_t most)
{
    struct growth g = {0};
    for (size_t at = 0; at < most; at += STEP) {
        uint8_t lows[2 * STEP];
        uint64_t masks[STEP_GROUPS];
        size_t count = (size_t)min_u64(STEP, most - at);
        s->kernels->split(src + 4 * at, image + 2 * at, count, lows, masks);
        for (size_t i = 0; i < count; i += TWIN_GROUP)
            if (!grow_by(&g, masks[i / TWIN_GROUP], (size_t)min_u64(TWIN_GROUP, count - i)))
                return g.best_len;
    }
    return g.best_len;
}

static uint64_t reversed_bits(uint64_t bits)
{
    bits = (bits >> 1 & 0x5555555555555555ull) | (bits & 0x5555555555555555ull) << 1;
    bits = (bits >> 2 & 0x3333333333333333ull) | (bits & 0x3333333333333333ull) << 2;
    bits = (bits >> 4 & 0x0f0f0f0f0f0f0f0full) | (bits & 0x0f0f0f0f0f0f0f0full) << 4;
    return __builtin_bswap64(bits);
}

/* As grow_forwards(), for the elements before `src` and `image`, towards the front. */
static size_t grow_backwards(const struct search *s, const uint8_t *src, const uint8_t *image,
                             size_t most)
{
    struct growth g = {0};
    for (size_t at = 0; at < most;) {
        uint8_t lows[2 * TWIN_GROUP];
        uint64_t mask;
        size_t count = (size_t)min_u64(TWIN_GROUP, most - at);
        at += count;
        s->kernels->split(src - 4 * at, image - 2 * at, count, lows, &mask);
        if (!grow_by(&g, reversed_bits(mask) >> (TWIN_GROUP - count), count))
            break;
    }
    return g.best_len;
}

static void drop_shortest(struct search *s)
{
    size_t shortest = 0;
    for (size_t i = 1; i < s->match_count; i++)
        if (s->matches[i].count < s->matches[shortest].count)
            shortest = i;
    s->match_count--;
    memmove(s->matches + shortest, s->matches + shortest + 1,
            (s->match_count - shortest) * sizeof *s->matches);
}

/* Keeps the longest matches, in the order of the chunk. */
static void note_match(struct search *s, const struct twin_match *match)
{
    size_t at = s->match_count++;
    for (; at > 0 && s->matches[at - 1].at > match->at; at--)
        s->matches[at] = s->matches[at - 1];
    s->matches[at] = *match;
    if (s->match_count > CHUNK_REFS_MAX)
        drop_shortest(s);
}

/* Compares the image from `place` on with the chunk from `element` on, and extends the match in
 * both directions. False: it is too short, or the image is not available. */
static bool match_at(struct search *s, size_t element, const struct twin_place *place)
{
    size_t len = 0;
    const uint8_t *image = s->images->get(s->images->arg, place->tag, &len);
    if (!image || len < place->offset)
        return false;
    const uint8_t *src = s->elements + 4 * element;
    image += place->offset;
    size_t behind =
        grow_forwards(s, src, image, (size_t)min_u64(s->end - element, (len - place->offset) / 2));
    size_t before = behind
                        ? grow_backwards(s, src, image,
                                         (size_t)min_u64(element - s->covered, place->offset / 2))
                        : 0;
    if (before + behind < TWIN_STRETCH_MIN)
        return false;
    note_match(s, &(struct twin_match){.tag = place->tag,
                                       .offset = (uint32_t)(place->offset - 2 * before),
                                       .at = (uint32_t)(s->phase + 4 * (element - before)),
                                       .count = (uint32_t)(before + behind)});
    s->covered = element + behind;
    return true;
}

static void match_landmark(struct search *s, size_t element, uint64_t key)
{
    struct twin_place places[TWIN_PLACES_MAX];
    size_t n = twin_index_get(s->index, key, places);
    for (size_t i = 0; i < n && s->gets < TWIN_GETS_MAX; i++) {
        s->gets++;
        if (match_at(s, element, &places[i]))
            return;
    }
}

static void search_elements(struct search *s)
{
    for (size_t at = 0; at < s->count && s->gets < TWIN_GETS_MAX;) {
        uint8_t values[2 * (STRETCH + KEY_ELEMENTS)];
        uint16_t marks[STRETCH];
        size_t len = stretch_len(s->count - at);
        s->kernels->round(s->elements + 4 * at, len, values);
        if (at == 0 && len >= KEY_ELEMENTS)
            match_landmark(s, 0, key_of(values));
        size_t n = spaced_landmarks(s->kernels, values, len, marks);
        for (size_t i = 0; i < n; i++)
            if (at + marks[i] >= s->covered)
                match_landmark(s, at + marks[i], key_of(values + 2 * marks[i]));
        at = (size_t)max_u64(at + STRETCH, s->covered);
    }
}

/* Looks up all elements from `at` to `to`, not only landmarks. */
static void search_closely(struct search *s, size_t at, size_t to)
{
    while (at + KEY_ELEMENTS <= to && s->gets < TWIN_GETS_MAX) {
        uint8_t values[2 * (STRETCH + KEY_ELEMENTS)];
        size_t len = stretch_len(to - at), next = at + STRETCH;
        s->kernels->round(s->elements + 4 * at, len, values);
        for (size_t i = 0; i < STRETCH && i + KEY_ELEMENTS <= len; i++) {
            match_landmark(s, at + i, key_of(values + 2 * i));
            if (s->covered > at + i) {
                next = s->covered;
                break;
            }
        }
        at = next;
    }
}

/* Searches between two matches, or between a match and an end of the chunk. */
static void search_gap(struct search *s, size_t from, size_t to)
{
    if (to - from < TWIN_STRETCH_MIN)
        return;
    s->covered = from;
    s->end = to;
    search_closely(s, from, (size_t)min_u64(to, from + BESIDE));
    search_closely(s, (size_t)max_u64(max_u64(s->covered, from + BESIDE), to - min_u64(to, BESIDE)),
                   to);
}

static void search_gaps(struct search *s)
{
    struct twin_match found[CHUNK_REFS_MAX];
    size_t count = s->match_count, from = 0;
    memcpy(found, s->matches, count * sizeof *found);
    for (size_t i = 0; i < count; i++) {
        size_t at = (found[i].at - s->phase) / 4;
        search_gap(s, from, at);
        from = at + found[i].count;
    }
    if (count > 0)
        search_gap(s, from, s->count);
}

size_t twin_find(const struct twin_index *index, enum cpu_level level, const struct fx_guess *guess,
                 const void *src, size_t raw_len, const struct twin_images *images,
                 struct twin_match ret[CHUNK_REFS_MAX])
{
    if (guess->width != 4)
        return 0;
    /* Numbers that were converted from fewer bits have more than one plane that is not noise, so
     * the guess does not show which one holds the exponent. */
    bool is_unsure = __builtin_popcount(guess->coded[0] | guess->coded[1]) > 1;
    struct search s = {.index = index, .kernels = twin_kernels_of(level), .images = images};
    for (size_t i = 0; i < (is_unsure ? 4 : 1) && s.match_count == 0; i++) {
        s.phase = (guess->phase + i) % 4;
        s.elements = (const uint8_t *)src + s.phase;
        s.count = (raw_len - s.phase) / 4;
        s.covered = 0;
        s.end = s.count;
        search_elements(&s);
        search_gaps(&s);
    }
    memcpy(ret, s.matches, s.match_count * sizeof *ret);
    return s.match_count;
}
