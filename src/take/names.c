// SPDX-License-Identifier: Apache-2.0
/* Makes names of this node equal to those of the union, one directory after the other.
 *
 * An inode loses its last name here only if the union has no name of it. So an inode that only
 * moves always has a name: the new one is added first. An inode of this node loses its last name
 * only if the union still has the inode, without a name: then another node removed or replaced the
 * file. The end of such an inode (REAP), when nobody has it open, is the only operation of take
 * that is published: by it the union loses the inode. */
#include <stdio.h>
#include <sys/stat.h>

#include "commit/touched.h"
#include "fs/taken.h"
#include "overlay/ns.h"
#include "take/internal.h"

#define STAND_INS_MAX 64u
#define LISTED_MAX 1024u

struct listed {
    uint64_t ino;
    uint32_t type;
    uint16_t len;
    char name[NAME_LEN_MAX + 1];
};

/* A part of a directory. */
struct listing {
    VECTOR(struct listed) list;
    uint64_t last; /* cookie of the last entry; the next part begins behind it */
    bool is_full;  /* there may be more entries */
};

static int add_listed(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    struct listing *listing = arg;
    struct listed *item = vector_next(&listing->list);
    *item = (struct listed){.ino = entry->ino, .type = entry->type, .len = (uint16_t)name_len};
    memcpy(item->name, name, name_len);
    listing->last = entry->cookie;
    listing->is_full = listing->list.count == LISTED_MAX;
    return listing->is_full;
}

static void next_part(struct listing *listing)
{
    listing->list.count = 0;
    listing->is_full = false;
}

/* Combines two results: an error, else TAKEN_LATER, prevails. */
static int worse(int a, int b)
{
    return a < 0 || (a == TAKEN_LATER && b >= 0) ? a : b;
}

/* --- inodes of this node in the union --------------------------------------------------------- */

enum standing {
    IS_THERE,  /* it, or the inode that stands for it, has a name in the union */
    IS_GONE,   /* it had a name */
    IS_UNKNOWN /* the union never had it */
};

static int stands_dir(struct take *take, uint64_t ino, uint64_t *ret_ino)
{
    for (unsigned i = 0; i < STAND_INS_MAX; i++) {
        struct view_inode inode;
        struct view_stand_in stand_in;
        int r = view_inode(take->view, ino, &inode);
        *ret_ino = ino;
        if (r != -ENOENT)
            return r < 0 ? r : IS_THERE;
        r = view_stand_in(take->view, ino, &stand_in);
        if (r < 0)
            return r == -ENOENT ? IS_UNKNOWN : r;
        if (stand_in.ino == 0)
            return IS_GONE;
        ino = stand_in.ino;
    }
    return IS_UNKNOWN;
}

/* *ret_names: how many names the union has of it. */
static int stands_file(struct take *take, uint64_t ino, uint32_t *ret_names)
{
    struct view_inode inode;
    int r = view_inode(take->view, ino, &inode);
    *ret_names = r == 0 ? inode.nlink : 0;
    if (r < 0)
        return r == -ENOENT ? IS_UNKNOWN : r;
    return inode.nlink ? IS_THERE : IS_GONE;
}

static bool is_newer_here(struct take *take, uint64_t dir, const struct listed *name, uint64_t ino)
{
    return touched_has_name(take->touched, dir, name->name, name->len) ||
           (ino && touched_has_inode(take->touched, ino));
}

static uint64_t local_of(struct take *take, uint64_t ino)
{
    struct ino_set *alias;
    HASH_FIND(hh, take->aliases, &ino, sizeof ino, alias);
    return alias ? alias->local : ino;
}

/* --- removing --------------------------------------------------------------------------------- */

static int unlink_name(struct take *take, uint64_t dir, const struct listed *name)
{
    struct record rec = {.type = REC_UNLINK,
                         .flags = RECORD_TAKEN,
                         .ino = name->ino,
                         .parent = dir,
                         .name = name->name,
                         .name_len = name->len};
    int r = take_commit(take, &rec);
    return r < 0 ? r : TAKEN_DONE;
}

