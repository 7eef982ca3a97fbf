// SPDX-License-Identifier: Apache-2.0
/* Scrub: every pack of NVMe and of the remote is read; its trailer, its index and each chunk that
 * files refer to are verified. A chunk that is damaged on NVMe is read from the remote and stored
 * again; one that is damaged in the remote is uploaded again. */
#include <stdio.h>

#include "base/clock.h"
#include "dense/bases.h"
#include "remote/chunks.h"
#include "remote/maintenance.h"
#include "store/scrub.h"
#include "view/remote.h"

#define SPAN_LEN (8 * MIB) /* read at once */
#define RESCUES_MAX 1000u  /* chunks that are searched elsewhere: each may cost a scan */
#define DROP_WAIT_NS (3ll * 1000000000)
#define LOST_MAX 65536u /* chunks that are reported by their files, not only by their number */

/* --- accounts --------------------------------------------------------------------------------- */

const char *scrub_explain(int error)
{
    return error == -EBADMSG   ? "does not match its checksum"
           : error == -ENOENT  ? "is missing"
           : error == -EUCLEAN ? "is truncated or malformed"
           : error == -ENOLINK ? "refers to one that cannot be read"
                               : strerror(-error);
}

static void keep_rate(struct scrub *s, uint64_t bytes)
{
    int64_t now = clock_monotonic_ns();
    if (s->options->rate == 0)
        return;
    if (s->allowance_at < now)
        s->allowance_at = now;
    int64_t at = s->allowance_at;
    s->allowance_at += (int64_t)((double)bytes * 1e9 / (double)s->options->rate);
    (void)job_sleep(s->job, at);
}

/* --- reading a pack --------------------------------------------------------------------------- */

static uint64_t end_of(const struct chunk_entry *entry)
{
    return entry->offset + entry->stored_len;
}

/* Returns how many chunks, from `first` on, are read with one request. */
static size_t span_of(const struct scrub *s, size_t first, uint64_t *ret_len)
{
    size_t next = first;
    do
        *ret_len = end_of(&s->entries.at[next]) - s->entries.at[first].offset;
    while (++next < s->entries.count &&
           end_of(&s->entries.at[next]) - s->entries.at[first].offset <= SPAN_LEN);
    return next - first;
}

/* A span that cannot be read as a whole is read chunk by chunk, so that one bad place costs one
 * chunk. */
static int scrub_chunk(struct scrub *s, const char *object, const struct bases *bases,
                       const struct chunk_entry *entry, const uint8_t *in_span)
{
    uint32_t len;
    if (!s->is_remote && entry->ref_count > 0) {
        int r = packs_read_chunk(s->store->commit.packs, &entry->name, s->raw, &len);
        return r == -ENODATA ? -ENOENT : r;
    }
    if (!in_span)
        TRY(s->tier->ops->get_range(s->tier, object, entry->offset, s->stored, entry->stored_len));
    return bases_decode(bases, entry, in_span ? in_span : s->stored, s->raw, NULL);
}

static int check_span(struct scrub *s, const char *object, const struct chunk_entry *entries,
                      size_t count, const uint8_t *span, scrub_bad_fn *bad)
{
    int r = 0;
    for (size_t i = 0, n; i < count && r == 0; i += n) {
        struct bases bases;
        /* For chunks in the remote; on NVMe each chunk is read with its own bases. */
        n = bases_gather(&bases, s->store, entries + i, s->is_remote ? count - i : 0);
        n = s->is_remote ? n : count;
        for (size_t k = i; k < i + n && r == 0; k++) {
            r = scrub_chunk(s, object, &bases, &entries[k],
                            span ? span + (entries[k].offset - entries[0].offset) : NULL);
            if (reader_is_damage(r) || (r == -EIO && !s->is_remote))
                r = bad(s, &entries[k], r);
        }
        bases_release(&bases);
    }
    return r;
}

