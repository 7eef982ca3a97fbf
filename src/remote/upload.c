// SPDX-License-Identifier: Apache-2.0
/* Upload: one thread that chooses a cut of the view and carries what the remote lacks of it, a few
 * that send packs.
 *
 *   packs durable there  ->  run there  ->  head created  ->  view, waiters, runs and segments that
 * are no longer needed
 *
 * The cut is the newest that NVMe has when a round begins. What is live at it is pinned on NVMe
 * until it was sent, also if it is deleted meanwhile; what is dead at it is never sent. So a remote
 * that is slower than the writer goes from one complete state to a later one. Chunks that were sent
 * are remembered in the view at once: after a crash only the packs that were on their way are sent
 * again. */
#include <semaphore.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/crc.h"
#include "base/log.h"
#include "base/vector.h"
#include "remote/maintenance.h"

#define PASS_CHUNKS 32768u /* listed at once */
#define FILLING_MAX 4u     /* senders that read at once */
#define RESCUES_MAX 1000u  /* chunks that are looked for elsewhere, in a round */
#define TICK_MS 250
#define URGED_TICK_MS 10 /* while somebody waits: what he waits for comes to NVMe first, soon */
#define HEAD_INTERVAL_NS (1ll * 1000000000)
#define RETRY_MS 1000
#define DROP_LOOK_NS 5000000
#define RETRY_REFUSED_MS 10000

struct upload {
    struct remote *remote;
    struct view_cut *cut;
    struct chunk_entry *list; /* by place on NVMe */
    size_t count;
    size_t *packs; /* of the list: where each pack's chunks begin, and the end of the last */
    size_t pack_count;
    _Atomic size_t next; /* pack that nobody has taken */
    _Atomic int error;
    VECTOR(uint64_t) pins;    /* packs on NVMe, ascending */
    sem_t fillers;            /* of senders that fill a pack */
    bool is_relocating;       /* the list is a repair_plan's */
    _Atomic unsigned rescues; /* that were tried in this round */
    _Atomic uint64_t unread;  /* chunks of it that can be read from nowhere */
};

/* --- pins ------------------------------------------------------------------------------------- */

/* Names come in no order of packs: each pack once. */
static void make_pins_unique(struct upload *up)
{
    size_t kept = 0;
    vector_sort(&up->pins, compare_u64);
    for (size_t i = 0; i < up->pins.count; i++)
        if (kept == 0 || up->pins.at[kept - 1] != up->pins.at[i])
            up->pins.at[kept++] = up->pins.at[i];
    up->pins.count = kept;
}

static int note_pin(const struct chunk_entry *entry, void *arg)
{
    struct upload *up = arg;
    if (entry->pack == 0 || (up->pins.count && up->pins.at[up->pins.count - 1] == entry->pack))
        return 0;
    if (up->pins.count == up->pins.capacity) {
        make_pins_unique(up);
        vector_reserve(&up->pins, up->pins.count + 1);
    }
    vector_add(&up->pins, entry->pack);
    return 0;
}

/* The cut, and the packs that it needs pinned. No drop begins in between, and those under way are
 * waited for: a pack that is being emptied cannot be pinned, and where its chunks move
 * to neither. */
static int open_cut(struct upload *up)
{
    struct store *store = up->remote->store;
    int r = 0;
    packs_hold_drops(store, true);
    while (r == 0 && packs_are_dropping(store)) {
        (void)nanosleep(&(struct timespec){.tv_nsec = DROP_LOOK_NS}, NULL);
        r = remote_is_stopping(up->remote) ? -ECANCELED : 0;
    }
    if (r == 0)
        r = view_cut_open(store->view, &up->cut);
    if (r == 0)
        r = view_cut_pending(up->cut, NULL, note_pin, up);
    size_t kept = 0;
    make_pins_unique(up);
    for (size_t i = 0; i < up->pins.count; i++)
        if (packs_pin(store, up->pins.at[i]))
            up->pins.at[kept++] = up->pins.at[i];
    up->pins.count = kept;
    packs_hold_drops(store, false);
    return r;
}

