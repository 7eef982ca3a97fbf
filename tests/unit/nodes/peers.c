// SPDX-License-Identifier: Apache-2.0
#include "peers.h"

#include "../expect.h"

void peer_open(struct peer *peer, uint64_t epoch)
{
    fixture_open(&peer->own);
    peer->node.epoch = epoch;
    peer->count = 0;
    peer->inos[peer->count++] = ROOT_INO;
}

void peer_adopt(struct peer *peer, struct record rec)
{
    (void)add(&peer->own, rec);
    apply_ok(&peer->own);
}

void peer_op(struct peer *peer, struct record rec)
{
    if (rec.cookie == 0)
        rec.cookie = (peer->node.epoch << SEQ_EPOCH_SHIFT) + peer->node.ops + 1;
    peer_adopt(peer, rec);
    peer->tell(peer, &rec);
}

bool peer_has(struct peer *peer, uint64_t ino, struct view_inode *ret)
{
    return view_inode(peer->own.view, ino, ret) == 0;
}

bool peer_owns(const struct peer *peer, uint64_t ino)
{
    return !peer->takes || ino >> 24 == peer->node.epoch;
}

uint64_t peer_dir(struct peer *peer, struct seeded *seeded)
{
    struct view_inode inode;
    for (unsigned i = 0; i < 8; i++) {
        uint64_t ino = peer->inos[seeded_below(seeded, peer->count)];
        if (peer_has(peer, ino, &inode) && S_ISDIR(inode.attrs.mode) && inode.nlink > 0)
            return ino;
    }
    return ROOT_INO;
}

uint64_t peer_file(struct peer *peer, struct seeded *seeded, struct view_inode *ret)
{
    for (unsigned i = 0; i < 8; i++) {
        uint64_t ino = peer->inos[seeded_below(seeded, peer->count)];
        if (peer_has(peer, ino, ret) && !S_ISDIR(ret->attrs.mode))
            return ino;
    }
    return 0;
}

void peer_make(struct peer *peer, uint64_t parent, const char *name, unsigned kind)
{
    static const uint32_t modes[] = {S_IFDIR, S_IFREG, S_IFREG, S_IFREG, S_IFLNK, S_IFIFO};
    struct record rec = {.type = REC_MAKE,
                         .ino = new_ino(&peer->node),
                         .parent = parent,
                         .attrs = {.mode = modes[kind] | 0700},
                         NAMED(name)};
    if (S_ISREG(rec.attrs.mode)) {
        rec.type = REC_VERSION;
        rec.flags = RECORD_BIRTH;
        rec.version = 1;
    }
    if (S_ISLNK(rec.attrs.mode)) {
        rec.value = "target";
        rec.value_len = 6;
    }
    peer_op(peer, rec);
    peer->inos[peer->count++] = rec.ino;
}

/* As a mount tells it: what loses its last name lives on until the mount forgets it. */
static uint32_t peer_last(struct peer *peer, uint64_t ino)
{
    struct view_inode inode;
    bool is_last = peer_has(peer, ino, &inode) && !S_ISDIR(inode.attrs.mode) && inode.nlink == 1;
    return is_last ? RECORD_ORPHAN : 0;
}

/* At once, or later, if it is open. */
static void peer_forget(struct peer *peer, struct seeded *seeded, uint64_t ino)
{
    struct view_inode inode;
    if (peer_has(peer, ino, &inode) && inode.nlink == 0 && seeded_below(seeded, 3) > 0)
        peer_op(peer, (struct record){.type = REC_REAP, .ino = ino});
}

struct some_entry {
    struct seeded *seeded; /* NULL: the first */
    unsigned seen;
    bool no_dirs;
    uint64_t ino; /* 0: none */
    char name[NAME_LEN_MAX + 1];
};

static int note_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    struct some_entry *some = arg;
    if (some->no_dirs && S_ISDIR(entry->type))
        return 0;
    if (some->seen++ > 0 && (!some->seeded || seeded_below(some->seeded, some->seen) > 0))
        return 0;
    some->ino = entry->ino;
    memcpy(some->name, name, name_len);
    some->name[name_len] = '\0';
    return 0;
}

static uint64_t peer_find(struct peer *peer, uint64_t dir, struct some_entry *some)
{
    assert_i64(view_readdir(peer->own.view, dir, 0, note_entry, some), 0);
    return some->ino;
}

static bool peer_is_empty(struct peer *peer, uint64_t ino)
{
    struct view_inode inode;
    struct some_entry some = {0};
    return !peer_has(peer, ino, &inode) || !S_ISDIR(inode.attrs.mode) ||
           !peer_find(peer, ino, &some);
}

/* A name that nodes fight for. One that took what others made also has some that rules gave. */
static void peer_name(struct peer *peer, struct seeded *seeded, uint64_t dir,
                      char name[NAME_LEN_MAX + 1])
{
    struct some_entry some = {.seeded = seeded};
    (void)snprintf(name, NAME_LEN_MAX + 1, "%c", 'a' + (char)seeded_below(seeded, 3));
    if (peer->takes && seeded_below(seeded, 4) == 0 && peer_find(peer, dir, &some))
        memcpy(name, some.name, sizeof some.name);
}

