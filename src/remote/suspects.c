// SPDX-License-Identifier: Apache-2.0
/* Packs of the remote that could not be read: missing or damaged, temporarily or permanently.
 *
 * A reader, a listing or a scrub *notes* such a pack (noted.c). The next round rewrites those of
 * its chunks that can still be read from NVMe or the remote (repair.c). The remaining chunks exist
 * only in this pack: from then on it is *suspect* (view_remote_pack_suspect()). Nothing relies on a
 * suspect pack, and nothing discards it: its chunks keep their places, heads name it, and gc never
 * deletes it. A server may have lost it temporarily, or given one wrong answer; a person may
 * restore it. So it is checked again: after 2 s, 4 s, up to 10 minutes; at each mount, gc and
 * scrub; and when a reader could read part of it. Once it is found whole, it is no longer
 * suspect. */
#include "remote/maintenance_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "dense/bases.h"

#define ASK_FIRST_NS (2ll * 1000000000)
#define ASK_MAX_NS (600ll * 1000000000)
#define ASK_AGAIN_NS (2ll * 1000000000) /* between two requested passes */
#define ASK_BUDGET_NS (500ll * 1000000) /* per tick: uploads wait meanwhile */
#define DAMAGE_NAMED 16u /* chunks per pack whose files are determined: each takes a scan */

/* --- suspicion -------------------------------------------------------------------------------- */

struct remains {
    struct chunk_name names[DAMAGE_NAMED];
    uint64_t count;
};

static int note_remaining(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    struct remains *remains = arg;
    if (!is_needed)
        return 0;
    if (remains->count < DAMAGE_NAMED)
        remains->names[remains->count] = entry->name;
    remains->count++;
    return 0;
}

struct user {
    struct store *store;
    const struct chunk_name *name;
};

static int note_user(uint64_t ino, uint64_t offset, void *arg)
{
    struct user *user = arg;
    (void)offset;
    damage_note(user->store->commit.damage, ino, user->name, -ENODATA);
    return 0;
}

int suspects_leave(struct remote *remote, uint64_t pack, bool *ret_is_suspect)
{
    struct store *store = remote->store;
    struct remains remains = {0};
    int r = view_remote_pack_chunks(store->local.view, pack, note_remaining, &remains);
    *ret_is_suspect = remains.count > 0;
    /* it is dead at the cut, and becomes unreferenced like any other */
    if (r < 0 || !*ret_is_suspect)
        return r;
    r = view_remote_pack_suspect(store->local.view, pack, clock_realtime_ns());
    remote->maintenance->ask_pause = 0;
    remote->maintenance->ask_at = clock_monotonic_ns() + ASK_FIRST_NS;
    for (size_t i = 0; i < min_u64(remains.count, DAMAGE_NAMED) && r == 0; i++) {
        struct user user = {store, &remains.names[i]};
        r = view_chunk_users(store->local.view, user.name, note_user, &user);
    }
    return r;
}

/* --- checks of suspect packs ------------------------------------------------------------------ */

struct question {
    struct remote *remote;
    uint8_t *stored, *raw;
    uint64_t good, bad; /* number of chunks */
};

/* 1: enough is known: some of the pack can be read and some cannot. */
static int ask_chunk(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    struct question *question = arg;
    struct store *store = question->remote->store;
    if (!is_needed)
        return 0;
    if (remote_is_stopping(question->remote))
        return -ECANCELED;
    int r = chunk_is_readable(entry) ? 0 : -EUCLEAN;
    if (r == 0)
        r = remote_get(question->remote, entry->pack, entry->offset, question->stored,
                       entry->stored_len);
    if (r == 0)
        r = upload_check_chunk(store, entry, question->stored, question->raw);
    if (r < 0 && !bases_is_final(r))
        return r;
    *(r == 0 ? &question->good : &question->bad) += 1;
    return question->good > 0 && question->bad > 0;
}

static int forget_damage(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    (void)is_needed;
    struct damage *damage = arg;
    damage_forget(damage, &entry->name);
    return 0;
}