static int remove_file(struct take *take, uint64_t dir, const struct listed *name,
                       const struct ns_inode *inode)
{
    uint32_t names;
    int r = stands_file(take, inode->ino, &names);
    if (r < 0)
        return r;
    bool is_lost = r == IS_UNKNOWN && store_owns_inode(take->options.store, inode->ino);
    bool is_one_of_more = inode->nlink > 1 && inode->nlink > names;
    if (!is_lost && (is_one_of_more || names == 0))
        return unlink_name(take, dir, name);
    return take_later(take, name->ino, name->name,
                      is_lost ? "the union never had it" : "the union has another name of it");
}

/* As stands_dir(). A directory that joined another one in the union, which exists here as well,
 * counts as gone: its entries move there. */
static int stands_dir_alone(struct take *take, uint64_t ino)
{
    uint64_t other, local;
    int r = stands_dir(take, ino, &other);
    if (r != IS_THERE)
        return r;
    int found = take_local_dir(take, other, &local);
    if (found < 0 && found != -ENOENT)
        return found;
    return found == 0 && local != ino ? IS_GONE : IS_THERE;
}

static int remove_entry(struct take *take, uint64_t dir, const struct listed *name);

static int remove_directory(struct take *take, uint64_t dir, const struct listed *name)
{
    int later, r = stands_dir_alone(take, name->ino);
    if (r < 0)
        return r;
    if (r == IS_THERE || (r == IS_UNKNOWN && store_owns_inode(take->options.store, name->ino)))
        return take_later(take, name->ino, name->name, "the union has that directory elsewhere");
    struct listing part = {.is_full = true};
    for (later = TAKEN_DONE; part.is_full && later >= 0;) {
        next_part(&part);
        r = ns_readdir(take->ns, name->ino, part.last, LISTED_MAX, add_listed, &part);
        later = worse(r, later);
        for (size_t i = 0; i < part.list.count && later >= 0; i++)
            later = worse(remove_entry(take, name->ino, &part.list.at[i]), later);
    }
    vector_free(&part.list);
    if (later != TAKEN_DONE)
        return later;
    return unlink_name(take, dir, name);
}

/* Removes a name that the union does not have. */
static int remove_entry(struct take *take, uint64_t dir, const struct listed *name)
{
    struct ns_inode inode;
    int r = ns_inode(take->ns, name->ino, &inode);
    if (r < 0)
        return r == -ENOENT ? TAKEN_DONE : r;
    if (inode.nascent || is_newer_here(take, dir, name, name->ino))
        return take_later(take, name->ino, name->name, "removed there, newer here");
    return S_ISDIR(inode.attrs.mode) ? remove_directory(take, dir, name)
                                     : remove_file(take, dir, name, &inode);
}

/* --- adding ----------------------------------------------------------------------------------- */

static int note_place(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    struct listed *place = arg;
    if (entry->ino != place->ino)
        return 0;
    place->len = (uint16_t)name_len;
    memcpy(place->name, name, name_len);
    return 1;
}

/* Moves the inode from the only name that it has here. */
static int move_entry(struct take *take, uint64_t dir, const struct listed *name,
                      const struct ns_inode *inode)
{
    struct listed place = {.ino = inode->ino};
    int r = ns_readdir(take->ns, inode->parent, 0, 1024, note_place, &place);
    if (r < 0)
        return r;
    if (place.len == 0)
        return take_later(take, inode->ino, name->name, "it has no name here to move from");
    if (is_newer_here(take, inode->parent, &place, inode->ino) ||
        (S_ISDIR(inode->attrs.mode) && ns_may_be_below(take->ns, dir, inode->ino)))
        return take_later(take, inode->ino, name->name, "moved there, newer here");
    struct record rec = {.type = REC_RENAME,
                         .flags = RECORD_TAKEN,
                         .ino = inode->ino,
                         .parent = inode->parent,
                         .parent2 = dir,
                         .name = place.name,
                         .name_len = place.len,
                         .name2 = name->name,
                         .name2_len = name->len};
    r = take_commit(take, &rec);
    return r < 0 ? r : TAKEN_DONE;
}

