// SPDX-License-Identifier: Apache-2.0
/* Reads packs of the remote. */
#include "remote/internal.h"

struct tier *remote_tier(const struct remote *remote)
{
    return remote->prefix.tier;
}

static int get_counted(struct remote *remote, uint64_t pack, uint64_t offset, void *buf,
                       size_t length, _Atomic uint64_t *total)
{
    struct tier *tier = remote->prefix.tier;
    char object[32];
    pack_object_name(pack, object);
    int r = tier->ops->get_range(tier, object, offset, buf, length);
    if (r == 0) {
        atomic_fetch_add(total, length);
        remote_works(remote);
        return 0;
    }
    if (r == -ENOENT || r == -EUCLEAN)
        return r;
    if (r != -ECANCELED)
        remote_error(remote, r, "reading %s failed (%s)", object, strerror(-r));
    return -EHOSTDOWN;
}

int remote_get(struct remote *remote, uint64_t pack, uint64_t offset, void *buf, size_t length)
{
    return get_counted(remote, pack, offset, buf, length, &remote->prefix.fetched_total);
}

int remote_get_to_merge(struct remote *remote, uint64_t pack, uint64_t offset, void *buf,
                        size_t length)
{
    return get_counted(remote, pack, offset, buf, length, &remote->merged_total);
}