static int trust_pack(struct remote *remote, uint64_t pack)
{
    char object[32];
    pack_object_name(pack, object);
    TRY(view_remote_pack_trusted(remote->store->local.view, pack));
    TRY(view_remote_pack_chunks(remote->store->local.view, pack, forget_damage,
                                remote->store->commit.damage));
    log_info("remote: %s can be read again: all of it is as before", object);
    return 0;
}

/* -errno: the remote does not answer now. */
static int ask_pack(struct remote *remote, uint64_t id)
{
    struct question question = {.remote = remote};
    struct view_remote_pack pack;
    int r = view_remote_pack(remote->store->local.view, id, &pack);
    if (r < 0 || !pack.suspect)
        return r == -ENOENT ? 0 : r;
    r = pack_check_index(remote->prefix.tier, remote->store->local.sb.history, &pack);
    if (bases_is_final(r))
        return 0;
    question.stored = xmalloc(CHUNK_SIZE_MAX);
    question.raw = xmalloc(CHUNK_SIZE_MAX);
    if (r == 0)
        r = view_remote_pack_chunks(remote->store->local.view, id, ask_chunk, &question);
    free(question.stored);
    free(question.raw);
    if (r == 0 && question.bad == 0)
        return trust_pack(remote, id);
    if (r == 0 && question.good > 0)
        noted_add(remote, id, -EBADMSG); /* the next round moves the good chunks */
    return r;
}

void remote_ask_again(struct remote *remote)
{
    atomic_store(&remote->maintenance->is_asked, true);
    LOCK_SCOPE(&remote->shared.lock);
    remote_kick_locked(remote);
}

static int list_suspect(const struct view_remote_pack *pack, void *arg)
{
    struct remote_maintenance *maintenance = arg;
    if (pack->suspect && maintenance->asking.count < NOTED_MAX)
        vector_add(&maintenance->asking, pack->pack);
    return 0;
}

/* Is it time for a pass? If so, lists its packs. */
static bool begin_pass(struct remote *remote)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    int64_t now = clock_monotonic_ns();
    bool is_asked = atomic_load(&maintenance->is_asked) && now >= maintenance->asked_at;
    if (!is_asked && now < maintenance->ask_at)
        return false;
    atomic_store(&maintenance->is_asked, false);
    maintenance->asked = 0;
    maintenance->asking.count = 0;
    return view_remote_packs(remote->store->local.view, list_suspect, maintenance) == 0;
}

static void end_pass(struct remote_maintenance *maintenance)
{
    int64_t now = clock_monotonic_ns();
    check(maintenance->asked <= maintenance->asking.count);
    maintenance->asking.count = maintenance->asked = 0;
    maintenance->ask_pause =
        maintenance->ask_pause == 0
            ? ASK_FIRST_NS
            : (int64_t)min_u64((uint64_t)maintenance->ask_pause * 2, ASK_MAX_NS);
    maintenance->ask_at = now + maintenance->ask_pause;
    maintenance->asked_at = now + ASK_AGAIN_NS;
}

void suspects_tick(struct remote *remote)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    int64_t until = clock_monotonic_ns() + ASK_BUDGET_NS;
    int r = 0;
    if (view_remote(remote->store->local.view).suspect_packs == 0) {
        atomic_store(&maintenance->is_asked, false);
        maintenance->asking.count = maintenance->asked = 0;
        return;
    }
    if (maintenance->asked == maintenance->asking.count && !begin_pass(remote))
        return;
    while (r == 0 && maintenance->asked < maintenance->asking.count &&
           clock_monotonic_ns() < until && !remote_is_stopping(remote)) {
        r = ask_pack(remote, maintenance->asking.at[maintenance->asked++]);
        if (r < 0 && !tier_error_is_transient(r))
            r = 0; /* an error of this object alone, e.g. an archived one */
    }
    if (r < 0 || maintenance->asked == maintenance->asking.count) {
        end_pass(maintenance);
        event_signal(horizon_progress(remote->store->commit.horizon));
    }
}