/* Adds a name. The other name that the inode has here is removed with its own directory. */
static int add_link(struct take *take, uint64_t dir, const struct listed *name,
                    const struct ns_inode *inode)
{
    if (inode->nlink == 0) {
        /* The inode was removed here after another node had moved it: it is created again once the
         * old one has ended. The kernel may know the old one as long as it likes, by an earlier
         * name. */
        if (!store_owns_inode(take->options.store, inode->ino))
            vector_add(&take->nameless, inode->ino);
        return take_later(take, inode->ino, name->name, "it was removed here");
    }
    struct record rec = {.type = REC_LINK,
                         .flags = RECORD_TAKEN,
                         .ino = inode->ino,
                         .parent = dir,
                         .name = name->name,
                         .name_len = name->len};
    int r = take_commit(take, &rec);
    return r < 0 ? r : TAKEN_DONE;
}

static int add_new(struct take *take, uint64_t dir, const struct listed *name)
{
    struct view_inode inode;
    int r = view_inode(take->view, name->ino, &inode);
    if (r < 0) /* another head is shown since the directory was listed */
        return r == -ENOENT ? take_later(take, name->ino, name->name, "gone since") : r;
    if (!S_ISDIR(inode.attrs.mode) && store_owns_inode(take->options.store, inode.ino))
        return take_later(take, inode.ino, name->name, "a file of this node, which it has no more");
    TRY(take_new_inode(take, &inode, dir, name->name, name->len));
    if (S_ISDIR(inode.attrs.mode))
        ino_set_add(&take->pending, inode.ino, 0);
    return TAKEN_DONE;
}

/* Adds an entry whose name is free here. */
static int add_entry(struct take *take, uint64_t dir, const struct listed *name)
{
    struct ns_inode inode;
    uint64_t local = local_of(take, name->ino);
    if (is_newer_here(take, dir, name, local))
        return take_later(take, name->ino, name->name, "newer here");
    int r = ns_inode(take->ns, local, &inode);
    if (r == -ENOENT)
        return add_new(take, dir, name);
    if (r < 0)
        return r;
    uint32_t names = 1;
    r = S_ISDIR(inode.attrs.mode) ? 0 : stands_file(take, inode.ino, &names);
    if (r < 0)
        return r;
    bool moves = names == 1 && inode.parent && (S_ISDIR(inode.attrs.mode) || inode.nlink == 1);
    return moves ? move_entry(take, dir, name, &inode) : add_link(take, dir, name, &inode);
}

/* The inode that has the name here has another name in the union: meanwhile it gets a name
 * beside. */
static int move_aside(struct take *take, uint64_t dir, const struct listed *name, uint64_t ino)
{
    struct listed aside = {.ino = ino};
    struct view_entry entry;
    aside.len =
        (uint16_t)snprintf(aside.name, sizeof aside.name, ".cairn-%llx", (unsigned long long)ino);
    int r = ns_lookup(take->ns, dir, aside.name, aside.len, &entry);
    if (r != -ENOENT)
        return r < 0 ? r : take_later(take, ino, name->name, "its place aside is taken");
    struct record rec = {.type = REC_RENAME,
                         .flags = RECORD_TAKEN,
                         .ino = ino,
                         .parent = dir,
                         .parent2 = dir,
                         .name = name->name,
                         .name_len = name->len,
                         .name2 = aside.name,
                         .name2_len = aside.len};
    r = take_commit(take, &rec);
    return r < 0 ? r : TAKEN_DONE;
}

/* Frees a name that another inode has here. */
static int clear_name(struct take *take, uint64_t dir, const struct listed *name, uint64_t ino)
{
    struct ns_inode inode;
    struct listed own = *name;
    uint32_t names;
    own.ino = ino;
    int r = ns_inode(take->ns, ino, &inode);
    if (r < 0)
        return r;
    if (inode.nascent || is_newer_here(take, dir, &own, ino))
        return take_later(take, ino, name->name, "another one there, newer here");
    bool is_dir = S_ISDIR(inode.attrs.mode);
    r = is_dir ? stands_dir_alone(take, ino) : stands_file(take, ino, &names);
    if (r < 0)
        return r;
    bool moves = r == IS_THERE && (is_dir || inode.nlink == 1);
    return moves ? move_aside(take, dir, name, ino) : remove_entry(take, dir, &own);
}

/* Joins a directory that exists on both sides under this name, and has another number in the
 * union. */
