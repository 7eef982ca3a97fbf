// SPDX-License-Identifier: Apache-2.0
#include "nodes/merge.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/vector.h"

#define STAND_INS_MAX 64u    /* in a row: each joined another one that was removed */
#define ASIDE_SUFFIX_LEN 15u /* ".cairn-" and 8 digits */

struct merge {
    struct view *view;
    uint64_t cut;
    struct merge_counts counts;
    uint64_t epoch;           /* of the node whose operation is applied */
    const struct record *rec; /* that operation */
};

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

/* --- what is applied -------------------------------------------------------------------------- */

static int no_index(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                    void *fn_arg, bool *ret_was_made, void *arg)
{
    (void)pack;
    (void)fn;
    (void)fn_arg;
    (void)ret_was_made;
    (void)arg;
    return -ENOENT;
}

static int note_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    (void)name;
    (void)name_len;
    *(struct view_entry *)arg = *entry;
    return 1;
}

/* The first with a cookie above `after`. -ENOENT: there is none. */
static int first_entry(struct merge *m, uint64_t dir, uint64_t after, struct view_entry *ret)
{
    ret->ino = 0;
    TRY(view_readdir(m->view, dir, after, note_entry, ret));
    return ret->ino ? 0 : -ENOENT;
}

/* The place of a name in its directory's order: the node's, unless that is taken. It is where an
 * operation was not done by which the node gave the place to another name. */
static int settle_cookie(struct merge *m, uint64_t dir, uint64_t *cookie)
{
    struct view_entry entry;
    int r = first_entry(m, dir, *cookie - 1, &entry);
    if (r == 0 && entry.cookie == *cookie)
        *cookie = m->rec->seq;
    return r == -ENOENT ? 0 : r;
}

static int apply(struct merge *m, struct record rec)
{
    rec.seq = m->rec->seq;
    rec.time = m->rec->time;
    rec.flags &= ~(uint32_t)RECORD_ORPHAN; /* that it is open somewhere is that node's business */
    size_t len = record_encoded_len(&rec);
    _cleanup_free_ uint8_t *bytes = xmalloc(len);
    record_encode(&rec, bytes);
    struct view_batch batch = {
        .records = bytes, .records_len = len, .cut_seq = m->cut, .pack_index = no_index};
    int r = view_apply(m->view, &batch);
    if (r != -EUCLEAN || view_is_damaged(m->view))
        return r;
    m->counts.impossible++; /* nothing was changed: one node's bug must not stop all others */
    return 0;
}

static int refuse(struct merge *m)
{
    m->counts.refused++;
    return 0;
}

static int forget_stand_in(struct merge *m, uint64_t ino)
{
    return apply(m, (struct record){
                        .type = REC_STAND_IN, .ino = ino, .ino2 = ino, .name = "-", .name_len = 1});
}

static int join(struct merge *m, uint64_t ino, uint64_t other)
{
    m->counts.joined++;
    return apply(m, (struct record){.type = REC_STAND_IN,
                                    .ino = ino,
                                    .ino2 = other,
                                    .name = m->rec->name,
                                    .name_len = m->rec->name_len});
}

/* A name goes. Of a directory it is remembered where it was, for the nodes that do not know yet. */
static int take_name(struct merge *m, uint64_t parent, const char *name, uint16_t name_len,
                     const struct view_entry *entry)
{
    struct view_inode inode;
    TRY(view_inode(m->view, entry->ino, &inode));
    TRY(apply(m, (struct record){.type = REC_UNLINK,
                                 .ino = entry->ino,
                                 .parent = parent,
                                 .name = name,
                                 .name_len = name_len}));
    if (!S_ISDIR(entry->type))
        return 0;
    return apply(m, (struct record){.type = REC_STAND_IN,
                                    .ino = entry->ino,
                                    .parent = parent,
                                    .attrs = inode.attrs,
                                    .name = name,
                                    .name_len = name_len});
}

/* --- directories ------------------------------------------------------------------------------ */

/* *ino becomes that of the directory that stands for it. 1: it is gone, *ret_gone says where it
 * was; 0: it is there; -ENOENT: no such directory was ever told. */
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

