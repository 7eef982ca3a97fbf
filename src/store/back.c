// SPDX-License-Identifier: Apache-2.0
/* A node goes back. Another node was lost, and the union continues from an earlier state than this
 * store's: its later operations are set aside, and it begins again with its own state of that time.
 *
 *   1. the store is opened with all operations, which are written to NVMe, and closed
 *   2. STORE/aside/GENERATION: hard links to all files. Packs are immutable, and everything else is
 *      replaced or removed and never written again, so this directory is a readable store
 *   3. view and journal are made anew from this node's head that the union names
 *
 * STORE/back records the step; after a crash in between, the step is repeated. */
#include "store/back.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/cause.h"
#include "base/io.h"
#include "base/log.h"
#include "nodes/node.h"
#include "remote/life.h"
#include "store/internal.h"

#define MARKER "back"
#define MARKER_LEN 64u
#define ASIDE "aside"

/* --- STORE/back ------------------------------------------------------------------------------- */

static int write_marker(const char *store, const char *word, uint64_t generation)
{
    _cleanup_free_ char *path = xasprintf("%s/" MARKER, store);
    char text[MARKER_LEN];
    int len = snprintf(text, sizeof text, "%s %016llx\n", word, (unsigned long long)generation);
    return io_write_file_durable(path, text, (size_t)len);
}

int back_ask(const char *store, uint64_t generation)
{
    return write_marker(store, "behind", generation);
}

int back_look(const char *store, struct back *ret)
{
    _cleanup_free_ char *path = xasprintf("%s/" MARKER, store);
    _cleanup_free_ char *text = NULL;
    unsigned long long generation;
    char word[8];
    *ret = (struct back){BACK_NOT, 0};
    int r = io_read_file(path, MARKER_LEN, &text, NULL);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (sscanf(text, "%7s %16llx", word, &generation) != 2)
        return -EUCLEAN;
    ret->generation = generation;
    ret->step = strcmp(word, "aside") == 0 ? BACK_IS_ASIDE : BACK_ASKED;
    return 0;
}

static int remove_marker(const char *store)
{
    _cleanup_free_ char *path = xasprintf("%s/" MARKER, store);
    if (unlink(path) < 0 && errno != ENOENT)
        return -errno;
    return io_fsync_dir(store);
}

/* --- 2: aside --------------------------------------------------------------------------------- */

/* Returns whether the entry belongs to this mount alone, is made anew from the remote, or would let
 * another mount act as this node. */
static bool stays_behind(const char *name)
{
    static const char *const names[] = {".",     "..",      ASIDE,  "others", "union", "lock",
                                        "taken", "session", MARKER, "node",   "feed"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static int link_tree(const char *from, const char *to);

static int link_entry(const char *from, const char *to)
{
    struct stat st;
    if (lstat(from, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return link_tree(from, to);
    return S_ISREG(st.st_mode) && link(from, to) < 0 ? -errno : 0;
}

static int link_tree(const char *from, const char *to)
{
    DIR *dir = opendir(from);
    int r = dir && mkdir(to, 0700) == 0 ? 0 : -errno;
    for (struct dirent *entry; r == 0 && (entry = readdir(dir));) {
        _cleanup_free_ char *a = xasprintf("%s/%s", from, entry->d_name);
        _cleanup_free_ char *b = xasprintf("%s/%s", to, entry->d_name);
        r = stays_behind(entry->d_name) ? 0 : link_entry(a, b);
    }
    if (dir)
        (void)closedir(dir);
    return r == 0 ? io_fsync_dir(to) : r;
}

int back_link_aside(const char *store, uint64_t generation)
{
    _cleanup_free_ char *all = xasprintf("%s/" ASIDE, store);
    _cleanup_free_ char *half = xasprintf("%s/new", all);
    _cleanup_free_ char *whole = xasprintf("%s/%llu", all, (unsigned long long)generation);
    if (access(whole, F_OK) == 0) /* an earlier attempt: there are no later operations */
        return write_marker(store, "aside", generation);
    if (mkdir(all, 0700) < 0 && errno != EEXIST)
        return -errno;
    TRY(io_remove_tree(half));
    TRY(link_tree(store, half));
    if (rename(half, whole) < 0)
        return -errno;
    TRY(io_fsync_dir(all));
    TRY(io_fsync_dir(store));
    log_warn("nodes: what this node did, and not all nodes had told of, is set aside in %s: 'cairn "
             "ls' and 'cairn cp' read it",
             whole);
    return write_marker(store, "aside", generation);
}

/* --- 3: the state of then --------------------------------------------------------------------- */

int back_go(struct store *store, bool serves, char **ret_text)
{
    uint64_t head;
    const char *path = store->local.path;
    const struct adoption adoption = adoption_of(store);
    int r = node_find_way_back(store->node, &head, ret_text);
    if (r == 0)
        r = adopt_go_back(&adoption, head, ret_text);
    if (r == 0)
        r = node_went_back(store->node, serves, ret_text);
    if (r == 0)
        r = remove_marker(path);
    if (r < 0 && !*ret_text)
        *ret_text = xasprintf("%s: all nodes go back to an earlier state, since one was lost, and "
                              "this one cannot: %s; mount it again",
                              path, *cause_text() ? cause_text() : strerror(-r));
    return r;
}
