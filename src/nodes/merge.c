// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "base/vector.h"
#include "nodes/merge_internal.h"

#define STAND_INS_MAX 64u /* in a chain: each joined another one that was removed */

struct merge *merge_new(struct view *view)
{
    struct merge *m = xcalloc(1, sizeof *m);
    m->view = view;
    m->cut = view_state(view).applied_seq;
    return m;
}

void merge_free(struct merge *m)
{
    free(m);
}

void merge_set_cut(struct merge *m, uint64_t cut)
{
    check(cut >= m->cut);
    m->cut = cut;
}

struct merge_counts merge_counts(const struct merge *m)
{
    return m->counts;
}

/* --- stand-ins -------------------------------------------------------------------------------- */

static int forget_stand_in(struct merge *m, uint64_t ino)
{
    return merge_apply(
        m,
        (struct record){.type = REC_STAND_IN, .ino = ino, .ino2 = ino, .name = "-", .name_len = 1});
}

static int join(struct merge *m, uint64_t ino, uint64_t other)
{
    m->counts.joined++;
    return merge_apply(m, (struct record){.type = REC_STAND_IN,
                                          .ino = ino,
                                          .ino2 = other,
                                          .name = m->rec->name,
                                          .name_len = m->rec->name_len});
}

/* Removes a directory's name. Remembers its place, for nodes that do not know of the removal
 * yet. */
static int take_directory(struct merge *m, uint64_t parent, const char *name, uint16_t name_len,
                          uint64_t ino)
{
    struct view_inode inode;
    TRY(view_inode(m->view, ino, &inode));
    TRY(merge_apply(
        m,
        (struct record){
            .type = REC_UNLINK, .ino = ino, .parent = parent, .name = name, .name_len = name_len}));
    return merge_apply(m, (struct record){.type = REC_STAND_IN,
                                          .ino = ino,
                                          .parent = parent,
                                          .attrs = inode.attrs,
                                          .name = name,
                                          .name_len = name_len});
}

/* --- directories ------------------------------------------------------------------------------ */

/* Replaces *ino by the directory that stands in for it. 1: it is removed, *ret_gone has its last
 * place; 0: it exists; -ENOENT: no such directory was ever reported. */
static int follow_stand_ins(struct merge *m, uint64_t *ino, struct view_stand_in *ret_gone)
{
    for (unsigned i = 0; i < STAND_INS_MAX; i++) {
        struct view_inode inode;
        int r = view_inode(m->view, *ino, &inode);
        if (r == 0)
            return S_ISDIR(inode.attrs.mode) ? 0 : -ENOENT;
        if (r != -ENOENT)
            return r;
        TRY(view_stand_in(m->view, *ino, ret_gone));
        if (ret_gone->ino == 0)
            return 1;
        *ino = ret_gone->ino;
    }
    return -ENOENT;
}

static struct place place_of(uint64_t parent, const char *name, uint16_t len)
{
    struct place place = {.parent = parent, .len = len};
    memcpy(place.name, name, len);
    return place;
}

static bool is_dir(const struct view_entry *entry)
{
    return S_ISDIR(entry->type);
}

/* Makes room for a file at a name: an older file there loses the name. */
enum way { FREE, DIRECTORY_THERE, ITSELF_THERE };
static int clear_for_file(struct merge *m, const struct place *place, uint64_t ino)
{
    struct view_entry old;
    int r = merge_look_up(m, place, &old);
    if (r < 0)
        return r == -ENOENT ? FREE : r;
    if (is_dir(&old) || old.ino == ino)
        return is_dir(&old) ? DIRECTORY_THERE : ITSELF_THERE;
    m->counts.replaced++;
    return owned_lose(m, place, old.ino);
}

/* Finds the place for a new name of a file: its own, or beside a directory with that name. 1:
 * none. */
