// SPDX-License-Identifier: Apache-2.0
/* Files, and all else that is no directory. Content is its node's: each node's runs have rows of
 * the files that it has, and the union must have the inode of each of them, and of no other. So
 * such an inode is in the union exactly as long as its node has it, whatever became of its names.
 *
 * Names may differ: a rule took one away, or a rename was not done. What holds is their number. A
 * node counts names of the inode; the union has `nlink` of these, though maybe others, and *lacks*
 * the rest. How many it lacks is kept in the inode's stand-in (its `parent`). An inode without a
 * name whose node has one is an orphan meanwhile. */
#include <stdio.h>
#include <sys/stat.h>

#include "base/vector.h"
#include "nodes/merge_internal.h"

#define ASIDE_SUFFIX_LEN 15u /* ".cairn-" and 8 digits */

int owned_is_file(struct merge *m, uint64_t ino)
{
    struct view_inode inode;
    int r = view_inode(m->view, ino, &inode);
    return r == -ENOENT ? 0 : r < 0 ? r : !S_ISDIR(inode.attrs.mode);
}

void place_aside(struct place *place, uint64_t epoch)
{
    uint16_t kept = place->len;
    if (kept > NAME_LEN_MAX - ASIDE_SUFFIX_LEN)
        kept = NAME_LEN_MAX - ASIDE_SUFFIX_LEN;
    int len = snprintf(place->name + kept, ASIDE_SUFFIX_LEN + 1, ".cairn-%llu",
                       (unsigned long long)epoch);
    place->len = (uint16_t)(kept + (uint16_t)len);
}

static int read_lacking(struct merge *m, uint64_t ino, uint64_t *ret)
{
    struct view_stand_in row;
    int r = view_stand_in(m->view, ino, &row);
    *ret = r == 0 ? row.parent : 0;
    return r == -ENOENT ? 0 : r;
}

static int write_lacking(struct merge *m, uint64_t ino, uint64_t count)
{
    return merge_apply(m, (struct record){.type = REC_STAND_IN,
                                          .ino = ino,
                                          .ino2 = count ? 0 : ino,
                                          .parent = count,
                                          .name = "-",
                                          .name_len = 1});
}

static int unlink_there(struct merge *m, const struct place *place, uint64_t ino, bool is_orphan)
{
    return merge_apply(m, (struct record){.type = REC_UNLINK,
                                          .flags = is_orphan ? RECORD_ORPHAN : 0,
                                          .ino = ino,
                                          .parent = place->parent,
                                          .name = place->name,
                                          .name_len = place->len});
}

int owned_give_way(struct merge *m, const struct place *place, uint64_t ino)
{
    struct view_inode inode;
    uint64_t lacking;
    TRY(view_inode(m->view, ino, &inode));
    TRY(read_lacking(m, ino, &lacking));
    TRY(unlink_there(m, place, ino, inode.nlink == 1));
    return write_lacking(m, ino, lacking + 1);
}

int owned_lack(struct merge *m, uint64_t ino)
{
    uint64_t lacking;
    TRY(read_lacking(m, ino, &lacking));
    return write_lacking(m, ino, lacking + 1);
}

/* --- some name of it -------------------------------------------------------------------------- */

struct search {
    uint64_t ino;
    struct place *found;
    VECTOR(uint64_t) dirs; /* to be looked at */
    bool is_found;
};

static int note_name(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    struct search *search = arg;
    if (S_ISDIR(entry->type))
        vector_add(&search->dirs, entry->ino);
    if (entry->ino != search->ino)
        return 0;
    search->found->len = (uint16_t)name_len;
    memcpy(search->found->name, name, name_len);
    search->is_found = true;
    return 1;
}

static int search_directory(struct merge *m, struct search *search, uint64_t dir)
{
    search->found->parent = dir;
    return view_readdir(m->view, dir, 0, note_name, search);
}

/* Looks at all names there are: for one of several names of an inode that is not where its node
 * has it. */
static int search_everywhere(struct merge *m, struct search *search)
{
    int r = 0;
    search->dirs.count = 0;
    vector_add(&search->dirs, ROOT_INO);
    while (r == 0 && !search->is_found && search->dirs.count > 0)
        r = search_directory(m, search, search->dirs.at[--search->dirs.count]);
    return r;
}