static bool peer_is_below(struct peer *peer, uint64_t dir, uint64_t above)
{
    struct view_inode inode;
    for (; dir != above && dir != ROOT_INO; dir = inode.parent)
        cr_assert(peer_has(peer, dir, &inode));
    return dir == above;
}

static void peer_move(struct peer *peer, struct seeded *seeded, uint64_t parent, const char *name,
                      uint64_t parent2, const char *name2)
{
    struct view_entry from, to = {0};
    assert_i64(view_lookup(peer->own.view, parent, name, strlen(name), &from), 0);
    if (view_lookup(peer->own.view, parent2, name2, strlen(name2), &to) < 0)
        to.ino = 0;
    bool exchanges = to.ino && seeded_below(seeded, 3) == 0;
    if (to.ino == from.ino || (S_ISDIR(from.type) && peer_is_below(peer, parent2, from.ino)) ||
        (exchanges && S_ISDIR(to.type) && peer_is_below(peer, parent, to.ino)))
        return;
    if (!exchanges && to.ino &&
        (S_ISDIR(to.type) != S_ISDIR(from.type) || !peer_is_empty(peer, to.ino)))
        return;
    peer_op(peer, (struct record){.type = REC_RENAME,
                                  .flags = exchanges ? RECORD_EXCHANGE
                                           : to.ino  ? peer_last(peer, to.ino)
                                                     : 0,
                                  .ino = from.ino,
                                  .ino2 = to.ino,
                                  .parent = parent,
                                  .parent2 = parent2,
                                  .cookie = to.cookie,
                                  .cookie2 = exchanges ? from.cookie : 0,
                                  NAMED(name),
                                  .name2 = name2,
                                  .name2_len = (uint16_t)strlen(name2)});
    peer_forget(peer, seeded, to.ino);
}

static void peer_change(struct peer *peer, struct seeded *seeded)
{
    struct view_inode inode;
    uint64_t ino = peer_file(peer, seeded, &inode);
    if (!ino)
        return;
    if (peer_owns(peer, ino) && S_ISREG(inode.attrs.mode) && seeded_below(seeded, 2) == 0)
        peer_op(peer, (struct record){.type = REC_VERSION,
                                      .ino = ino,
                                      .version = inode.version + 1,
                                      .attrs = {.mode = S_IFREG | 0600, .size = peer->node.ops}});
    else if (inode.nlink == 0)
        peer_op(peer, (struct record){.type = REC_REAP, .ino = ino});
    else if (seeded_below(seeded, 2) == 0)
        peer_op(peer, (struct record){.type = REC_SETATTR,
                                      .ino = ino,
                                      .mask = ATTR_MODE,
                                      .attrs = {.mode = 0600 + (uint32_t)(peer->node.ops % 64)}});
    else
        peer_op(peer, (struct record){.type = REC_SETXATTR,
                                      .ino = ino,
                                      NAMED("user.x"),
                                      .value = &peer->node.ops,
                                      .value_len = 8});
}

void peer_step(struct peer *peer, struct seeded *seeded)
{
    struct view_inode inode;
    char name[NAME_LEN_MAX + 1], name2[NAME_LEN_MAX + 1];
    uint64_t dir = peer_dir(peer, seeded), dir2 = peer_dir(peer, seeded), ino;
    peer_name(peer, seeded, dir, name);
    peer_name(peer, seeded, dir2, name2);
    uint64_t there = lookup(&peer->own, dir, name);
    switch (seeded_below(seeded, 6)) {
    case 0:
    case 1:
        if (!there)
            peer_make(peer, dir, name, (unsigned)seeded_below(seeded, 6));
        break;
    case 2:
        if (there && peer_is_empty(peer, there)) {
            peer_op(peer, (struct record){.type = REC_UNLINK,
                                          .flags = peer_last(peer, there),
                                          .ino = there,
                                          .parent = dir,
                                          NAMED(name)});
            peer_forget(peer, seeded, there);
        }
        break;
    case 3:
        if (there)
            peer_move(peer, seeded, dir, name, dir2, name2);
        break;
    case 4:
        ino = peer_file(peer, seeded, &inode);
        if (!there && ino && inode.nlink > 0)
            peer_op(peer,
                    (struct record){.type = REC_LINK, .ino = ino, .parent = dir, NAMED(name)});
        break;
    default:
        peer_change(peer, seeded);
    }
}

void peer_end(struct peer *peer)
{
    struct view_inode inode;
    for (size_t i = 0; i < peer->count; i++) {
        uint64_t dir = peer->inos[i];
        if (!peer_has(peer, dir, &inode) || !S_ISDIR(inode.attrs.mode))
            continue;
        for (;;) {
            struct some_entry some = {.no_dirs = true};
            if (!peer_find(peer, dir, &some))
                break;
            peer_op(peer, (struct record){.type = REC_UNLINK,
                                          .flags = peer_last(peer, some.ino),
                                          .ino = some.ino,
                                          .parent = dir,
                                          NAMED(some.name)});
        }
    }
    for (size_t i = 0; i < peer->count; i++)
        if (peer_has(peer, peer->inos[i], &inode) && inode.nlink == 0)
            peer_op(peer, (struct record){.type = REC_REAP, .ino = inode.ino});
}