static int find_place_for_file(struct merge *m, struct place *place, uint64_t ino)
{
    int r = clear_for_file(m, place, ino);
    if (r == DIRECTORY_THERE) {
        m->counts.renamed++;
        place_aside(place, ino);
        r = clear_for_file(m, place, ino);
    }
    return r > 0 ? 1 : r;
}

/* Moves the file at the place aside for a directory. 1: its new name belongs to a directory,
 * too. */
static int move_file_aside(struct merge *m, const struct place *place,
                           const struct view_entry *file)
{
    struct place aside = *place;
    place_aside(&aside, file->ino);
    int r = clear_for_file(m, &aside, file->ino);
    if (r != FREE)
        return r > 0 ? 1 : r;
    m->counts.renamed++;
    return merge_apply(m, (struct record){.type = REC_RENAME,
                                          .ino = file->ino,
                                          .parent = place->parent,
                                          .parent2 = place->parent,
                                          .cookie = file->cookie,
                                          .name = place->name,
                                          .name_len = place->len,
                                          .name2 = aside.name,
                                          .name2_len = aside.len});
}

/* 0: the place is free for a directory; 1: another directory has it, *ret. */
static int clear_for_directory(struct merge *m, const struct place *place, struct view_entry *ret)
{
    int r = merge_look_up(m, place, ret);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (is_dir(ret))
        return 1;
    r = move_file_aside(m, place, ret);
    return r == 1 ? owned_lose(m, place, ret->ino) : r;
}

/* A directory was removed while another node created an entry in it: restores it under its last
 * name, or joins it with the directory that has this name now. */
static int revive(struct merge *m, uint64_t *ino, const struct view_stand_in *gone)
{
    struct place place = place_of(gone->parent, gone->name, gone->name_len);
    struct view_entry other;
    int r = clear_for_directory(m, &place, &other);
    if (r < 0)
        return r;
    if (r == 1) {
        TRY(join(m, *ino, other.ino));
        *ino = other.ino;
        return 0;
    }
    m->counts.revived++;
    TRY(forget_stand_in(m, *ino));
    int64_t now = m->rec->time;
    return merge_apply(m, (struct record){.type = REC_MAKE,
                                          .ino = *ino,
                                          .parent = place.parent,
                                          .cookie = m->rec->seq,
                                          .attrs = {.mode = gone->mode,
                                                    .uid = gone->uid,
                                                    .gid = gone->gid,
                                                    .atime = now,
                                                    .mtime = now,
                                                    .ctime = now,
                                                    .btime = now},
                                          .name = place.name,
                                          .name_len = place.len});
}

/* Replaces *ino by an existing directory, with all its ancestors. 1: impossible. From the top down:
 * the last parent of a removed directory may be removed, too. */
static int ensure_directory(struct merge *m, uint64_t *ino)
{
    VECTOR(uint64_t) gone = {0};
    struct view_stand_in last;
    uint64_t at = *ino;
    int r;
    while ((r = follow_stand_ins(m, &at, &last)) == 1) {
        vector_add(&gone, at);
        at = last.parent;
    }
    for (size_t i = gone.count; i > 0 && r == 0; i--) {
        uint64_t revived = gone.at[i - 1];
        r = view_stand_in(m->view, revived, &last);
        last.parent = at;
        if (r == 0)
            r = revive(m, &revived, &last);
        at = revived;
    }
    vector_free(&gone);
    *ino = at;
    return r == -ENOENT ? 1 : r;
}

/* As ensure_directory(), but restores nothing. 1: the directory does not exist. */
static int find_directory(struct merge *m, uint64_t *ino)
{
    struct view_stand_in gone;
    int r = follow_stand_ins(m, ino, &gone);
    return r == -ENOENT ? 1 : r;
}

/* --- the operations --------------------------------------------------------------------------- */