struct place {
    uint64_t parent;
    char name[NAME_LEN_MAX + 1];
    uint16_t len;
};

static struct place place_of(uint64_t parent, const char *name, uint16_t len)
{
    struct place place = {.parent = parent, .len = len};
    memcpy(place.name, name, len);
    return place;
}

static int look_up(struct merge *m, const struct place *place, struct view_entry *ret)
{
    return view_lookup(m->view, place->parent, place->name, place->len, ret);
}

static bool is_dir(const struct view_entry *entry)
{
    return S_ISDIR(entry->type);
}

/* NAME.cairn-EPOCH; a long name loses its end. */
static void set_aside_name(struct place *place, uint64_t epoch)
{
    uint16_t kept = place->len;
    if (kept > NAME_LEN_MAX - ASIDE_SUFFIX_LEN)
        kept = NAME_LEN_MAX - ASIDE_SUFFIX_LEN;
    int len = snprintf(place->name + kept, ASIDE_SUFFIX_LEN + 1, ".cairn-%llu",
                       (unsigned long long)epoch);
    place->len = (uint16_t)(kept + (uint16_t)len);
}

/* A file that comes to a name: an older one there gives way. 0: the place is free; 1: a directory
 * has it. */
static int clear_for_file(struct merge *m, const struct place *place)
{
    struct view_entry old;
    int r = look_up(m, place, &old);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (is_dir(&old))
        return 1;
    m->counts.replaced++;
    return take_name(m, place->parent, place->name, place->len, &old);
}

/* Where a new file goes: to its name, or beside a directory that has it. 1: nowhere. */
static int find_place_for_file(struct merge *m, struct place *place)
{
    int r = clear_for_file(m, place);
    if (r <= 0)
        return r;
    m->counts.renamed++;
    set_aside_name(place, m->epoch);
    return clear_for_file(m, place);
}

/* The file at the place makes room for a directory: it goes by the epoch that made it. 1: its new
 * name is that of a directory, too. */