int scrub_entries(struct scrub *s, const char *object, scrub_bad_fn *bad)
{
    int r = 0;
    reader_sort_entries(&s->entries);
    for (size_t first = 0, count; first < s->entries.count && r == 0; first += count) {
        uint64_t len;
        count = span_of(s, first, &len);
        keep_rate(s, len);
        if (job_is_cancelled(s->job))
            return -ECANCELED;
        bool whole = s->tier->ops->get_range(s->tier, object, s->entries.at[first].offset, s->span,
                                             len) == 0;
        r = check_span(s, object, s->entries.at + first, count, whole ? s->span : NULL, bad);
        job_count(s->job, &(struct job_counts){.bytes = len, .chunks = count});
    }
    return r;
}

/* --- NVMe ------------------------------------------------------------------------------------- */

/* No tier can read the chunk: the files that need it are reported at the end. */
static void note_lost(struct scrub *s, const struct chunk_name *name)
{
    if (s->lost.count < LOST_MAX)
        vector_add(&s->lost, *name);
}

/* Reads the chunk from any place where it can be read and stores it in another pack. */
static int heal_chunk(struct scrub *s, const struct chunk_entry *bad)
{
    struct chunk_entry good = *bad;
    job_count(s->job, &(struct job_counts){.found = 1});
    int r = upload_read_chunk(s->store, &good, s->stored, s->raw);
    if (r == -ECANCELED)
        return r;
    good = r < 0 ? *bad : good;
    if (r < 0 &&
        (s->rescues++ >= RESCUES_MAX || !rescue_chunk(s->store, &good, s->stored, s->raw))) {
        job_count(s->job, &(struct job_counts){.unhealed = 1});
        note_lost(s, &bad->name);
        return 0;
    }
    uint64_t seen = event_count(horizon_progress(s->store->commit.horizon));
    while (!heal_give(s->store->commit.heal, &good.name, s->raw, good.raw_len))
        if (!job_await_progress(s->store, &seen, INT64_MAX))
            return -ECANCELED;
    vector_add(&s->given, (struct bad_chunk){bad->name, bad->pack, 0});
    return 0;
}

static int bad_local(struct scrub *s, const struct chunk_entry *entry, int error)
{
    job_say(s->job, "NVMe: packs/%016llx: a chunk of %u bytes at %llu %s",
            (unsigned long long)entry->pack, entry->raw_len, (unsigned long long)entry->offset,
            scrub_explain(error));
    return heal_chunk(s, entry);
}

/* Collects live chunks that have their place in the pack. */
static int collect_local(const struct chunk_entry *entry, void *arg)
{
    struct scrub_collecting *c = arg;
    struct view_local_chunk now;
    int r = view_local_chunk(c->s->store->local.view, &entry->name, &now);
    if (r == 0 && view_is_live(&now) && now.entry.pack == c->pack)
        return reader_add_entry(&now.entry, true, &c->s->entries);
    return r == -ENOENT ? 0 : r;
}

static int collect_known(const struct view_local_chunk *chunk, void *arg)
{
    struct scrub_collecting *c = arg;
    return reader_add_entry(&chunk->entry, chunk->entry.pack == c->pack, &c->s->entries);
}

/* Without its index a view could not be rebuilt from the pack: all chunks that live in it are
 * moved. */
static int leave_pack(struct scrub *s, const struct view_pack *known, int error)
{
    uint64_t pack = known->pack;
    struct scrub_collecting c = {s, pack};
    job_say(s->job, "NVMe: packs/%016llx: its index %s%s", (unsigned long long)pack,
            scrub_explain(error),
            known->count ? ""
                         : "; what lies in it is not known, so it is kept: if no file lacks "
                           "anything, remove it by hand");
    s->entries.count = 0;
    TRY(view_chunks(s->store->local.view, collect_known, &c));
    for (size_t i = 0; i < s->entries.count; i++)
        TRY(heal_chunk(s, &s->entries.at[i]));
    return 0;
}

