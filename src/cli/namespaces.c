// SPDX-License-Identifier: Apache-2.0
#include "cli/namespaces.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>

#include "base/mountinfo.h"
#include "base/text.h"

/* A mount that contains the mountpoint of another. Unmounting the other one unmounts it in peers
 * and slaves, too, if it has the same path there. */
struct groups {
    unsigned id; /* of the mount; 0: not known */
    unsigned shared, master;
    char *root, *mountpoint;
};

struct search {
    const struct mount_entry *mount;
    struct copy_list *list;
    VECTOR(struct groups) seen; /* of the namespace that is being read */
    unsigned shared;            /* of the mount that contains `mount` */
    char *place;                /* of `mount` on the filesystem that contains it; NULL: not known */
    long pid;
};

static void forget_seen(struct search *s)
{
    for (size_t i = 0; i < s->seen.count; i++) {
        free(s->seen.at[i].root);
        free(s->seen.at[i].mountpoint);
    }
    s->seen.count = 0;
}

static const struct groups *groups_of(const struct search *s, unsigned id)
{
    static const struct groups none;
    for (size_t i = 0; i < s->seen.count; i++)
        if (s->seen.at[i].id == id)
            return &s->seen.at[i];
    return &none;
}

static bool note_groups(const struct mountinfo *mount, void *arg)
{
    struct search *s = arg;
    vector_add(&s->seen, (struct groups){.id = mount->id,
                                         .shared = mount->shared,
                                         .master = mount->master,
                                         .root = xstrdup(mount->root),
                                         .mountpoint = xstrdup(mount->mountpoint)});
    return true;
}

/* Returns the path of `mountpoint` on the filesystem of the mount that it is in; NULL: unknown.
 * Caller frees. */
static char *path_on_filesystem(const struct groups *in, const char *mountpoint)
{
    if (in->id == 0)
        return NULL;
    const char *above = strcmp(in->mountpoint, "/") == 0 ? "" : in->mountpoint;
    size_t len = strlen(above);
    if (strncmp(mountpoint, above, len) != 0 || mountpoint[len] != '/')
        return NULL;
    return xasprintf("%s%s", strcmp(in->root, "/") == 0 ? "" : in->root, mountpoint + len);
}

static bool goes_with_it(const struct search *s, const struct mountinfo *copy)
{
    const struct groups *in = groups_of(s, copy->parent);
    if (!s->shared || !s->place || (in->shared != s->shared && in->master != s->shared))
        return false;
    _cleanup_free_ char *place = path_on_filesystem(in, copy->mountpoint);
    return place && strcmp(place, s->place) == 0;
}

static struct mount_copy *find_copy(struct copy_list *list, unsigned id)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->at[i].id == id)
            return &list->at[i];
    return NULL;
}

/* The kernel reuses the number of a device that is gone for the next mount: the store distinguishes
 * them. */
static bool is_copy(const struct mount_entry *of, const struct mountinfo *mount)
{
    return mount->device == of->device && mount->id != of->id &&
           strcmp(mount->type, CAIRN_FSTYPE) == 0 && strcmp(mount->source, of->store) == 0;
}

static bool see_mount(const struct mountinfo *mount, void *arg)
{
    struct search *s = arg;
    if (!is_copy(s->mount, mount))
        return true;
    struct mount_copy *copy = find_copy(s->list, mount->id);
    if (!copy) {
        copy = vector_next(s->list);
        *copy = (struct mount_copy){.id = mount->id,
                                    .pid = s->pid,
                                    .mountpoint = xstrdup(mount->mountpoint),
                                    .stays = !goes_with_it(s, mount)};
    }
    copy->processes++;
    copy->pid = s->pid < copy->pid ? s->pid : copy->pid;
    return true;
}

static void look_at(struct search *s, const char *pid)
{
    _cleanup_free_ char *path = xasprintf("/proc/%s/mountinfo", pid);
    forget_seen(s);
    s->pid = strtol(pid, NULL, 10);
    /* Twice: a mount may be listed before the one that contains it. */
    if (mountinfo_read(path, note_groups, s) < 0 || mountinfo_read(path, see_mount, s) < 0)
        return; /* it has ended, or is hidden from us */
}

void copies_find(const struct mount_entry *mount, struct copy_list *ret)
{
    struct search s = {.mount = mount, .list = ret};
    DIR *proc = opendir("/proc");
    *ret = (struct copy_list){0};
    if (mountinfo_read("/proc/self/mountinfo", note_groups, &s) == 0) {
        s.shared = groups_of(&s, mount->parent)->shared;
        s.place = path_on_filesystem(groups_of(&s, mount->parent), mount->mountpoint);
    }
    for (struct dirent *e; proc && (e = readdir(proc));)
        if (isdigit((unsigned char)e->d_name[0]))
            look_at(&s, e->d_name);
    if (proc)
        (void)closedir(proc);
    forget_seen(&s);
    vector_free(&s.seen);
    free(s.place);
}

void copies_done(struct copy_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->at[i].mountpoint);
    vector_free(list);
}

unsigned copies_that_stay(const struct copy_list *list)
{
    unsigned count = 0;
    for (size_t i = 0; i < list->count; i++)
        count += list->at[i].stays;
    return count;
}

void copies_print(const struct copy_list *list, FILE *out)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct mount_copy *copy = &list->at[i];
        if (!copy->stays)
            continue;
        _cleanup_free_ char *pid = xasprintf("%ld", copy->pid);
        _cleanup_free_ char *more =
            copy->processes > 1 ? xasprintf(" and %u more", copy->processes - 1) : xstrdup("");
        text_print(out, "  process %s (%s)%s: at %s", pid, process_name(pid).text, more,
                   copy->mountpoint);
    }
}
