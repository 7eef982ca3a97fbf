// SPDX-License-Identifier: Apache-2.0
/* Finds pinned chunks, and counts how much of NVMe they use. The xattr user.cairn.pin is searched
 * in the view, and among the operations that the view does not have yet. */
#include "fetch/pins.h"

#include <sys/stat.h>

#include "base/clock.h"

#define PINS_EVERY_NS (30ll * 1000000000) /* how often all xattrs are searched for pins */
#define PIN_NAME "user.cairn.pin"

static uint64_t short_name(const struct chunk_name *name)
{
    uint64_t value;
    memcpy(&value, name->bytes, sizeof value);
    return value;
}

static int pin_pack(struct pinned *pinned, const struct chunk_name *name)
{
    struct chunk_entry entry;
    uint64_t refs;
    int r = view_chunk(pinned->store->local.view, name, &entry, &refs);
    bool is_new =
        r == 0 && entry.pack &&
        (pinned->packs.count == 0 || pinned->packs.at[pinned->packs.count - 1] != entry.pack);
    if (is_new)
        vector_add(&pinned->packs, entry.pack);
    return r == -ENOENT ? 0 : r;
}

static int pin_chunk(const struct view_extent *part, void *arg)
{
    struct pinned *pinned = arg;
    if (part->extent.kind != EXTENT_CHUNK)
        return 0;
    vector_add(&pinned->list, short_name(&part->extent.chunk));
    return pinned->looks_up ? pin_pack(pinned, &part->extent.chunk) : 0;
}

static void pin_inode(struct pinned *pinned, uint64_t ino, mode_t type)
{
    int r = 0;
    if (S_ISDIR(type))
        vector_add(&pinned->dirs, ino);
    else if (S_ISREG(type))
        r = view_extents(pinned->store->local.view, ino, 0, INT64_MAX, pin_chunk, pinned);
    if (r < 0 && r != -ENOENT)
        pinned->error = r;
}

static int pin_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    (void)name;
    (void)name_len;
    pin_inode(arg, entry->ino, entry->type);
    return 0;
}

static int pin_holder(uint64_t ino, void *arg)
{
    struct pinned *pinned = arg;
    struct view_inode inode;
    char value[2];
    ssize_t len = view_getxattr(pinned->store->local.view, ino, PIN_NAME, strlen(PIN_NAME), value,
                                sizeof value);
    if (len == 1 && value[0] == '0')
        return 0;
    pinned->any = true;
    if (view_inode(pinned->store->local.view, ino, &inode) == 0)
        pin_inode(pinned, ino, inode.attrs.mode);
    return 0;
}

static bool is_pin(const struct record *rec)
{
    return rec->type == REC_SETXATTR && rec->name_len == strlen(PIN_NAME) &&
           memcmp(rec->name, PIN_NAME, rec->name_len) == 0;
}

/* Adds pins of operations that the view does not have yet. An inode that is moved may come below a
 * directory with a pin: until the view has the move, the inode counts as pinned. */
static void pin_pending(struct pinned *pinned)
{
    struct store *store = pinned->store;
    size_t count;
    struct op **ops = history_look(store->commit.history, &count);
    for (size_t i = 0; i < count; i++)
        pinned->any = pinned->any || ops[i]->type == REC_SETXATTR;
    for (size_t i = 0; i < count && pinned->any; i++) {
        struct view_inode inode;
        struct record rec;
        size_t len;
        bool moves = ops[i]->type == REC_RENAME || ops[i]->type == REC_LINK;
        if (!moves && ops[i]->type != REC_SETXATTR)
            continue;
        check(record_decode(ops[i]->bytes, ops[i]->len, &rec, &len) == 0);
        if ((moves || is_pin(&rec)) && view_inode(store->local.view, rec.ino, &inode) == 0)
            pin_inode(pinned, rec.ino, inode.attrs.mode);
        if (moves && rec.ino2 && view_inode(store->local.view, rec.ino2, &inode) == 0)
            pin_inode(pinned, rec.ino2, inode.attrs.mode); /* an exchange */
    }
    history_looked(store->commit.history, ops);
}

void pinned_done(struct pinned *pinned)
{
    vector_free(&pinned->list);
    vector_free(&pinned->dirs);
    vector_free(&pinned->packs);
}

int pinned_find(struct store *store, bool looks_up, struct pinned *ret)
{
    *ret = (struct pinned){.store = store, .looks_up = looks_up};
    int r = view_xattr_holders(store->local.view, PIN_NAME, pin_holder, ret);
    pin_pending(ret);
    while (r == 0 && ret->error == 0 && ret->dirs.count > 0)
        r = view_readdir(store->local.view, ret->dirs.at[--ret->dirs.count], 0, pin_entry, ret);
    if (r == 0)
        r = ret->error;
    vector_sort(&ret->list, compare_u64);
    if (r < 0)
        pinned_done(ret);
    return r;
}

bool pinned_has(const struct pinned *pinned, const struct chunk_name *name)
{
    uint64_t value = short_name(name);
    return vector_search(&pinned->list, &value, compare_u64);
}

static int add_pinned_pack(const struct view_pack *pack, void *arg)
{
    struct pinned *pinned = arg;
    if (vector_search(&pinned->packs, &pack->pack, compare_u64))
        pinned->pack_bytes += pack->length;
    return 0;
}

/* A pin holds at once, and is removed when the view has the operation: so pinned bytes are counted
 * twice after a change. */
static bool is_account_due(struct store *store)
{
    struct evict *evict = &store->fetch->evict;
    uint64_t changed = atomic_load(&store->fetch->evict.pins_changed);
    bool is_final = view_state(store->local.view).applied_seq >= changed;
    bool is_new = evict->pins_counted != changed || (is_final && !evict->pins_final);
    if (!store->remote || !(is_new || (clock_monotonic_ns() >= evict->pins_at &&
                                       atomic_exchange(&store->fetch->evict.pins_asked, false))))
        return false;
    evict->pins_counted = changed;
    evict->pins_final = is_final;
    evict->pins_at = clock_monotonic_ns() + PINS_EVERY_NS;
    return true;
}

bool pins_round(struct store *store, bool now)
{
    (void)now;
    struct pinned pinned;
    if (!is_account_due(store) || pinned_find(store, true, &pinned) < 0)
        return false;
    vector_sort(&pinned.packs, compare_u64);
    int r = pinned.packs.count ? view_packs(store->local.view, add_pinned_pack, &pinned) : 0;
    atomic_store(&store->fetch->evict.pinned_bytes, r < 0 ? UINT64_MAX : pinned.pack_bytes);
    pinned_done(&pinned);
    return false;
}

void fetch_pins_changed(struct store *store)
{
    atomic_store(&store->fetch->evict.pins_changed, history_newest(store->commit.history));
    horizon_kick(store->commit.horizon);
}