static int move_file_aside(struct merge *m, const struct place *place,
                           const struct view_entry *file)
{
    struct place aside = *place;
    set_aside_name(&aside, file->ino >> 24 & EPOCH_MAX);
    int r = clear_for_file(m, &aside);
    if (r != 0)
        return r;
    m->counts.renamed++;
    return apply(m, (struct record){.type = REC_RENAME,
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
    int r = look_up(m, place, ret);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (is_dir(ret))
        return 1;
    r = move_file_aside(m, place, ret);
    return r == 1 ? take_name(m, place->parent, place->name, place->len, ret) : r;
}

/* It was removed, while another node made something in it: it is there again under its last name,
 * or joins the directory that has this name now. */
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
    return apply(m, (struct record){.type = REC_MAKE,
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

/* *ino becomes that of a directory that is there, with all above it. 1: there was none. From above:
 * each directory that is gone was last in another, which may be gone, too. */
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

/* As ensure_directory(), of one that need not be there. 1: it is not. */
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
        r = settle_cookie(m, rec.parent, &rec.cookie);
    return r < 0 ? r : apply(m, rec);
}

/* A new name of what is no directory. */
static int merge_new_name(struct merge *m, struct record rec)
{
    struct place place = place_of(rec.parent, rec.name, rec.name_len);
    int r = find_place_for_file(m, &place);
    if (r != 0)
        return r < 0 ? r : refuse(m);
    rec.name = place.name;
    rec.name_len = place.len;
    TRY(settle_cookie(m, rec.parent, &rec.cookie));
    return apply(m, rec);
}

static int merge_make(struct merge *m, struct record rec)
{
    int r = ensure_directory(m, &rec.parent);
    if (r != 0)
        return r < 0 ? r : refuse(m);
    return S_ISDIR(rec.attrs.mode) ? merge_make_directory(m, rec) : merge_new_name(m, rec);
}

static int merge_version(struct merge *m, struct record rec)
{
    struct view_inode inode;
    if (rec.flags & RECORD_BIRTH)
        return merge_make(m, rec);
    int r = view_inode(m->view, rec.ino, &inode);
    if (r == -ENOENT || (r == 0 && (!S_ISREG(inode.attrs.mode) || rec.version <= inode.version)))
        return refuse(m);
    return r < 0 ? r : apply(m, rec);
}

/* A file that another one replaced stays away. */
static int merge_link(struct merge *m, struct record rec)
{
    struct view_inode inode;
    int r = view_inode(m->view, rec.ino, &inode);
    if (r == -ENOENT || (r == 0 && S_ISDIR(inode.attrs.mode)))
        return refuse(m);
    if (r == 0)
        r = ensure_directory(m, &rec.parent);
    if (r != 0)
        return r < 0 ? r : refuse(m);
    return merge_new_name(m, rec);
}

/* 1: the name stands for something else, or for nothing. */
static int find_own(struct merge *m, const struct place *place, uint64_t ino,
                    struct view_entry *ret)
{
    struct view_stand_in gone;
    int r = look_up(m, place, ret);
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
    int r = is_dir(dir) ? first_entry(m, dir->ino, 0, &first) : -ENOENT;
    return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

static int merge_unlink(struct merge *m, struct record rec)
{
    struct view_entry entry;
    int r = find_directory(m, &rec.parent);
    struct place place = place_of(rec.parent, rec.name, rec.name_len);
    if (r == 0)
        r = find_own(m, &place, rec.ino, &entry);
    if (r == 0)
        r = is_filled(m, &entry);
    if (r != 0)
        return r < 0 ? r : refuse(m);
    return take_name(m, place.parent, place.name, place.len, &entry);
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

/* What the node replaced must be there as it knew it; what it did not know stays. 1: it is not so.
 * *ret_ino2: what is replaced now, 0: nothing. */
static int check_target(struct merge *m, const struct record *rec, const struct place *to,
                        const struct view_entry *moved, uint64_t *ret_ino2)
{
    struct view_entry old;
    int r = look_up(m, to, &old);
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

/* Both names, and what they stand for, as the node knew them. 1: they are not. */
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
        return r < 0 ? r : refuse(m);
    rec.cookie = other.cookie;
    rec.cookie2 = moved.cookie;
    return apply(m, rec);
}

static int merge_rename_over(struct merge *m, struct record rec, const struct place *from,
                             const struct place *to)
{
    struct view_entry moved, old;
    uint64_t replaced;
    int r = find_own(m, from, rec.ino, &moved);
    if (r == 0 && is_dir(&moved))
        r = is_below(m, to->parent, moved.ino);
    if (r == 0)
        r = check_target(m, &rec, to, &moved, &replaced);
    if (r != 0)
        return r < 0 ? r : refuse(m);
    if (replaced) { /* in two steps: so a directory is remembered */
        TRY(look_up(m, to, &old));
        TRY(take_name(m, to->parent, to->name, to->len, &old));
    }
    rec.ino = moved.ino;
    rec.ino2 = 0;
    if (rec.cookie != moved.cookie || rec.parent != rec.parent2)
        TRY(settle_cookie(m, rec.parent2, &rec.cookie));
    return apply(m, rec);
}

static int merge_rename(struct merge *m, struct record rec)
{
    int r = find_directory(m, &rec.parent);
    if (r == 0)
        r = ensure_directory(m, &rec.parent2);
    if (r != 0)
        return r < 0 ? r : refuse(m);
    struct place from = place_of(rec.parent, rec.name, rec.name_len);
    struct place to = place_of(rec.parent2, rec.name2, rec.name2_len);
    return rec.flags & RECORD_EXCHANGE ? merge_exchange(m, rec, &from, &to)
                                       : merge_rename_over(m, rec, &from, &to);
}

/* Attributes: those of a directory are those of what stands for it. */
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
        return r < 0 ? r : refuse(m);
    return apply(m, rec);
}

int merge_record(struct merge *m, uint64_t epoch, const struct record *rec)
{
    m->epoch = epoch;
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
    default:
        return -EUCLEAN;
    }
}
