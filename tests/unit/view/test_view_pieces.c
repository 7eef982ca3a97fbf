// SPDX-License-Identifier: Apache-2.0
#include "../expect.h"
#include "helpers.h"

#include <stdio.h>

#include "view/apply.h"

/* "C@0:10 .@20:5": C a chunk, `within` is always the distance from the piece's first form. */
static void list_of(struct piece_list *list, const char *text)
{
    int n;
    char kind;
    unsigned offset, length;
    *list = (struct piece_list){0};
    while (sscanf(text, " %c@%u:%u%n", &kind, &offset, &length, &n) == 3) {
        struct piece p = {
            .offset = offset, .length = length, .kind = kind == '.' ? EXTENT_HOLE : EXTENT_CHUNK};
        p.chunk.bytes[0] = (uint8_t)kind;
        vector_add(list, p);
        text += n;
    }
}

static void expect_list(const struct piece_list *list, const char *expected)
{
    char text[500] = "";
    for (size_t i = 0; i < list->count; i++) {
        const struct piece *p = &list->at[i];
        sprintf(text + strlen(text), "%s%c+%u@%u:%u", i ? " " : "", p->chunk.bytes[0], p->within,
                (unsigned)p->offset, (unsigned)p->length);
    }
    expect_str(text, expected);
}

static void expect_overlay(const char *older, const char *newer, const char *expected)
{
    struct piece_list o, n, result;
    list_of(&o, older);
    list_of(&n, newer);
    pieces_overlay(&o, &n, &result);
    expect_list(&result, expected);
    vector_free(&o);
    vector_free(&n);
    vector_free(&result);
}

Test(pieces, overlay)
{
    expect_overlay("", "", "");
    expect_overlay("A@0:10", "", "A+0@0:10");
    expect_overlay("", "A@0:10", "A+0@0:10");
    expect_overlay("A@0:10", "B@0:10", "B+0@0:10");
    expect_overlay("A@0:10", "B@3:4", "A+0@0:3 B+0@3:4 A+7@7:3");
    expect_overlay("A@0:10 C@10:10 D@25:5", "B@5:22", "A+0@0:5 B+0@5:22 D+2@27:3");
    expect_overlay("A@10:10", "B@0:10 C@20:10", "B+0@0:10 A+0@10:10 C+0@20:10");
    expect_overlay("A@0:100", "B@0:1 C@1:1 D@99:1", "B+0@0:1 C+0@1:1 A+2@2:97 D+0@99:1");
    expect_overlay("A@0:100", "B@50:100", "A+0@0:50 B+0@50:100");
}

Test(pieces, flatten)
{
    struct piece_list list;
    list_of(&list, "A@0:10 B@5:10 C@2:1 D@30:5 E@0:1 F@31:1");
    pieces_flatten(&list);
    expect_list(&list, "E+0@0:1 A+1@1:1 C+0@2:1 A+3@3:2 B+0@5:10 D+0@30:1 F+0@31:1 D+2@32:3");
    vector_free(&list);
}