static int scrub_local_pack(struct scrub *s, uint64_t pack)
{
    struct view_pack known;
    struct scrub_collecting c = {s, pack};
    char object[32];
    pack_object_name(pack, object);
    if (!packs_pin(s->store->commit.packs, pack))
        return 0;
    int r = view_pack(s->store->local.view, pack, &known);
    if (r == 0) {
        s->entries.count = 0;
        r = packs_read_index(s->store->commit.packs, pack, collect_local, &c);
        r = reader_is_damage(r) || r == -EIO ? leave_pack(s, &known, r)
            : r < 0                          ? r
                                             : scrub_entries(s, object, bad_local);
        job_count(s->job, &(struct job_counts){.packs = 1});
    }
    packs_unpin(s->store->commit.packs, pack);
    return r == -ENOENT ? 0 : r;
}

/* --- after the packs -------------------------------------------------------------------------- */

/* An emptied pack must not remain as a problem for the next check. A file that is open may keep it
 * for longer. */
static int await_drop(struct scrub *s, uint64_t pack)
{
    struct view_pack known;
    int64_t until = clock_monotonic_ns() + DROP_WAIT_NS;
    uint64_t seen = event_count(horizon_progress(s->store->commit.horizon));
    while (clock_monotonic_ns() < until) {
        int r = view_pack(s->store->local.view, pack, &known);
        if (r < 0 || known.live_count > 0)
            return r == -ENOENT ? 0 : r;
        gc_ask_soon(&s->store->commit);
        if (!job_await_progress(s->store, &seen, until))
            return -ECANCELED;
    }
    return 0;
}

struct lost_search {
    struct view *view;
    struct chunk_names names;
};

static int collect_lost(const struct chunk_name *name, bool is_local, void *arg)
{
    struct lost_search *search = arg;
    if (!is_local && search->names.count < LOST_MAX)
        vector_add(&search->names, *name);
    return 0;
}

/* The chunk may be in a remote without which the store is mounted now. */
static int collect_placeless(const struct view_local_chunk *chunk, void *arg)
{
    struct lost_search *search = arg;
    struct chunk_entry there;
    bool published;
    bool is_there = chunk->entry.pack > 0 ||
                    view_remote_chunk(search->view, &chunk->entry.name, &there, &published) == 0;
    return collect_lost(&chunk->entry.name, is_there, arg);
}

/* No pack is known to hold these chunks, so reading packs does not find them. With a remote the
 * view lists the chunks that the remote lacks; without one there is no such list, and all chunks
 * are checked. */
static int scrub_lost_chunks(struct scrub *s)
{
    struct view *view = s->store->local.view;
    struct lost_search search = {.view = view};
    int r = s->store->remote ? view_pending_chunks(view, collect_lost, &search)
                             : view_chunks(view, collect_placeless, &search);
    _cleanup_vector_ struct chunk_names names = search.names;
    for (size_t i = 0; i < names.count && r == 0; i++) {
        struct chunk_entry entry;
        uint64_t refs;
        r = view_chunk(s->store->local.view, &names.at[i], &entry, &refs);
        if (r == 0 && refs > 0 && entry.pack == 0)
            r = heal_chunk(s, &entry);
        r = r == -ENOENT ? 0 : r;
    }
    return r;
}

/* Waits until each chunk that was passed on has another place. */
static int await_local(struct scrub *s)
{
    uint64_t last = 0, seen = event_count(horizon_progress(s->store->commit.horizon));
    int r = 0;
    while (heal_is_pending(s->store->commit.heal))
        if (!job_await_progress(s->store, &seen, INT64_MAX))
            return -ECANCELED;
    for (size_t i = 0; i < s->given.count; i++) {
        struct view_local_chunk now;
        bool same = view_local_chunk(s->store->local.view, &s->given.at[i].name, &now) == 0 &&
                    view_is_live(&now) && now.entry.pack == s->given.at[i].pack;
        job_count(s->job, &(struct job_counts){.healed = !same, .unhealed = same});
        if (r == 0 && s->given.at[i].pack != last)
            r = await_drop(s, s->given.at[i].pack);
        last = s->given.at[i].pack;
    }
    return r;
}

/* --- the remote ------------------------------------------------------------------------------- */

static void note_bad_remote(struct scrub *s, const struct chunk_entry *entry, int error)
{
    job_count(s->job, &(struct job_counts){.found = 1});
    if (s->bad_there.count < LOST_MAX)
        vector_add(&s->bad_there, (struct bad_chunk){entry->name, entry->pack, error});
}

