// SPDX-License-Identifier: Apache-2.0
/* Where two files differ, by the names of their chunks: equal names are equal content. Both are
 * read a window at a time, since a file of terabytes has millions of chunks. */
#include "base/clock.h"
#include "store/internal.h"
#include "store/lookback.h"
#include "store/reader.h"

#define WINDOW (1024ull * 1024 * 1024)

/* Without its bytes: those of EXTENT_INLINE are in `bytes` of the side. */
struct piece {
    struct extent extent;
    size_t bytes_at;
};

struct side {
    struct view *view;
    uint64_t ino, size, version;
    VECTOR(struct piece) pieces; /* of the window, without gaps; they end where the file ends */
    VECTOR(uint8_t) bytes;
    size_t next; /* the piece that is being compared */
};

struct comparison {
    struct side sides[2];
    struct reader_range differs; /* the last range, which may grow; length 0: none */
    int64_t until;               /* monotonic, ns: the rest then counts as different */
    int (*fn)(const struct reader_range *range, void *arg);
    void *arg;
};

static int add_piece(const struct view_extent *part, void *arg)
{
    struct side *side = arg;
    vector_add(&side->pieces, (struct piece){part->extent, side->bytes.count});
    if (part->extent.kind == EXTENT_INLINE)
        vector_add_all(&side->bytes, (const uint8_t *)part->bytes, part->extent.length);
    return 0;
}

static int load_window(struct side *side, uint64_t from)
{
    uint64_t version;
    const struct view_range range = {side->ino, from, WINDOW};
    side->pieces.count = side->bytes.count = side->next = 0;
    TRY(view_content(side->view, &range, &version, add_piece, side));
    return version == side->version ? 0 : -EAGAIN;
}

static const struct piece *piece_at(struct side *side, uint64_t at)
{
    while (side->next < side->pieces.count) {
        const struct piece *piece = &side->pieces.at[side->next];
        if (at < piece->extent.offset + piece->extent.length)
            return piece;
        side->next++;
    }
    return NULL;
}

/* Both pieces contain [at, at + length). */
static bool is_equal(const struct comparison *c, const struct piece *a, const struct piece *b,
                     uint64_t at, uint64_t length)
{
    uint64_t in_a = at - a->extent.offset, in_b = at - b->extent.offset;
    if (a->extent.kind != b->extent.kind)
        return false;
    if (a->extent.kind == EXTENT_CHUNK)
        return chunk_name_equal(&a->extent.chunk, &b->extent.chunk) &&
               a->extent.chunk_offset + in_a == b->extent.chunk_offset + in_b;
    return a->extent.kind == EXTENT_HOLE ||
           memcmp(c->sides[0].bytes.at + a->bytes_at + in_a,
                  c->sides[1].bytes.at + b->bytes_at + in_b, length) == 0;
}

static int tell(struct comparison *c)
{
    struct reader_range range = c->differs;
    c->differs.length = 0;
    return range.length ? c->fn(&range, c->arg) : 0;
}

static int note_difference(struct comparison *c, uint64_t at, uint64_t length)
{
    if (c->differs.length && c->differs.offset + c->differs.length == at) {
        c->differs.length += length;
        return 0;
    }
    int r = tell(c);
    c->differs = (struct reader_range){at, length};
    return r;
}

/* Compares from `at` to `end`, which both files have. */
static int compare_window(struct comparison *c, uint64_t at, uint64_t end)
{
    TRY(load_window(&c->sides[0], at));
    TRY(load_window(&c->sides[1], at));
    while (at < end) {
        const struct piece *a = piece_at(&c->sides[0], at), *b = piece_at(&c->sides[1], at);
        if (!a || !b)
            return -EUCLEAN;
        uint64_t to =
            min_u64(a->extent.offset + a->extent.length, b->extent.offset + b->extent.length);
        to = min_u64(to, end);
        if (!is_equal(c, a, b, at, to - at))
            TRY(note_difference(c, at, to - at));
        at = to;
    }
    return 0;
}

static int compare_files(struct comparison *c)
{
    for (unsigned i = 0; i < ARRAY_LEN(c->sides); i++) {
        struct view_inode inode;
        TRY(view_inode(c->sides[i].view, c->sides[i].ino, &inode));
        c->sides[i].size = inode.attrs.size;
        c->sides[i].version = inode.version;
    }
    uint64_t common = min_u64(c->sides[0].size, c->sides[1].size), at = 0;
    uint64_t longest = max_u64(c->sides[0].size, c->sides[1].size);
    for (; at < common && clock_monotonic_ns() < c->until; at = min_u64(at + WINDOW, common))
        TRY(compare_window(c, at, min_u64(at + WINDOW, common)));
    if (longest > at)
        TRY(note_difference(c, at, longest - at));
    return tell(c);
}

static int compare(struct comparison *c)
{
    int r = compare_files(c);
    for (unsigned i = 0; i < ARRAY_LEN(c->sides); i++) {
        vector_free(&c->sides[i].pieces);
        vector_free(&c->sides[i].bytes);
    }
    return r;
}

bool reader_can_differ(const struct store *one, const struct store *other)
{
    const struct superblock *a = &one->local.sb, *b = &other->local.sb;
    return memcmp(&a->key, &b->key, sizeof a->key) == 0;
}

int reader_differ(const struct reader_file *one, const struct reader_file *other,
                  int (*fn)(const struct reader_range *range, void *arg), void *arg)
{
    struct comparison c = {
        .sides = {{one->store->local.view, one->ino}, {other->store->local.view, other->ino}},
        .until = INT64_MAX,
        .fn = fn,
        .arg = arg};
    check(reader_can_differ(one->store, other->store));
    return compare(&c);
}

/* --- of a mount ------------------------------------------------------------------------------- */

static int enter_side(struct store *store, uint64_t ino, struct side *side)
{
    struct lookback *lookback = store_lookback(store);
    side->ino = past_number(ino);
    side->view = past_slot(ino) ? NULL : store->local.view;
    if (side->view)
        return 0;
    return lookback ? lookback_enter(lookback, past_slot(ino), &side->view) : -ESTALE;
}

static int check_current(struct store *store, uint64_t ino, const struct side *side)
{
    uint64_t version;
    if (past_slot(ino))
        return 0;
    TRY(store_version_in_view(store, ino, &version));
    return version == side->version ? 0 : -EAGAIN;
}

int store_differ(struct store *store, const struct store_differ *want)
{
    struct comparison c = {.until = want->until, .fn = want->fn, .arg = want->arg};
    uint64_t generation = change_generation(store->commit.change);
    int r = 0;
    for (unsigned i = 0; i < ARRAY_LEN(c.sides) && r == 0; i++)
        r = enter_side(store, want->inos[i], &c.sides[i]);
    if (r == 0)
        r = compare(&c);
    for (unsigned i = 0; i < ARRAY_LEN(c.sides); i++) {
        if (r == 0)
            r = check_current(store, want->inos[i], &c.sides[i]);
        if (c.sides[i].view && past_slot(want->inos[i]))
            past_views_leave(store->past, past_slot(want->inos[i]));
    }
    return r == 0 && change_generation(store->commit.change) != generation ? -EAGAIN : r;
}

int store_version_in_view(struct store *store, uint64_t ino, uint64_t *ret)
{
    struct view_inode below;
    struct ns_inode inode;
    TRY(view_inode(store->local.view, ino, &below));
    TRY(ns_inode(store->local.ns, ino, &inode));
    if (inode.is_elsewhere)
        return -EREMOTE;
    *ret = inode.version;
    return below.version == inode.version && store_is_durable(store, ino) ? 0 : -EAGAIN;
}