static void close_cut(struct upload *up)
{
    for (size_t i = 0; i < up->pins.count; i++)
        packs_unpin(up->remote->store, up->pins.at[i]);
    vector_free(&up->pins);
    view_cut_close(up->cut);
    free(up->list);
}

/* --- packs ------------------------------------------------------------------------------------ */

/* Is it certain that no other try will read it? */
static bool is_final(int error)
{
    return error == -ENOENT || error == -EBADMSG || error == -EUCLEAN;
}

/* Of this machine, or of the way there: no damage, so nothing may be published as if it were. */
static bool may_pass(int error)
{
    return error == -ENOMEM || error == -EMFILE || error == -ENFILE ||
           tier_error_is_transient(error);
}

struct sending {
    struct upload *up;
    uint64_t id, data_len;
    uint8_t *buffer, *stored, *raw;
    struct chunk_entry *entries;
    uint32_t count;
};

static int put_until_done(struct remote *remote, const char *object, const void *buf, size_t len)
{
    for (;;) {
        int r = remote->tier->ops->put(remote->tier, object, buf, len);
        if (r == 0) {
            remote_works(remote);
            return 0;
        }
        if (r == -ECANCELED || remote_is_stopping(remote))
            return -ECANCELED;
        remote_error(remote, r, "storing %s failed (%s)", object, strerror(-r));
        if (!remote_pause(remote, tier_error_is_transient(r) ? RETRY_MS : RETRY_REFUSED_MS))
            return -ECANCELED;
    }
}

/* The database cannot bear a full disk. */
static int wait_for_view_room(struct remote *remote)
{
    int r;
    while ((r = room_for_view(remote->store)) < 0) {
        remote_error(remote, 0, "the disk of %s is full: the upload waits", remote->store->path);
        if (!remote_pause(remote, RETRY_MS))
            return -ECANCELED;
    }
    return 0;
}

static int send_pack(struct sending *s)
{
    struct remote *remote = s->up->remote;
    struct store *store = remote->store;
    char object[32];
    if (s->count == 0)
        return 0;
    uint64_t len =
        pack_finish(store->sb.history, s->id, s->buffer, s->data_len, s->entries, s->count);
    pack_object_name(s->id, object);
    if (!remote_limit_wait(remote, len))
        return -ECANCELED;
    int r;
    r = put_until_done(remote, object, s->buffer, len);
    if (r == 0)
        r = wait_for_view_room(remote);
    if (r == 0)
        r = view_remote_placed(store->view, s->id, len, s->entries, s->count);
    if (r < 0)
        return r;
    atomic_fetch_add(&remote->uploaded_total, len);
    mutex_lock(&remote->shared.lock);
    remote->shared.target_bytes -= min_u64(remote->shared.target_bytes, s->data_len);
    mutex_unlock(&remote->shared.lock);
    s->count = 0;
    return 0;
}

static void begin_pack(struct sending *s)
{
    struct store *store = s->up->remote->store;
    s->id = store_new_pack_id(store);
    s->data_len = pack_begin(store->sb.history, s->id, s->buffer);
}

/* Before it is published as missing, who else may have it is asked; not for whole packs of them,
 * since each takes long. */
static bool rescue_pending(struct sending *s, const struct chunk_entry *pending,
                           struct chunk_entry *ret)
{
    *ret = *pending;
    return atomic_fetch_add(&s->up->rescues, 1) < RESCUES_MAX &&
           rescue_chunk(s->up->remote->store, ret, s->stored, s->raw);
}

