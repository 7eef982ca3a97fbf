// SPDX-License-Identifier: Apache-2.0
/* Files, and all other inodes except directories. The owner, the node that created the inode, has
 * the content: that node's runs have rows of its existing files, and the union must have exactly
 * the inodes of these. So such an inode is in the union from its birth to the REAP reported by its
 * owner, whatever happens to its names. Without a name it is an orphan.
 *
 * Names belong to the union, and any node may add, move and remove them. A mount reports with
 * RECORD_ORPHAN that the last name that it knew was removed. For its own files that removes all
 * names: nobody can keep a file whose content is about to be deleted. */
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

void place_aside(struct place *place, uint64_t ino)
{
    uint16_t kept = place->len;
    if (kept > NAME_LEN_MAX - ASIDE_SUFFIX_LEN)
        kept = NAME_LEN_MAX - ASIDE_SUFFIX_LEN;
    int len = snprintf(place->name + kept, ASIDE_SUFFIX_LEN + 1, ".cairn-%llu",
                       (unsigned long long)(ino >> 24 & EPOCH_MAX));
    place->len = (uint16_t)(kept + (uint16_t)len);
}

/* 1: the name belongs to another inode, or does not exist. */
static int is_elsewhere(struct merge *m, const struct place *place, uint64_t ino)
{
    struct view_entry entry;
    int r = merge_look_up(m, place, &entry);
    return r == -ENOENT ? 1 : r < 0 ? r : entry.ino != ino;
}

int owned_find(struct merge *m, struct place *place, uint64_t ino)
{
    int r = is_elsewhere(m, place, ino);
    if (r != 1)
        return r;
    place_aside(place, ino);
    return is_elsewhere(m, place, ino);
}

int owned_lose(struct merge *m, const struct place *place, uint64_t ino)
{
    struct view_inode inode;
    TRY(view_inode(m->view, ino, &inode));
    return merge_apply(m, (struct record){.type = REC_UNLINK,
                                          .flags = inode.nlink == 1 ? RECORD_ORPHAN : 0,
                                          .ino = ino,
                                          .parent = place->parent,
                                          .name = place->name,
                                          .name_len = place->len});
}

/* --- finding any name of an inode ------------------------------------------------------------- */

struct search {
    uint64_t ino;
    struct place *found;
    VECTOR(uint64_t) dirs; /* still to be searched */
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

/* Searches all names of the union. */
static int search_everywhere(struct merge *m, struct search *search)
{
    int r = 0;
    search->dirs.count = 0;
    vector_add(&search->dirs, ROOT_INO);
    while (r == 0 && !search->is_found && search->dirs.count > 0)
        r = search_directory(m, search, search->dirs.at[--search->dirs.count]);
    return r;
}

/* Finds any name of an inode that has one. */
static int find_name(struct merge *m, const struct view_inode *inode, struct place *ret)
{
    struct search search = {.ino = inode->ino, .found = ret};
    int r = inode->parent ? search_directory(m, &search, inode->parent) : 0;
    if (r == 0 && !search.is_found)
        r = search_everywhere(m, &search);
    vector_free(&search.dirs);
    return r < 0 ? r : search.is_found ? 0 : -EUCLEAN;
}

/* --- its end ---------------------------------------------------------------------------------- */

int owned_lose_all(struct merge *m, uint64_t ino)
{
    struct view_inode inode;
    struct place place;
    TRY(view_inode(m->view, ino, &inode));
    for (uint32_t left = inode.nlink; left > 0; left--) {
        TRY(find_name(m, &inode, &place));
        TRY(owned_lose(m, &place, ino));
        TRY(view_inode(m->view, ino, &inode));
    }
    return 0;
}

int owned_reap(struct merge *m, uint64_t ino)
{
    TRY(owned_lose_all(m, ino));
    return merge_apply(m, (struct record){.type = REC_REAP, .ino = ino});
}

/* --- without a place -------------------------------------------------------------------------- */

/* An inode is created with its first name, so it has one for a moment. */
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
    return owned_lose(m, &place, rec.ino);
}