static int merge_make_directory(struct merge *m, struct record rec)
{
    struct place place = place_of(rec.parent, rec.name, rec.name_len);
    struct view_entry other;
    int r = clear_for_directory(m, &place, &other);
    if (r == 1)
        return join(m, rec.ino, other.ino);
    if (r == 0)
        r = merge_settle_cookie(m, rec.parent, &rec.cookie);
    return r < 0 ? r : merge_apply(m, rec);
}

/* Adds a new name of an inode other than a directory. 1: it has no place. */
static int merge_new_name(struct merge *m, struct record rec)
{
    struct place place = place_of(rec.parent, rec.name, rec.name_len);
    int r = find_place_for_file(m, &place, rec.ino);
    if (r != 0)
        return r;
    rec.name = place.name;
    rec.name_len = place.len;
    TRY(merge_settle_cookie(m, rec.parent, &rec.cookie));
    return merge_apply(m, rec);
}

static int refuse_impossible(struct merge *m)
{
    m->counts.impossible++;
    return 0;
}

static int merge_make(struct merge *m, struct record rec)
{
    struct view_inode inode;
    bool is_directory = S_ISDIR(rec.attrs.mode);
    int r = m->op->owns ? view_inode(m->view, rec.ino, &inode) : 0;
    if (r != -ENOENT)
        return r < 0 ? r : refuse_impossible(m);
    r = ensure_directory(m, &rec.parent);
    if (r == 0)
        r = is_directory ? merge_make_directory(m, rec) : merge_new_name(m, rec);
    if (r != 1)
        return r;
    (void)merge_refuse(m);
    return is_directory ? 0 : owned_make_nameless(m, rec);
}

/* Only the owner has the content: a node that writes to another's file creates one of its own. */
static int merge_version(struct merge *m, struct record rec)
{
    struct view_inode inode;
    if (rec.flags & RECORD_BIRTH)
        return merge_make(m, rec);
    int r = m->op->owns ? view_inode(m->view, rec.ino, &inode) : -ENOENT;
    if (r == -ENOENT || (r == 0 && (!S_ISREG(inode.attrs.mode) || rec.version <= inode.version)))
        return merge_refuse(m);
    return r < 0 ? r : merge_apply(m, rec);
}

/* The owner of a file may add a name after others have removed the last one, without knowing of
 * that. */
static int merge_link(struct merge *m, struct record rec)
{
    struct view_inode inode;
    int r = view_inode(m->view, rec.ino, &inode);
    rec.flags = r == 0 && inode.nlink == 0 ? RECORD_ORPHAN : 0;
    if (r == 0)
        r = S_ISDIR(inode.attrs.mode) || (rec.flags && !m->op->owns)
                ? 1
                : ensure_directory(m, &rec.parent);
    if (r == 0)
        r = merge_new_name(m, rec);
    return r == 1 || r == -ENOENT ? merge_refuse(m) : r;
}

/* 1: the name belongs to another inode, or does not exist. */
static int find_own(struct merge *m, const struct place *place, uint64_t ino,
                    struct view_entry *ret)
{
    struct view_stand_in gone;
    int r = merge_look_up(m, place, ret);
    if (r < 0)
        return r == -ENOENT ? 1 : r;
    if (is_dir(ret)) {
        r = follow_stand_ins(m, &ino, &gone);
        if (r != 0)
            return r == -ENOENT ? 1 : r;
    }
    return ret->ino != ino;
}