static int join_directory(struct take *take, const struct listed *name, uint64_t ino)
{
    uint64_t other;
    int r = stands_dir(take, ino, &other);
    if (r < 0)
        return r;
    if (r != IS_THERE || other != name->ino)
        return take_later(take, ino, name->name, "another directory there");
    ino_set_add(&take->aliases, name->ino, ino);
    ino_set_add(&take->pending, name->ino, 0);
    return TAKEN_DONE;
}

static int take_entry_closed(struct take *take, uint64_t dir, const struct listed *name)
{
    struct view_entry here;
    int r = ns_lookup(take->ns, dir, name->name, name->len, &here);
    if (r < 0 && r != -ENOENT)
        return r;
    if (r == 0 && here.ino == local_of(take, name->ino))
        return TAKEN_DONE;
    if (r == 0 && S_ISDIR(here.type) && S_ISDIR(name->type)) {
        r = join_directory(take, name, here.ino);
        if (r != TAKEN_LATER)
            return r;
        r = 0;
    }
    if (r == 0) {
        r = clear_name(take, dir, name, here.ino);
        if (r != TAKEN_DONE)
            return r;
    }
    return add_entry(take, dir, name);
}

/* --- a directory ------------------------------------------------------------------------------ */

typedef int entry_fn(struct take *take, uint64_t dir, const struct listed *name);

static int with_gate(struct take *take, uint64_t dir, const struct listing *part, entry_fn *fn)
{
    int later = TAKEN_DONE;
    for (size_t i = 0; i < part->list.count && later >= 0 && !atomic_load(&take->stops); i++) {
        fs_taken_begin(take->options.fs);
        later = worse(fn(take, dir, &part->list.at[i]), later);
        fs_taken_end(take->options.fs);
        take_end_nameless(take);
    }
    return later;
}

static int take_there(struct take *take, uint64_t ino, uint64_t dir)
{
    struct listing part = {.is_full = true};
    int later = TAKEN_DONE;
    while (part.is_full && later >= 0) {
        next_part(&part);
        later = worse(view_readdir(take->view, ino, part.last, add_listed, &part), later);
        if (later >= 0)
            later = worse(with_gate(take, dir, &part, take_entry_closed), later);
    }
    vector_free(&part.list);
    return later;
}

struct lacking {
    struct take *take;
    uint64_t ino;
    struct listing part;
};

static int note_lacking(const struct view_entry *entry, const char *name, size_t name_len,
                        void *arg)
{
    struct lacking *lacking = arg;
    struct view_entry there;
    int r = view_lookup(lacking->take->view, lacking->ino, name, name_len, &there);
    return r == -ENOENT ? add_listed(entry, name, name_len, &lacking->part) : r;
}

static int remove_entry_closed(struct take *take, uint64_t dir, const struct listed *name)
{
    struct view_entry here;
    int r = ns_lookup(take->ns, dir, name->name, name->len, &here);
    if (r < 0 || here.ino != name->ino)
        return r < 0 && r != -ENOENT ? r : TAKEN_DONE;
    return remove_entry(take, dir, name);
}

static int take_lacking(struct take *take, uint64_t ino, uint64_t dir)
{
    struct lacking lacking = {.take = take, .ino = ino, .part = {.is_full = true}};
    struct listing *part = &lacking.part;
    int later = TAKEN_DONE;
    while (part->is_full && later >= 0) {
        next_part(part);
        later =
            worse(ns_readdir(take->ns, dir, part->last, LISTED_MAX, note_lacking, &lacking), later);
        if (later >= 0)
            later = worse(with_gate(take, dir, part, remove_entry_closed), later);
    }
    vector_free(&part->list);
    return later;
}

int take_directory(struct take *take, uint64_t ino)
{
    uint64_t dir;
    int r = take_local_dir(take, ino, &dir);
    if (r < 0) /* it is created when its parent directory is compared */
        return r == -ENOENT ? TAKEN_DONE : r;
    int later = take_there(take, ino, dir);
    if (later >= 0)
        later = worse(take_lacking(take, ino, dir), later);
    if (later < 0)
        return later;
    fs_taken_begin(take->options.fs);
    later = worse(take_inode(take, ino), later);
    fs_taken_end(take->options.fs);
    return later;
}