static int send_chunk(struct sending *s, const struct chunk_entry *pending)
{
    struct store *store = s->up->remote->store;
    struct chunk_entry entry = *pending;
    int r = upload_read_chunk(store, &entry, s->stored, s->raw);
    if (r < 0 && is_final(r) && rescue_pending(s, pending, &entry)) {
        (void)heal_give(store, &entry, s->stored);
        r = 0;
    }
    if (r == -ECANCELED || (r < 0 && (s->up->is_relocating ? !is_final(r) : may_pass(r))))
        return r;
    if (r < 0 && s->up->is_relocating) {
        atomic_fetch_add(&s->up->unread, 1);
        return 0;
    }
    if (r < 0) {
        /* There is nothing to send; the head says how often the chunk is referred to, and its bytes
         * read as EIO there as here. */
        remote_error(
            remote_of(store), 0,
            "a chunk cannot be read from NVMe (%s): its bytes will be missing in the remote",
            strerror(-r));
        return 0;
    }
    if (s->count &&
        (pack_end_with(s->data_len, &entry) > PACK_DATA_MAX || s->count == PACK_ENTRIES_MAX))
        r = send_pack(s);
    if (r < 0)
        return r;
    if (s->count == 0)
        begin_pack(s);
    s->data_len = pack_place(store, s->id, s->buffer, s->data_len, &entry,
                             &(struct iovec){s->stored, entry.stored_len}, 1);
    s->entries[s->count++] = entry;
    return 0;
}

/* Few read at a time: if all did, each would have its pack only when all of NVMe's and the
 * processors' time for all of them is spent, and the remote would wait. Chunks from the remote
 * itself are another matter: what they take is its latency. */
static int fill_pack(struct sending *s, size_t pack)
{
    struct upload *up = s->up;
    int r = 0;
    if (!up->is_relocating)
        while (sem_wait(&up->fillers) < 0)
            ;
    for (size_t i = up->packs[pack]; i < up->packs[pack + 1] && r == 0; i++)
        r = send_chunk(s, &up->list[i]);
    if (!up->is_relocating)
        (void)sem_post(&up->fillers);
    return r;
}

static void send_job(void *arg)
{
    struct upload *up = arg;
    struct sending s = {.up = up};
    s.buffer = xmalloc_large(PACK_BUFFER_LEN);
    s.stored = xmalloc(CHUNK_SIZE_MAX);
    s.raw = xmalloc(CHUNK_SIZE_MAX);
    s.entries = xcalloc(PACK_ENTRIES_MAX, sizeof *s.entries);
    int r = 0;
    for (;;) {
        size_t pack = atomic_fetch_add(&up->next, 1);
        if (pack >= up->pack_count || r < 0 || atomic_load(&up->error) < 0)
            break;
        r = fill_pack(&s, pack);
        if (r == 0)
            r = send_pack(&s);
    }
    if (r < 0)
        atomic_store(&up->error, r);
    free(s.buffer);
    free(s.stored);
    free(s.raw);
    free(s.entries);
}

static int list_pending(const struct chunk_entry *entry, void *arg)
{
    struct upload *up = arg;
    up->list[up->count++] = *entry;
    return up->count == PASS_CHUNKS;
}

