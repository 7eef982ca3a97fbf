// SPDX-License-Identifier: Apache-2.0
/* One path in several states, one after the other. All files below it are recorded by a hash of
 * their paths, 32 bytes each, so that two states can be compared; and the inodes on the way and
 * below, so that a state in which none of these changed need not be read. */
#include <sys/stat.h>

#include "store/past_internal.h"

#define DEPTH_MAX 1024u

struct file {
    uint64_t path; /* hash */
    uint64_t ino, version, size;
};
DEFINE_VECTOR(path_files, struct file);

struct past_path {
    struct past *past;
    char *path;
    bool was_looked_at;
    struct past_inos seen;   /* ascending: on the way, and below */
    struct path_files files; /* by path, ascending */
    struct past_path_sum sum;
};

struct past_path *past_path_new(struct past *past, const char *path)
{
    struct past_path *p = xcalloc(1, sizeof *p);
    p->past = past;
    p->path = xstrdup(path);
    return p;
}

void past_path_free(struct past_path *p)
{
    if (!p)
        return;
    vector_free(&p->seen);
    vector_free(&p->files);
    free(p->path);
    free(p);
}

/* --- the walk --------------------------------------------------------------------------------- */

struct past_walk {
    struct view *view;
    struct past_inos *seen;
    struct path_files *files;
};

struct below {
    uint64_t ino, path;
};
struct listing {
    uint64_t path; /* of the directory */
    VECTOR(struct below) entries;
};

/* FNV-1a of the names on the way, each with a '/' before it. */
static uint64_t hash_below(uint64_t hash, const char *name, size_t len)
{
    const uint64_t prime = 1099511628211ull;
    hash = (hash ^ '/') * prime;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)name[i]) * prime;
    return hash;
}

static int add_below(const struct view_entry *entry, const char *name, size_t len, void *arg)
{
    struct listing *listing = arg;
    vector_add(&listing->entries, (struct below){entry->ino, hash_below(listing->path, name, len)});
    return 0;
}

static int walk_node(struct past_walk *walk, const struct below *node, unsigned depth)
{
    struct view_inode inode;
    struct listing listing = {.path = node->path};
    TRY(view_inode(walk->view, node->ino, &inode));
    vector_add(walk->seen, node->ino);
    if (S_ISREG(inode.attrs.mode))
        vector_add(walk->files,
                   (struct file){node->path, node->ino, inode.version, inode.attrs.size});
    if (!S_ISDIR(inode.attrs.mode))
        return 0;
    int r =
        depth > DEPTH_MAX ? -ELOOP : view_readdir(walk->view, node->ino, 0, add_below, &listing);
    for (size_t i = 0; i < listing.entries.count && r == 0; i++)
        r = walk_node(walk, &listing.entries.at[i], depth + 1);
    vector_free(&listing.entries);
    return r;
}

/* Finds PATH; the inodes on the way are recorded as seen. -ENOENT. */
static int find_path(struct past_walk *walk, const char *path, uint64_t *ret_ino)
{
    *ret_ino = ROOT_INO;
    for (path += strspn(path, "/"); *path;) {
        struct view_entry entry;
        size_t len = strcspn(path, "/");
        vector_add(walk->seen, *ret_ino);
        if (len > NAME_LEN_MAX)
            return -ENOENT;
        TRY(view_lookup(walk->view, *ret_ino, path, len, &entry));
        *ret_ino = entry.ino;
        path += len + strspn(path + len, "/");
    }
    return 0;
}

static int walk_path(struct past_walk *walk, const char *path, struct past_path_sum *ret)
{
    struct view_inode inode;
    struct below top = {0};
    int r = find_path(walk, path, &top.ino);
    if (r == -ENOENT || r == -ENOTDIR)
        return 0;
    TRY(r);
    TRY(view_inode(walk->view, top.ino, &inode));
    *ret = (struct past_path_sum){
        .exists = true, .is_directory = S_ISDIR(inode.attrs.mode), .modified = inode.attrs.mtime};
    r = walk_node(walk, &top, 0);
    return r == -ENOENT ? -EUCLEAN : r; /* an entry without an inode */
}

/* --- two states ------------------------------------------------------------------------------- */

static bool is_same_content(const struct file *a, const struct file *b)
{
    return a->ino == b->ino && a->version == b->version && a->size == b->size;
}

static void compare(const struct path_files *before, const struct path_files *now,
                    struct past_path_sum *sum)
{
    size_t i = 0, k = 0;
    while (i < before->count || k < now->count) {
        bool is_gone =
            k == now->count || (i < before->count && before->at[i].path < now->at[k].path);
        bool is_made =
            i == before->count || (k < now->count && now->at[k].path < before->at[i].path);
        sum->gone += is_gone;
        sum->made += !is_gone && is_made;
        sum->changed += !is_gone && !is_made && !is_same_content(&before->at[i], &now->at[k]);
        i += is_gone || !is_made;
        k += !is_gone;
    }
    for (k = 0; k < now->count; k++)
        sum->bytes += now->at[k].size;
    sum->files = now->count;
}

static bool must_look(const struct past_path *p)
{
    const struct past_inos *changes = past_changes(p->past);
    bool must = !p->was_looked_at || !changes;
    for (size_t i = 0; !must && i < changes->count; i++)
        must = vector_search(&p->seen, &changes->at[i], compare_u64) != NULL;
    return must;
}

int past_path_look(struct past_path *p, struct past_path_sum *ret)
{
    struct past_inos seen = {0};
    struct path_files files = {0};
    struct past_walk walk = {past_view(p->past), &seen, &files};
    struct past_path_sum sum = {0};
    *ret = p->sum;
    ret->made = ret->changed = ret->gone = 0;
    if (!must_look(p)) {
        past_take_changes(p->past);
        return 0;
    }
    int r = walk_path(&walk, p->path, &sum);
    if (r == 0) {
        vector_sort(&seen, compare_u64);
        vector_sort(&files, compare_u64);
        compare(&p->files, &files, &sum);
        *ret = p->sum = sum;
        past_take_changes(p->past);
        p->was_looked_at = true;
    }
    vector_free(r == 0 ? &p->seen : &seen);
    vector_free(r == 0 ? &p->files : &files);
    if (r == 0) {
        p->seen = seen;
        p->files = files;
    }
    return r;
}
