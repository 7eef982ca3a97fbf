// SPDX-License-Identifier: Apache-2.0
/* Opens earlier states without a mount: those of a remote, and a snapshot of a store. */
#include "base/cause.h"
#include "base/text.h"
#include "overlay/ns.h"
#include "remote/life.h"
#include "store/local_snapshots_internal.h"
#include "tier/tier.h"

/* Returns the oldest one that can be read; NULL: there is none. */
static const struct local_snapshot_info *find_oldest(const struct local_snapshot_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->at[i].error == 0)
            return &list->at[i];
    return NULL;
}

static char *explain_none(const struct store_options *options,
                          const struct local_snapshot_list *list)
{
    const char *path = options->path;
    const struct local_snapshot_info *oldest = find_oldest(list);
    _cleanup_free_ char *remote = xasprintf("%s/remote", path);
    char asked[TEXT_TIME_LEN], when[TEXT_TIME_LEN];
    if (access(remote, F_OK) == 0)
        return xasprintf("%s has no such snapshot; earlier states are in its remote: give that",
                         path);
    if (!options->remote.at.time || !oldest)
        return xasprintf("%s has no such snapshot; 'cairn history %s' lists those that it has",
                         path, path);
    text_time(options->remote.at.time, asked);
    text_time(oldest->taken, when);
    return xasprintf("%s: no snapshot is as old as %s: the oldest is %llu of %s", path, asked,
                     (unsigned long long)oldest->number, when);
}

int store_choose_snapshot(const struct store_options *options, uint64_t *ret, char **ret_text)
{
    struct local_snapshot_list list = {0};
    int r = local_snapshots_read(options->path, &list);
    const struct local_snapshot_info *found =
        r == 0 ? local_snapshots_choose(&list, &options->remote.at) : NULL;
    *ret = found ? found->number : 0;
    if (r == 0 && !found)
        *ret_text = explain_none(options, &list);
    if (r == 0)
        r = !found ? -ENOENT : found->error;
    vector_free(&list);
    return r;
}

/* The tier of a directory only reads: a daemon may use the same packs. */
static int open_snapshot(struct store *store, char **ret_text)
{
    struct local *local = &store->local;
    const struct dir_options packs = {.path = local->path, .read_only = true, .must_exist = true};
    _cleanup_free_ char *path = xasprintf("%s/" LOCAL_SNAPSHOTS, local->path);
    TRY(store_load_superblock(local, NULL, ret_text));
    TRY(store_choose_snapshot(&local->options, &store->own->shown, ret_text));
    TRY(dir_tier_open(&packs, &local->tier, ret_text));
    int r = local_snapshots_open_view(path, store->own->shown, &local->view);
    return r == -ESTALE ? -EIO : r;
}

int store_open_snapshot(const struct store_options *options, struct store **ret, char **ret_text)
{
    struct store *store = store_new(options);
    *ret_text = NULL;
    int r = open_snapshot(store, ret_text);
    if (r < 0 && !*ret_text)
        *ret_text = xasprintf("a snapshot of %s cannot be read: %s", options->path,
                              *cause_text() ? cause_text() : strerror(-r));
    if (r < 0) {
        store_discard(store);
        return r;
    }
    store->local.ns = ns_new(store->local.view);
    *ret = store;
    return 0;
}

int store_open_heads(const struct store_options *options, struct store **ret, char **ret_text)
{
    struct store *store = store_new(options);
    *ret_text = NULL;
    int r = store_open_parts(store, true, ret_text);
    if (r == 0)
        r = remote_join_to_read(store->remote, ret_text);
    if (r < 0)
        store_discard(store);
    else
        *ret = store;
    return r;
}
