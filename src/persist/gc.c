/* Packs that nothing needs any more are dropped: first a batch that says so is durable, then the file goes. */
#include "base/log.h"
#include "persist/internal.h"

struct dead {
    struct store *store;
    uint64_t *ids;
    size_t count, max;
};

static int find_dead(const struct view_pack *pack, void *arg)
{
    struct dead *dead = arg;
    if (dead->count == dead->max)
        return 1;
    if (pack->live_bytes > 0 || pack->live_count > 0)
        return 0;
    /* First the mark, then the question: whoever refers to a chunk from now on sees the mark. */
    if (!packs_begin_drop(dead->store, pack->pack))
        return 0;
    if (stage_uses_pack(dead->store->stage, pack->pack))
        packs_end_drop(dead->store, pack->pack);
    else
        dead->ids[dead->count++] = pack->pack;
    return 0;
}

size_t gc_dead_packs(struct store *store, uint64_t *ids, size_t max)
{
    struct dead dead = {.store = store, .ids = ids, .max = max};
    int r = view_packs(store->view, find_dead, &dead);
    if (r < 0)
        horizon_error(store, "gc: reading the view failed: %s", strerror(-r));
    return dead.count;
}

void gc_remove(struct store *store, const uint64_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char object[32];
        pack_object_name(ids[i], object);
        int r = store->tier->ops->remove(store->tier, object);
        /* The journal says that it is gone: the next mount removes it. */
        if (r < 0)
            horizon_error(store, "gc: removing %s failed: %s", object, strerror(-r));
        packs_end_drop(store, ids[i]);
    }
    room_account(store);
}
