// SPDX-License-Identifier: Apache-2.0
/* The RAM that this process may use: the machine's, or the limit of its cgroups. */
#include <stdio.h>

#include "daemon/options.h"

/* Returns the number behind `label`, which begins a line; `other`: there is none. */
static uint64_t read_number(const char *directory, const char *name, const char *label,
                            uint64_t other)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", directory, name);
    FILE *f = fopen(path, "re");
    unsigned long long number;
    char line[256];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, label, strlen(label)) == 0 &&
                sscanf(line + strlen(label), "%llu", &number) == 1;
    if (f)
        (void)fclose(f);
    return found ? number : other;
}

/* Returns a line of /proc/meminfo, in bytes; 0: there is none. */
static uint64_t read_meminfo(const char *root, const char *label)
{
    return read_number(root, "proc/meminfo", label, 0) * KIB;
}

/* Returns the least limit from the group `path` up to the root of the mounted hierarchy: a parent's
 * limit binds as well. "max", or no such file: no limit. */
static uint64_t least_limit(const char *hierarchy, const char *path, const char *const *names)
{
    _cleanup_free_ char *directory =
        xasprintf("%s%s", hierarchy, strcmp(path, "/") == 0 ? "" : path);
    uint64_t least = UINT64_MAX;
    for (;;) {
        for (size_t i = 0; names[i]; i++)
            least = min_u64(least, read_number(directory, names[i], "", UINT64_MAX));
        char *slash = strrchr(directory, '/');
        if (strlen(directory) <= strlen(hierarchy) || !slash)
            return least;
        *slash = '\0';
    }
}

/* Returns true if `controllers` of a line of /proc/self/cgroup ("" in v2) includes memory. */
static bool has_memory(const char *controllers)
{
    for (const char *at = controllers; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, "memory", 6) == 0 && (at[6] == ',' || at[6] == '\0'))
            return true;
    return false;
}

/* In a container without a cgroup namespace, /proc/self/cgroup shows the path of the host, while
 * only the container's group is mounted: the root of that mount is used then. */
static uint64_t group_limit(const char *hierarchy, const char *path, const char *const *names)
{
    _cleanup_free_ char *directory = xasprintf("%s%s", hierarchy, path);
    return least_limit(hierarchy, access(directory, F_OK) == 0 ? path : "/", names);
}

static uint64_t cgroup_limit(const char *root)
{
    static const char *const v1_names[] = {"memory.limit_in_bytes", NULL};
    static const char *const v2_names[] = {"memory.max", "memory.high", NULL};
    _cleanup_free_ char *path = xasprintf("%s/proc/self/cgroup", root);
    _cleanup_free_ char *v1 = xasprintf("%s/sys/fs/cgroup/memory", root);
    _cleanup_free_ char *v2 = xasprintf("%s/sys/fs/cgroup", root);
    _cleanup_free_ char *v2_mixed = xasprintf("%s/sys/fs/cgroup/unified", root);
    uint64_t limit = UINT64_MAX;
    FILE *f = fopen(path, "re");
    if (!f)
        return limit;
    _cleanup_free_ char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, f) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/')
            continue;
        *group++ = '\0';
        controllers++;
        if (has_memory(controllers))
            limit = min_u64(limit, group_limit(v1, group, v1_names));
        else if (*controllers == '\0')
            limit = min_u64(limit, min_u64(group_limit(v2, group, v2_names),
                                           group_limit(v2_mixed, group, v2_names)));
    }
    (void)fclose(f);
    return limit;
}

uint64_t options_memory_granted_below(const char *root)
{
    uint64_t total = read_meminfo(root, "MemTotal:");
    return min_u64(total > 0 ? total : GIB, cgroup_limit(root));
}

uint64_t options_memory_granted(void)
{
    return options_memory_granted_below("");
}

uint64_t options_memory_available(void)
{
    uint64_t available = read_meminfo("", "MemAvailable:");
    return available ? available : UINT64_MAX;
}