/* 1: it went aside, from a directory that has its name. */
static int is_aside(struct merge *m, uint64_t ino, const struct place *name, uint64_t epoch,
                    struct place *ret)
{
    struct view_entry entry;
    *ret = *name;
    place_aside(ret, epoch);
    int r = merge_look_up(m, ret, &entry);
    return r == -ENOENT ? 0 : r < 0 ? r : entry.ino == ino;
}

/* A name of the inode, which has one: of several, that which went aside from `name`. */
static int find_name(struct merge *m, const struct view_inode *inode, const struct place *name,
                     struct place *ret)
{
    struct search search = {.ino = inode->ino, .found = ret};
    int r = name ? is_aside(m, inode->ino, name, m->epoch, ret) : 0;
    if (r == 0 && name)
        r = is_aside(m, inode->ino, name, inode->ino >> 24 & EPOCH_MAX, ret);
    if (r != 0)
        return r < 0 ? r : 0;
    if (inode->parent)
        r = search_directory(m, &search, inode->parent);
    if (r == 0 && !search.is_found)
        r = search_everywhere(m, &search);
    vector_free(&search.dirs);
    return r < 0 ? r : search.is_found ? 0 : -EUCLEAN;
}

/* --- what its node does with it --------------------------------------------------------------- */

/* It loses a name that the union has. */
static int lose_there(struct merge *m, const struct place *place, const struct view_inode *inode,
                      uint64_t lacking, bool is_orphan)
{
    return unlink_there(m, place, inode->ino, inode->nlink == 1 && (is_orphan || lacking > 0));
}

/* It loses a name that the union lacks. */
static int lose_lacking(struct merge *m, const struct view_inode *inode, uint64_t lacking,
                        bool is_orphan)
{
    bool is_last = inode->nlink == 0 && lacking == 1;
    TRY(write_lacking(m, inode->ino, lacking - 1));
    return is_last && !is_orphan ? owned_reap(m, inode->ino) : 0;
}

int owned_lose(struct merge *m, uint64_t ino, const struct place *place, bool is_orphan)
{
    struct view_inode inode;
    struct view_entry entry = {0};
    struct place other;
    uint64_t lacking;
    TRY(view_inode(m->view, ino, &inode));
    TRY(read_lacking(m, ino, &lacking));
    int r = place ? merge_look_up(m, place, &entry) : -ENOENT;
    if (r < 0 && r != -ENOENT)
        return r;
    if (r == 0 && entry.ino == ino)
        return lose_there(m, place, &inode, lacking, is_orphan);
    if (lacking > 0)
        return lose_lacking(m, &inode, lacking, is_orphan);
    if (inode.nlink == 0)
        return merge_refuse(m);
    TRY(find_name(m, &inode, place, &other));
    return lose_there(m, &other, &inode, 0, is_orphan);
}

/* An inode comes to be with its first name: it has one for a moment. */
int owned_make_nameless(struct merge *m, struct record rec)
{
    struct place place = {.parent = ROOT_INO};
    struct view_entry taken;
    struct view_inode made;
    int r = 0;
    for (unsigned i = 0; r == 0; i++) {
        place.len = (uint16_t)snprintf(place.name, sizeof place.name, ".cairn-%llx-%u",
                                       (unsigned long long)rec.ino, i);
        r = merge_look_up(m, &place, &taken);
    }
    if (r != -ENOENT)
        return r;
    rec.parent = ROOT_INO;
    rec.name = place.name;
    rec.name_len = place.len;
    TRY(merge_settle_cookie(m, ROOT_INO, &rec.cookie));
    TRY(merge_apply(m, rec));
    r = view_inode(m->view, rec.ino, &made);
    if (r < 0)
        return r == -ENOENT ? 0 : r; /* it was impossible */
    return owned_give_way(m, &place, rec.ino);
}

int owned_reap(struct merge *m, uint64_t ino)
{
    struct view_inode inode;
    uint64_t lacking;
    TRY(view_inode(m->view, ino, &inode));
    TRY(read_lacking(m, ino, &lacking));
    for (uint32_t i = 0; i < inode.nlink; i++) { /* no node has it open that has names of it */
        struct place place;
        TRY(find_name(m, &inode, NULL, &place));
        TRY(unlink_there(m, &place, ino, i + 1 == inode.nlink));
        inode.parent = 0;
    }
    TRY(lacking ? write_lacking(m, ino, 0) : 0);
    return merge_apply(m, (struct record){.type = REC_REAP, .ino = ino});
}
