// SPDX-License-Identifier: Apache-2.0
/* Lays lists of content pieces over each other. */
#include "view/apply.h"

void piece_trim_front(struct piece *piece, uint64_t offset)
{
    uint64_t by = offset - piece->offset;
    check(by < piece->length);
    piece->offset = offset;
    piece->length -= by;
    if (piece->kind != EXTENT_HOLE)
        piece->within += (uint32_t)by;
    if (piece->bytes)
        piece->bytes += by;
}

/* Appends the part of `piece` within [from, to), if any. */
static void add_part(struct piece_list *list, const struct piece *piece, uint64_t from, uint64_t to)
{
    struct piece part = *piece;
    if (from > part.offset && from < piece_end(&part))
        piece_trim_front(&part, from);
    if (from >= piece_end(&part) || to <= part.offset)
        return;
    part.length = min_u64(piece_end(&part), to) - part.offset;
    vector_add(list, part);
}

void pieces_overlay(const struct piece_list *older, const struct piece_list *newer,
                    struct piece_list *ret_list)
{
    *ret_list = (struct piece_list){0};
    size_t o = 0;
    uint64_t done = 0; /* end of the range already in the result */
    for (size_t n = 0; n <= newer->count; n++) {
        uint64_t limit = n < newer->count ? newer->at[n].offset : UINT64_MAX;
        while (o < older->count && older->at[o].offset < limit) {
            add_part(ret_list, &older->at[o], done, limit);
            if (piece_end(&older->at[o]) > limit)
                break;
            o++;
        }
        if (n == newer->count)
            break;
        vector_add(ret_list, newer->at[n]);
        done = piece_end(&newer->at[n]);
    }
}

static bool is_flat(const struct piece_list *list)
{
    for (size_t i = 1; i < list->count; i++)
        if (list->at[i].offset < piece_end(&list->at[i - 1]))
            return false;
    return true;
}

/* Flattens both halves, then lays the later over the earlier: n log n, even for hostile orders. The
 * recursion depth is the logarithm of the count. */
void pieces_flatten(struct piece_list *list)
{
    if (list->count < 2 || is_flat(list))
        return;
    struct piece_list first = {0}, second = {0};
    for (size_t i = 0; i < list->count; i++)
        vector_add(i < list->count / 2 ? &first : &second, list->at[i]);
    pieces_flatten(&first);
    pieces_flatten(&second);
    vector_free(list);
    pieces_overlay(&first, &second, list);
    vector_free(&first);
    vector_free(&second);
}
