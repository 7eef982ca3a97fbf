// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/hex.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/survey_internal.h"
#include "fetch/fetch.h"

#define PARTS_PER_LOOK 4096

static char letter_of(uint32_t mode)
{
    return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : 'o';
}

static int list_in_source(struct walk *w, uint64_t ino)
{
    struct source_list list;
    TRY(source_list(w->source, ino, &list));
    for (size_t i = 0; i < list.count; i++) {
        const struct ns_inode *inode = &list.at[i].inode;
        survey_see_entry(w, letter_of(inode->attrs.mode), list.at[i].ino, inode->attrs.size,
                         inode->nlink, 0);
    }
    source_list_done(&list);
    return 0;
}

/* In a published state all content is in the remote. */
static void add_source_part(const struct survey_part *found, void *arg)
{
    struct walk *w = arg;
    if (!found->is_chunk) {
        survey_see_inline(w, found->length, found->length);
        return;
    }
    struct part part = {.refs = found->refs,
                        .length = found->length,
                        .uses = found->uses,
                        .raw = found->raw_len,
                        .stored = found->stored_len,
                        .where = (found->is_local ? 1 : 0) | (found->is_remote ? 2 : 0),
                        .encoding = found->encoding};
    hex_print(part.name, found->name.bytes, 16);
    if (found->is_remote) {
        part.remote_stored = found->remote.stored_len;
        part.remote_encoding = found->remote.encoding;
    }
    survey_see_chunk(w, &part);
}

static int read_in_source(struct walk *w, uint64_t ino)
{
    const struct survey_request want = {
        .ino = ino, .max = PARTS_PER_LOOK, .fn = add_source_part, .arg = w};
    uint64_t at = 0;
    bool more;
    do
        TRY(fetch_survey(w->source->store, &want, &at, &more));
    while (more);
    return 0;
}

/* Reads the items at the end of the list. */
static int look_into_source(struct walk *w)
{
    uint64_t ino;
    char kind;
    const struct item item = w->todo.at[--w->todo.count];
    check(sscanf(item.text, "%c%" SCNu64, &kind, &ino) == 2);
    int r = kind == 'd' ? list_in_source(w, ino) : read_in_source(w, ino);
    return r == 0 ? CLI_OK
                  : complain(w->command->name, "%s: %s", w->source->name, source_trouble(r));
}

int survey_source(const struct command *command, struct source *source,
                  const struct source_node *node, struct survey_sum *ret)
{
    struct walk w = {.command = command,
                     .look = look_into_source,
                     .source = source,
                     .drawn_at = clock_monotonic_ns()};
    const struct ns_inode *inode = &node->inode;
    interrupt_catch(false);
    survey_see_entry(&w, letter_of(inode->attrs.mode), node->ino, inode->attrs.size, inode->nlink,
                     0);
    return survey_walk_all(&w, ret);
}