/* A chunk that refers to a bad one is bad through no fault of its pack. */
static int bad_remote(struct scrub *s, const struct chunk_entry *entry, int error)
{
    job_say(s->job, "remote: packs/%016llx: a chunk of %u bytes at %llu %s",
            (unsigned long long)entry->pack, entry->raw_len, (unsigned long long)entry->offset,
            scrub_explain(error));
    note_bad_remote(s, entry, error == -ENOLINK ? 0 : error);
    s->is_pack_bad |= error != -ENOLINK;
    return 0;
}

/* Every chunk of the pack is bad. */
static void bad_remote_index(struct scrub *s, uint64_t pack, int error)
{
    job_say(s->job, "remote: packs/%016llx: %s%s", (unsigned long long)pack,
            error == -ENOENT ? "it " : "its index ", scrub_explain(error));
    for (size_t i = 0; i < s->entries.count; i++)
        note_bad_remote(s, &s->entries.at[i], error == -ENOENT ? error : 0);
    s->is_pack_bad = true;
}

static int scrub_remote_pack(struct scrub *s, uint64_t id)
{
    struct view_remote_pack pack;
    char object[32];
    pack_object_name(id, object);
    int r = view_remote_pack(s->store->local.view, id, &pack);
    if (r == -ENOENT || (r == 0 && (pack.unreferenced || pack.gone)))
        return 0;
    TRY(r);
    s->is_pack_bad = false;
    TRY(reader_pack_chunks(s->store, id, &s->entries));
    int index = reader_check_index(s->store, &pack);
    if (index == 0)
        r = scrub_entries(s, object, bad_remote);
    else if (reader_is_damage(index))
        bad_remote_index(s, id, index);
    else
        r = index;
    job_count(s->job, &(struct job_counts){.packs = 1});
    if (s->is_pack_bad)
        remote_note_bad_pack(s->store->remote, id, index == -ENOENT ? index : -EBADMSG);
    return r;
}

static bool is_any_noted(struct scrub *s)
{
    uint64_t last = 0;
    for (size_t i = 0; i < s->bad_there.count; last = s->bad_there.at[i++].pack)
        if (s->bad_there.at[i].pack != last &&
            remote_is_noted_pack(s->store->remote, s->bad_there.at[i].pack))
            return true;
    return false;
}

/* Returns whether a chunk that was bad in the remote has a place there now that can be read. */
static bool is_healed_there(struct scrub *s, const struct bad_chunk *bad)
{
    struct chunk_entry now;
    return view_remote_place(s->store->local.view, &bad->name, &now) == 0 &&
           bases_are_sound(s->store, &now);
}

static bool is_on_nvme(struct scrub *s, const struct chunk_name *name)
{
    struct chunk_entry local;
    uint64_t refs;
    return view_chunk(s->store->local.view, name, &local, &refs) == 0 && local.pack != 0;
}

/* The uploader stores again those that it can, and publishes this. */
static int await_remote(struct scrub *s)
{
    struct remote *remote = s->store->remote;
    uint64_t seen = event_count(horizon_progress(s->store->commit.horizon));
    size_t unhealed = 0;
    int r = 0;
    while (r == 0 && remote_can_repair(remote) && is_any_noted(s))
        r = job_await_progress(s->store, &seen, INT64_MAX) ? 0 : -ECANCELED;
    for (size_t i = 0; i < s->bad_there.count; i++) {
        if (is_healed_there(s, &s->bad_there.at[i]))
            continue;
        unhealed++;
        if (!is_on_nvme(s, &s->bad_there.at[i].name))
            note_lost(s, &s->bad_there.at[i].name);
    }
    job_count(s->job,
              &(struct job_counts){.healed = s->bad_there.count - unhealed, .unhealed = unhealed});
    if (unhealed && r == 0)
        job_say(s->job, "remote: %s",
                remote_can_repair(remote)
                    ? "what is damaged or missing there, and not on NVMe, is asked for again"
                    : "what is damaged there cannot be uploaded again now; see 'cairn status'");
    return r;
}