/* 1: it has entries. */
static int is_filled(struct merge *m, const struct view_entry *dir)
{
    struct view_entry first;
    int r = is_dir(dir) ? merge_first_entry(m, dir->ino, 0, &first) : -ENOENT;
    return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

static int merge_rmdir(struct merge *m, struct record rec)
{
    struct view_entry entry;
    int r = find_directory(m, &rec.parent);
    struct place place = place_of(rec.parent, rec.name, rec.name_len);
    if (r == 0)
        r = find_own(m, &place, rec.ino, &entry);
    if (r == 0)
        r = is_filled(m, &entry);
    if (r != 0)
        return r < 0 ? r : merge_refuse(m);
    return take_directory(m, place.parent, place.name, place.len, entry.ino);
}

/* The last name, as far as the node knew, of its own file is removed. */
static int end_names(struct merge *m, uint64_t ino, bool owns)
{
    bool is_last = owns && m->rec->flags & RECORD_ORPHAN;
    return is_last ? owned_lose_all(m, ino) : 0;
}

static int merge_unlink(struct merge *m, struct record rec)
{
    int file = owned_is_file(m, rec.ino);
    if (file <= 0)
        return file < 0 ? file : merge_rmdir(m, rec);
    int r = find_directory(m, &rec.parent);
    struct place place = place_of(rec.parent, rec.name, rec.name_len);
    if (r == 0)
        r = owned_find(m, &place, rec.ino);
    r = r == 0 ? owned_lose(m, &place, rec.ino) : r == 1 ? merge_refuse(m) : r;
    return r < 0 ? r : end_names(m, rec.ino, m->op->owns);
}

/* A directory, or another node's file, is not removed by it: only the reporting node no longer has
 * it. */
static int merge_reap(struct merge *m, const struct record *rec)
{
    int file = m->op->owns ? owned_is_file(m, rec->ino) : 0;
    return file <= 0 ? file : owned_reap(m, rec->ino);
}

/* 1: `dir` is at or below `above`. */
static int is_below(struct merge *m, uint64_t dir, uint64_t above)
{
    while (dir != above) {
        struct view_inode inode;
        if (dir == ROOT_INO)
            return 0;
        TRY(view_inode(m->view, dir, &inode));
        dir = inode.parent;
    }
    return 1;
}

/* The replaced inode must be there as the node knew it; an entry that it did not know stays. 1: it
 * is not. *ret_ino2: the inode to be replaced now, 0: none. */
static int check_target(struct merge *m, const struct record *rec, const struct place *to,
                        const struct view_entry *moved, uint64_t *ret_ino2)
{
    struct view_entry old;
    int r = merge_look_up(m, to, &old);
    *ret_ino2 = 0;
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    r = find_own(m, to, rec->ino2, &old);
    if (r != 0)
        return r;
    if (old.ino == moved->ino || is_dir(&old) != is_dir(moved))
        return 1;
    *ret_ino2 = old.ino;
    return is_filled(m, &old);
}

/* Finds both names with the inodes that the node knew. 1: they have others. */
static int find_both(struct merge *m, struct record *rec, const struct place *from,
                     const struct place *to, struct view_entry *moved, struct view_entry *other)
{
    int r = find_own(m, from, rec->ino, moved);
    if (r == 0)
        r = find_own(m, to, rec->ino2, other);
    if (r == 0 && is_dir(moved))
        r = is_below(m, to->parent, moved->ino);
    if (r == 0 && is_dir(other))
        r = is_below(m, from->parent, other->ino);
    rec->ino = moved->ino;
    rec->ino2 = other->ino;
    return r;
}

static int merge_exchange(struct merge *m, struct record rec, const struct place *from,
                          const struct place *to)
{
    struct view_entry moved = {0}, other = {0};
    int r = find_both(m, &rec, from, to, &moved, &other);
    if (r != 0)
        return r;
    rec.cookie = other.cookie;
    rec.cookie2 = moved.cookie;
    return merge_apply(m, rec);
}

/* Handles the file replaced by a rename, whether the rename was done here or not. Directories stay,
 * as others may use them. */
static int end_replaced(struct merge *m, const struct record *rec)
{
    bool replaces = rec->ino2 && !(rec->flags & RECORD_EXCHANGE);
    int file = replaces ? owned_is_file(m, rec->ino2) : 0;
    return file <= 0 ? file : end_names(m, rec->ino2, m->op->owns2);
}

static int merge_rename_over(struct merge *m, struct record rec, const struct place *from,
                             const struct place *to)
{
    struct view_entry moved;
    uint64_t replaced;
    int r = find_own(m, from, rec.ino, &moved);
    if (r == 0 && is_dir(&moved))
        r = is_below(m, to->parent, moved.ino);
    if (r == 0)
        r = check_target(m, &rec, to, &moved, &replaced);
    if (r != 0)
        return r;
    /* in two steps, so that a directory is remembered, and a file lives until its owner's REAP */
    if (replaced && is_dir(&moved))
        TRY(take_directory(m, to->parent, to->name, to->len, replaced));
    else if (replaced)
        TRY(owned_lose(m, to, replaced));
    rec.ino = moved.ino;
    rec.ino2 = 0;
    rec.flags = 0;
    if (rec.cookie != moved.cookie || rec.parent != rec.parent2)
        TRY(merge_settle_cookie(m, rec.parent2, &rec.cookie));
    return merge_apply(m, rec);
}

/* The rename is refused. But if others removed the last name of the file, and its owner renamed it
 * without knowing that, the file gets only the new name: otherwise it would be lost, with
 * acknowledged content. */
static int name_again(struct merge *m)
{
    const struct record *rec = m->rec;
    struct view_inode inode;
    bool may = m->op->owns && !(rec->flags & RECORD_EXCHANGE);
    int r = may ? view_inode(m->view, rec->ino, &inode) : -ENOENT;
    if (r < 0 || inode.nlink > 0)
        return r < 0 && r != -ENOENT ? r : merge_refuse(m);
    return merge_link(m, (struct record){.type = REC_LINK,
                                         .ino = rec->ino,
                                         .parent = rec->parent2,
                                         .cookie = rec->cookie,
                                         .name = rec->name2,
                                         .name_len = rec->name2_len});
}

static int merge_rename(struct merge *m, struct record rec)
{
    int r = find_directory(m, &rec.parent);
    if (r == 0)
        r = ensure_directory(m, &rec.parent2);
    struct place from = place_of(rec.parent, rec.name, rec.name_len);
    struct place to = place_of(rec.parent2, rec.name2, rec.name2_len);
    if (r == 0)
        r = rec.flags & RECORD_EXCHANGE ? merge_exchange(m, rec, &from, &to)
                                        : merge_rename_over(m, rec, &from, &to);
    r = r == 1 ? name_again(m) : r;
    return r < 0 ? r : end_replaced(m, m->rec);
}

/* Finds the inode whose attributes change: for a directory, its stand-in. */
static int find_inode(struct merge *m, uint64_t *ino)
{
    struct view_inode inode;
    int r = view_inode(m->view, *ino, &inode);
    return r == -ENOENT ? find_directory(m, ino) : r;
}

static int merge_attributes(struct merge *m, struct record rec)
{
    int r = find_inode(m, &rec.ino);
    if (r == 0 && rec.type == REC_REMOVEXATTR) {
        ssize_t len = view_getxattr(m->view, rec.ino, rec.name, rec.name_len, NULL, 0);
        r = len == -ENODATA ? 1 : len < 0 ? (int)len : 0;
    }
    if (r != 0)
        return r < 0 ? r : merge_refuse(m);
    return merge_apply(m, rec);
}

int merge_record(struct merge *m, const struct merge_op *op)
{
    const struct record *rec = op->rec;
    m->op = op;
    m->rec = rec;
    m->counts.done++;
    switch (rec->type) {
    case REC_VERSION:
        return merge_version(m, *rec);
    case REC_MAKE:
        return merge_make(m, *rec);
    case REC_LINK:
        return merge_link(m, *rec);
    case REC_UNLINK:
        return merge_unlink(m, *rec);
    case REC_RENAME:
        return merge_rename(m, *rec);
    case REC_SETATTR:
    case REC_SETXATTR:
    case REC_REMOVEXATTR:
        return merge_attributes(m, *rec);
    case REC_REAP:
        return merge_reap(m, rec);
    default:
        return -EUCLEAN;
    }
}
