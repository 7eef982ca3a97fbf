// SPDX-License-Identifier: Apache-2.0
#include "daemon/prefixes.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/text.h"
#include "base/vector.h"
#include "daemon/remote_tier.h"

#define MARKER "cairn"
#define DEPTH_MAX 4u
#define LISTINGS_MAX 1000u
#define NAMES_MAX 10000u /* of one directory */
#define SHOWN_MAX 10u

DEFINE_VECTOR(names, char *);

struct prefix_search {
    struct tier *tier; /* of a directory: only to check whether it answers */
    int root_fd;       /* of a directory; else -1 */
    const char *source;
    void (*fn)(const char *address, void *arg);
    void *arg;
    unsigned listings;
};

/* The names directly below a directory of the search. */
struct prefix_level {
    struct names directories; /* without '/' at their ends */
    bool has_marker;
};

static void level_add(const char *name, size_t len, bool is_directory, struct prefix_level *level)
{
    if (!is_directory)
        level->has_marker = level->has_marker || (len == strlen(MARKER) && !strcmp(name, MARKER));
    else if (len > 0 && name[0] != '.' && level->directories.count < NAMES_MAX)
        vector_add(&level->directories, xasprintf("%.*s", (int)len, name));
}

static int level_add_object(const struct tier_object *object, void *arg)
{
    size_t len = strlen(object->name);
    bool is_directory = len > 0 && object->name[len - 1] == '/';
    level_add(object->name, len - is_directory, is_directory, arg);
    return 0;
}

static int level_read_directory(const struct prefix_search *search, const char *directory,
                                struct prefix_level *level)
{
    DIR *dir;
    TRY(io_open_dir(search->root_fd, *directory ? directory : ".", &dir));
    for (const struct dirent *d; (d = readdir(dir));) {
        struct stat st;
        bool is_known = d->d_type != DT_UNKNOWN;
        bool is_directory = d->d_type == DT_DIR;
        if (!is_known && fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            is_directory = S_ISDIR(st.st_mode);
        level_add(d->d_name, strlen(d->d_name), is_directory, level);
    }
    (void)closedir(dir);
    return 0;
}

static void level_done(struct prefix_level *level)
{
    for (size_t i = 0; i < level->directories.count; i++)
        free(level->directories.at[i]);
    vector_free(&level->directories);
}

/* PREFIXES_ITSELF: the directory is a remote. A directory below it that cannot be listed is
 * skipped. */
static int search_level(struct prefix_search *search, const char *directory, unsigned depth)
{
    struct prefix_level level = {0};
    if (depth > DEPTH_MAX || search->listings++ == LISTINGS_MAX)
        return PREFIXES_BELOW;
    int r = search->root_fd < 0
                ? search->tier->ops->list_level(search->tier, directory, level_add_object, &level)
                : level_read_directory(search, directory, &level);
    if (r == 0 && level.has_marker)
        r = PREFIXES_ITSELF;
    for (size_t i = 0; i < level.directories.count && r == PREFIXES_BELOW; i++) {
        _cleanup_free_ char *below =
            xasprintf("%s%s%s", directory, *directory ? "/" : "", level.directories.at[i]);
        if (search_level(search, below, depth + 1) != PREFIXES_ITSELF)
            continue;
        _cleanup_free_ char *address = xasprintf("%s/%s", search->source, below);
        search->fn(address, search->arg);
    }
    level_done(&level);
    return r;
}

/* Opens a directory that has answered: no call of this process may hang in a filesystem, as no
 * signal could end it. PREFIXES_ITSELF: the directory is a remote. */
static int open_root(struct prefix_search *search, const char *path)
{
    uint64_t len;
    int r = search->tier->ops->stat(search->tier, MARKER, &len);
    if (r != -ENOENT)
        return r < 0 ? r : PREFIXES_ITSELF;
    search->root_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return search->root_fd < 0 ? -errno : PREFIXES_BELOW;
}

int prefixes_find(const char *source, const struct mount_options *options,
                  void (*fn)(const char *address, void *arg), void *arg)
{
    struct remote_address address;
    struct prefix_search search = {.root_fd = -1, .fn = fn, .arg = arg};
    _cleanup_free_ char *text = NULL;
    int r = remote_address_parse(source, &address, &text);
    search.source = address.text;
    if (r == 0)
        r = remote_tier_open(&address, options, true, NULL, &search.tier, &text);
    if (r == 0 && address.kind == REMOTE_KIND_DIR)
        r = open_root(&search, address.path);
    if (r == PREFIXES_BELOW)
        r = search_level(&search, "", 0);
    if (search.tier)
        search.tier->ops->close(search.tier);
    cleanup_close(&search.root_fd);
    remote_address_done(&address);
    return r;
}

/* --- beside a wrong one ----------------------------------------------------------------------- */

struct prefix_text {
    FILE *out;
    unsigned count;
};

static void text_add_prefix(const char *address, void *arg)
{
    struct prefix_text *text = arg;
    if (text->count++ < SHOWN_MAX)
        (void)fprintf(text->out, "%s%s", text->count > 1 ? ", " : "", address);
}

static char *parent_of(const char *source)
{
    const char *begin = source + (strncmp(source, "s3://", 5) == 0 ? 5 : 4);
    const char *slash = strrchr(begin, '/');
    return slash && slash > begin ? xasprintf("%.*s", (int)(slash - source), source) : NULL;
}

char *prefixes_beside(const char *source, const struct mount_options *options)
{
    char *found = NULL;
    size_t len = 0;
    _cleanup_free_ char *parent = parent_of(source);
    struct prefix_text text = {.out = open_memstream(&found, &len)};
    check(text.out != NULL);
    int r = prefixes_find(source, options, text_add_prefix, &text);
    if (text.count == 0 && parent)
        r = prefixes_find(parent, options, text_add_prefix, &text);
    if (r == PREFIXES_ITSELF && parent)
        text_add_prefix(parent, &text);
    (void)fclose(text.out);
    text_hide_controls(found);
    if (text.count > 0 && text.count <= SHOWN_MAX)
        return found;
    char *shortened =
        text.count ? xasprintf("%s and %u more", found, text.count - SHOWN_MAX) : NULL;
    free(found);
    return shortened;
}