/* --- the whole scrub -------------------------------------------------------------------------- */

struct pack_list {
    VECTOR(uint64_t) ids;
    uint64_t bytes;
};

static void list_pack(struct pack_list *list, uint64_t id, uint64_t bytes)
{
    vector_add(&list->ids, id);
    list->bytes += bytes;
}

static int add_local_id(const struct view_pack *pack, void *arg)
{
    if (pack->live_count)
        list_pack(arg, pack->pack, pack->live_bytes);
    return 0;
}

static int add_remote_id(const struct view_remote_pack *pack, void *arg)
{
    if (pack->live_count && !pack->unreferenced && !pack->gone)
        list_pack(arg, pack->pack, pack->live_bytes);
    return 0;
}

/* A snapshot of the view must not be held for as long as a slow scrub takes: first the numbers are
 * read, then the packs. */
static int scrub_tier(struct scrub *s, const struct pack_list *packs,
                      int (*scrub_pack)(struct scrub *s, uint64_t pack))
{
    for (size_t i = 0; i < packs->ids.count; i++)
        TRY(job_is_cancelled(s->job) ? -ECANCELED : scrub_pack(s, packs->ids.at[i]));
    return 0;
}

static int scrub_local(struct scrub *s, const struct pack_list *packs)
{
    s->tier = s->store->local.tier;
    s->is_remote = false;
    int r = scrub_tier(s, packs, scrub_local_pack);
    if (r == 0)
        r = scrub_lost_chunks(s);
    if (r == 0)
        r = scrub_local_snapshots(s);
    int waited = await_local(s);
    return r < 0 ? r : waited;
}

static int scrub_remote(struct scrub *s, const struct pack_list *packs)
{
    s->tier = remote_tier(s->store->remote);
    s->is_remote = true;
    int r = scrub_remote_rows(s->store, s->job);
    if (r == 0)
        r = scrub_tier(s, packs, scrub_remote_pack);
    if (r == 0)
        r = scrub_earlier_states(s);
    if (r < 0 && r != -ECANCELED)
        job_say(s->job, "remote: it cannot be read now: %s", strerror(-r));
    int waited = await_remote(s);
    remote_ask_again(s->store->remote);
    return r < 0 ? r : waited;
}

static int name_lost_files(struct scrub *s)
{
    uint64_t files = 0;
    int r = scrub_name_files(s->store, s->job, s->lost.at, s->lost.count, &files);
    job_count(s->job, &(struct job_counts){.files = files});
    return r;
}

static void scrub_done(struct scrub *s)
{
    free(s->span);
    free(s->stored);
    free(s->raw);
    vector_free(&s->entries);
    vector_free(&s->bad_there);
    vector_free(&s->lost);
    vector_free(&s->given);
    vector_free(&s->hurt);
}

int scrub_store(struct store *store, const struct job_options *options)
{
    struct scrub s = {.store = store, .job = store->own->job, .options = options};
    struct pack_list local = {0}, remote = {0};
    bool has_remote = options->remote && store->remote;
    void *span = NULL;
    check(posix_memalign(&span, PACK_ALIGN, SPAN_LEN + CHUNK_SIZE_MAX) == 0);
    s.span = span;
    s.stored = xmalloc(CHUNK_SIZE_MAX);
    s.raw = xmalloc(CHUNK_SIZE_MAX);
    int r = options->local ? view_packs(store->local.view, add_local_id, &local) : 0;
    if (r == 0 && has_remote)
        r = view_remote_packs(store->local.view, add_remote_id, &remote);
    job_count(s.job, &(struct job_counts){.bytes_total = local.bytes + remote.bytes});
    if (r == 0)
        r = scrub_local(&s, &local);
    int remote_result = r == -ECANCELED || !has_remote ? 0 : scrub_remote(&s, &remote);
    int named = name_lost_files(&s);
    r = r < 0 ? r : named;
    vector_free(&local.ids);
    vector_free(&remote.ids);
    scrub_done(&s);
    return r < 0 ? r : remote_result;
}
