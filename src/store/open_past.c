// SPDX-License-Identifier: Apache-2.0
/* Earlier states are opened to be looked at, without a mount: those of a remote, and a snapshot of
 * a store. */
#include "base/cause.h"
#include "overlay/ns.h"
#include "remote/life.h"
#include "store/local_snapshots_internal.h"
#include "tier/tier.h"

/* -ENOENT. */
static int choose_snapshot(const struct store_options *options, uint64_t *ret)
{
    struct local_snapshot_list list = {0};
    int r = local_snapshots_read(options->path, &list);
    const struct local_snapshot_info *found =
        r == 0 ? local_snapshots_choose(&list, &options->remote.at) : NULL;
    *ret = found ? found->number : 0;
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
    TRY(choose_snapshot(&local->options, &store->own->shown));
    TRY(dir_tier_open(&packs, &local->tier, ret_text));
    return local_snapshots_open_view(path, store->own->shown, &local->view);
}

static char *explain_none(const char *path)
{
    _cleanup_free_ char *remote = xasprintf("%s/remote", path);
    return access(remote, F_OK) == 0
               ? xasprintf("%s has no such snapshot; earlier states are in its remote: give that",
                           path)
               : xasprintf("%s has no such snapshot; 'cairn history %s' lists those that it has",
                           path, path);
}

int store_open_snapshot(const struct store_options *options, struct store **ret, char **ret_text)
{
    struct store *store = store_new(options);
    *ret_text = NULL;
    int r = open_snapshot(store, ret_text);
    if (r < 0 && !*ret_text)
        *ret_text = r == -ENOENT ? explain_none(options->path)
                                 : xasprintf("a snapshot of %s cannot be read: %s", options->path,
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