static int compare_places(const void *a, const void *b)
{
    const struct chunk_entry *x = a, *y = b;
    if (x->pack != y->pack)
        return x->pack < y->pack ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* What lies together on NVMe goes into one pack, so that whoever reads it in order has few requests
 * to make, and no sender is left with a small one. A chunk that was encoded anew since may make a
 * pack overflow into a second one. */
static void divide_into_packs(struct upload *up)
{
    uint64_t bytes = PACK_HEADER_LEN;
    size_t first = 0;
    check(!up->packs);
    up->packs = xcalloc(up->count + 1, sizeof *up->packs);
    up->pack_count = 0;
    for (size_t i = 0; i < up->count; i++) {
        bool full =
            pack_end_with(bytes, &up->list[i]) > PACK_DATA_MAX || i - first == PACK_ENTRIES_MAX;
        if (i == 0 || full) {
            up->packs[up->pack_count++] = first = i;
            bytes = PACK_HEADER_LEN;
        }
        bytes = pack_end_with(bytes, &up->list[i]);
    }
    check(up->pack_count <= up->count);
    up->packs[up->pack_count] = up->count;
}

static int send_list(struct upload *up)
{
    struct remote *remote = up->remote;
    qsort(up->list, up->count, sizeof *up->list, compare_places);
    divide_into_packs(up);
    unsigned jobs = (unsigned)min_u64(up->pack_count, remote->options.upload_threads);
    atomic_store(&up->next, 0);
    check(sem_init(&up->fillers, 0, FILLING_MAX) == 0);
    for (unsigned i = 0; i < jobs; i++)
        pool_submit(remote->senders, send_job, up);
    pool_drain(remote->senders);
    (void)sem_destroy(&up->fillers);
    free(up->packs);
    up->packs = NULL;
    return atomic_load(&up->error);
}

static int send_pending(struct upload *up)
{
    struct chunk_name after;
    bool first = true;
    int r = 0;
    up->list = xcalloc(PASS_CHUNKS, sizeof *up->list);
    do {
        up->count = 0;
        r = view_cut_pending(up->cut, first ? NULL : &after, list_pending, up);
        if (r < 0 || up->count == 0)
            break;
        after = up->list[up->count - 1].name;
        first = false;
        r = send_list(up);
    } while (r == 0 && up->count == PASS_CHUNKS);
    return r;
}

/* --- a round ---------------------------------------------------------------------------------- */

static void set_target(struct remote *remote, uint64_t bytes)
{
    LOCK_SCOPE(&remote->shared.lock);
    remote->shared.target_bytes = bytes;
    if (remote->shared.state == REMOTE_IDLE || remote->shared.state == REMOTE_UPLOADING)
        remote->shared.state = bytes ? REMOTE_UPLOADING : REMOTE_IDLE;
}

static void describe(struct remote *remote, const struct view_cut *cut, struct head *head)
{
    struct store *store = remote->store;
    struct view_state state = view_cut_state(cut);
    struct view_remote view = view_remote(store->view);
    memcpy(head->history, store->sb.history, sizeof head->history);
    memcpy(head->store, store->sb.store, sizeof head->store);
    (void)snprintf(head->holder, sizeof head->holder, "%s", remote->holder);
    head->number = remote->head.number + 1;
    head->writer = store->sb.writer;
    head->epoch = store->epoch;
    head->time = clock_realtime_ns();
    head->cut = state.applied_seq;
    memcpy(head->chain, state.chain, sizeof head->chain);
    head->max_ino = max_u64(state.max_ino, head->max_ino);
    head->max_id = max_u64(head->max_id, store_newest_pack_id(store));
    head->files = state.files;
    head->logical_bytes = state.logical_bytes;
    head->chunks = state.chunks;
    head->stored_bytes = state.stored_bytes;
    head->packs = view.packs;
    head->pack_bytes = view.pack_bytes;
}

static int publish(struct upload *up)
{
    struct remote *remote = up->remote;
    struct store *store = remote->store;
    struct head *head = xmalloc(sizeof *head);
    uint64_t missing = 0;
    *head = remote->head;
    int r = runs_publish(remote, up->cut, head, &missing);
    if (r == 0) {
        describe(remote, up->cut, head);
        r = remote_put_head(remote, head);
        if (r == -ESTALE)
            remote_fence(remote, head);
        /* It is there: whatever fails from here on, the next head comes after it. */
        if (r == 0)
            remote_head_published(remote, head);
        if (r == 0)
            r = view_published(store->view, up->cut, head->number);
    }
    if (r == 0)
        runs_tidy(store, head);
    if (r == 0 && missing)
        remote_error(remote, 0, "%llu chunks that are damaged on NVMe are missing in the remote",
                     (unsigned long long)missing);
    /* 1: the cut says nothing that the head does not say already. */
    if (r == 0 || r == 1)
        remote_advance(remote, view_cut_state(up->cut).applied_seq);
    free(head);
    return r < 0 ? r : 0;
}

/* What lies badly in the remote is written anew first, so that this round's head already says
 * where. Trouble with it must not keep new data from being published. */
static int relocate(struct upload *up)
{
    struct remote *remote = up->remote;
    struct repair_plan plan;
    int r = repair_plan_make(remote, PASS_CHUNKS, &plan);
    if (r == 0 && plan.pack_count) {
        up->list = plan.list;
        up->count = plan.count;
        up->is_relocating = true;
        r = send_list(up);
        up->is_relocating = false;
        up->list = NULL;
        atomic_store(&up->error, 0);
        if (r == 0)
            r = repair_plan_carried(remote, &plan, atomic_load(&up->unread));
    }
    repair_plan_done(&plan);
    if (r == 0 || r == -ECANCELED)
        return r;
    remote_error(remote, tier_error_is_transient(r) ? r : 0,
                 "writing packs anew failed (%s); trying again later", strerror(-r));
    repair_plan_failed(remote);
    return 0;
}

static int upload_round(struct remote *remote)
{
    struct upload up = {.remote = remote};
    struct store *store = remote->store;
    int r = wait_for_view_room(remote);
    if (r == 0)
        r = view_track(store->view);
    if (r == 0)
        r = relocate(&up);
    if (r == 0)
        r = open_cut(&up);
    if (r == 0) {
        set_target(remote, view_remote(store->view).pending_bytes);
        r = send_pending(&up);
    }
    if (r == 0)
        r = publish(&up);
    if (r == 0)
        repair_round_done(remote);
    set_target(remote, 0);
    close_cut(&up);
    return r;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* A remote that could not be reached at mount. False: it must not be used. */
static bool attach_late(struct remote *remote)
{
    char *text = NULL;
    int r = remote_attach(remote, adopt_is_consistent, &text);
    if (r == 0 && remote->is_attached)
        r = remote_claim(remote, &text);
    if (r == 0 && remote->is_attached)
        r = remote_note_head(remote);
    if (r < 0 && !text) /* transient: again later */
        remote->is_attached = false;
    if (text) {
        remote_error(remote, 0, "%s", text);
        remote->is_attached = false;
    }
    bool hopeless = text && r != -EBUSY;
    if (hopeless)
        remote_give_up(remote);
    free(text);
    return !hopeless;
}

static bool is_behind(struct remote *remote)
{
    if (remote_repair_is_due(remote))
        return true;
    return view_state(remote->store->view).applied_seq > store_remote_horizon(remote->store);
}

/* Heads live on for the grace, so there are not many a second, unless somebody waits for one. */
static bool is_time(struct remote *remote, int64_t last)
{
    return remote_is_urged(remote) || clock_monotonic_ns() - last >= HEAD_INTERVAL_NS;
}

void *upload_run(void *arg)
{
    struct remote *remote = arg;
    int64_t pause = TICK_MS, last = 0;
    if (remote->options.read_only)
        return follow_run(remote);
    while (remote_pause(remote, pause)) {
        pause = remote_is_urged(remote) ? URGED_TICK_MS : TICK_MS;
        if (!remote->is_attached) {
            if (!attach_late(remote))
                break;
            pause = remote->is_attached ? 0 : 5 * RETRY_MS;
            continue;
        }
        int r = remote_gc_tick(remote);
        if (r == 0 && is_behind(remote) && is_time(remote, last)) {
            last = clock_monotonic_ns();
            r = upload_round(remote);
        }
        if (r == -ESTALE)
            break;
        if (r < 0 && r != -ECANCELED) {
            remote_error(remote, 0, "the upload stopped: %s; trying again", strerror(-r));
            pause = RETRY_MS;
        } else if (is_behind(remote) && is_time(remote, last)) {
            pause = 1;
        }
    }
    return NULL;
}
