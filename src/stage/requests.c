// SPDX-License-Identifier: Apache-2.0
#include "stage/requests.h"

#include "stage/internal.h"

#define WINDOW 16u /* slots in which a request may be */

static _Thread_local struct {
    /* NULL: the thread works for no request, or for one without a slot */
    struct request_slot *slot;
    enum request_kind kind;
    uint64_t records;
} now;

/* The kernel increments the number by two. */
static uint32_t place_of(uint64_t unique, uint32_t i)
{
    return (uint32_t)((unique / 2 + i) % REQUESTS_MAX);
}

static struct request_slot *find_slot(struct stage *stage, uint64_t unique)
{
    for (uint32_t i = 0; i < WINDOW; i++) {
        struct request_slot *slot = &stage->requests[place_of(unique, i)];
        if (atomic_load_explicit(&slot->unique, memory_order_acquire) == unique)
            return slot;
    }
    return NULL;
}

static struct request_slot *insert_slot(struct stage *stage, uint64_t unique)
{
    for (uint32_t i = 0; i < WINDOW; i++) {
        struct request_slot *slot = &stage->requests[place_of(unique, i)];
        uint64_t none = 0;
        if (atomic_load_explicit(&slot->unique, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong(&slot->unique, &none, unique))
            return slot;
    }
    return NULL;
}

static void clear_slot(struct request_slot *slot)
{
    slot->opcode = slot->handle = 0;
    slot->seq = slot->ino = 0;
    slot->result = 0;
    atomic_store_explicit(&slot->answering, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->state, REQUEST_TAKEN, memory_order_relaxed);
    atomic_store(&slot->unique, 0); /* see stage_requests_open() */
}

void stage_request_enter(struct stage *stage, uint64_t unique, uint32_t opcode,
                         enum request_kind kind, uint64_t records)
{
    /* a request that waited for room has a slot already */
    struct request_slot *slot = find_slot(stage, unique);
    if (!slot)
        slot = insert_slot(stage, unique);
    if (slot)
        slot->opcode = opcode;
    now.slot = slot;
    now.kind = kind;
    now.records = records;
}

void stage_request_closes(struct stage *stage, uint64_t handle)
{
    if (!now.slot || now.kind != REQUEST_CLOSES || !handle_is_own(stage->header, handle))
        return;
    now.slot->handle = (uint32_t)handle + 1;
    atomic_store_explicit(&now.slot->state, REQUEST_TO_CLOSE, memory_order_release);
}

void stage_request_decide(uint64_t records)
{
    if (now.kind == REQUEST_RECORDS)
        now.records = records;
}

void stage_request_applied(int64_t result)
{
    if (!now.slot)
        return;
    now.slot->result = result;
    atomic_store_explicit(&now.slot->state, REQUEST_APPLIED, memory_order_release);
}

void stage_request_leave(void)
{
    now.slot = NULL;
}

void stage_request_answering(struct stage *stage, uint64_t unique)
{
    struct request_slot *slot = find_slot(stage, unique);
    if (slot)
        atomic_store_explicit(&slot->answering, 1, memory_order_release);
}

void stage_request_answered(struct stage *stage, uint64_t unique)
{
    struct request_slot *slot = find_slot(stage, unique);
    if (!slot)
        return;
    atomic_store(&stage->request_is_left[slot - stage->requests], false);
    if (now.slot == slot)
        now.slot = NULL;
    clear_slot(slot);
}

bool stage_request_has_place(struct stage *stage, uint64_t unique)
{
    return find_slot(stage, unique) != NULL;
}

unsigned stage_requests_open(struct stage *stage)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        count += atomic_load(&stage->requests[i].unique) != 0;
    return count;
}

/* --- deciding records and writes -------------------------------------------------------------- */

static void begin_slot(uint64_t seq, uint64_t ino)
{
    now.slot->seq = seq;
    now.slot->ino = ino;
    atomic_store_explicit(&now.slot->state, REQUEST_BEGUN, memory_order_release);
}

bool request_begin_record(const struct record *rec)
{
    if (!now.slot || now.kind != REQUEST_RECORDS || !(now.records & (1ull << rec->type)))
        return false;
    begin_slot(rec->seq, rec->ino);
    return true;
}

bool request_begin_write(uint64_t seq, uint64_t ino, uint32_t length)
{
    if (!now.slot || now.kind != REQUEST_WRITES)
        return false;
    now.slot->result = length;
    begin_slot(seq, ino);
    return true;
}

void request_end(bool begun, int r)
{
    if (begun)
        atomic_store_explicit(&now.slot->state, r < 0 ? REQUEST_TAKEN : REQUEST_APPLIED,
                              memory_order_release);
}

/* For a REQUEST_RECORDS, the handle is allocated before the record of its inode is written, and
 * does not decide: a recovery frees it if the record is missing. */
void request_note_opening(uint32_t handle)
{
    if (!now.slot || (now.kind != REQUEST_OPENS && now.kind != REQUEST_RECORDS))
        return;
    now.slot->handle = handle + 1;
    if (now.kind == REQUEST_OPENS)
        atomic_store_explicit(&now.slot->state, REQUEST_APPLIED, memory_order_release);
}

void request_note_closing(uint32_t handle)
{
    if (!now.slot)
        return;
    if (now.kind == REQUEST_CLOSES) {
        now.slot->handle = handle + 1;
        atomic_store_explicit(&now.slot->state, REQUEST_CLOSING, memory_order_release);
    } else if (now.slot->handle == handle + 1) {
        /* it failed later */
        atomic_store_explicit(&now.slot->state, REQUEST_TAKEN, memory_order_release);
        now.slot->handle = 0;
    }
}

/* From now on the handle may be reused. */
void request_note_closed(void)
{
    if (!now.slot || now.kind != REQUEST_CLOSES)
        return;
    atomic_store_explicit(&now.slot->state, REQUEST_APPLIED, memory_order_release);
    now.slot->handle = 0;
}

/* --- closed, and not sealed yet --------------------------------------------------------------- */

void stage_set_due(struct stage *stage, const uint64_t *inos, size_t count)
{
    check(count <= STAGE_DUE_MAX);
    for (size_t i = 0; i < STAGE_DUE_MAX; i++)
        atomic_store_explicit(&stage->due[i], i < count ? inos[i] : 0, memory_order_release);
}

bool stage_is_due(struct stage *stage, uint64_t ino)
{
    for (size_t i = 0; i < STAGE_DUE_MAX; i++)
        if (atomic_load_explicit(&stage->due[i], memory_order_acquire) == ino)
            return true;
    return false;
}

/* --- recovery --------------------------------------------------------------------------------- */

void requests_reset(struct stage *stage)
{
    memset(stage->requests, 0, REQUESTS_MAX * sizeof *stage->requests);
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        atomic_store(&stage->request_is_left[i], false);
    stage_set_due(stage, NULL, 0);
    atomic_store(&stage->header->requests, REQUESTS_MAGIC);
}

size_t requests_begun(const struct stage *stage, uint64_t *seqs, size_t max)
{
    size_t count = 0;
    for (uint32_t i = 0;
         i < REQUESTS_MAX && atomic_load(&stage->header->requests) == REQUESTS_MAGIC; i++) {
        const struct request_slot *slot = &stage->requests[i];
        if (atomic_load(&slot->unique) && atomic_load(&slot->state) == REQUEST_BEGUN && count < max)
            seqs[count++] = slot->seq;
    }
    return count;
}

void requests_found(struct stage *stage, uint64_t seq)
{
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        struct request_slot *slot = &stage->requests[i];
        if (atomic_load(&slot->unique) && atomic_load(&slot->state) == REQUEST_BEGUN &&
            slot->seq == seq)
            atomic_store(&slot->state, REQUEST_APPLIED);
    }
}

static void settle_slot(struct stage *stage, uint32_t i)
{
    struct request_slot *slot = &stage->requests[i];
    uint32_t state = atomic_load(&slot->state);
    struct handle_entry *entry =
        slot->handle && slot->handle <= HANDLES_MAX ? &stage->handles[slot->handle - 1] : NULL;
    if (state != REQUEST_APPLIED && state != REQUEST_TO_CLOSE) {
        if (entry)
            entry->ino = 0; /* it was being closed, or its inode was not created */
        slot->handle = 0;
    }
    atomic_store(&slot->state, state == REQUEST_APPLIED || state == REQUEST_CLOSING
                                   ? REQUEST_APPLIED
                                   : REQUEST_TAKEN);
    atomic_store(&stage->request_is_left[i], true);
}

void requests_adopt(struct stage *stage)
{
    if (atomic_load(&stage->header->requests) != REQUESTS_MAGIC) {
        requests_reset(stage);
        return;
    }
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        if (atomic_load(&stage->requests[i].unique))
            settle_slot(stage, i);
}

static struct stage_request request_of(const struct stage *stage, const struct request_slot *slot)
{
    return (struct stage_request){
        .unique = atomic_load(&slot->unique),
        .opcode = slot->opcode,
        .is_applied = atomic_load(&slot->state) == REQUEST_APPLIED,
        .was_answering = atomic_load(&slot->answering) != 0,
        .ino = slot->ino,
        .result = slot->result,
        .has_handle = slot->handle != 0,
        .handle = slot->handle ? handle_number(stage->header, slot->handle - 1) : 0};
}

bool stage_request_return(struct stage *stage, uint64_t unique, struct stage_request *ret)
{
    struct request_slot *slot = find_slot(stage, unique);
    if (!slot || !stage->request_is_left[slot - stage->requests])
        return false;
    atomic_store(&stage->request_is_left[slot - stage->requests], false);
    *ret = request_of(stage, slot);
    atomic_store_explicit(&slot->answering, 0, memory_order_relaxed);
    return true;
}

bool stage_request_take_left(struct stage *stage, struct stage_request *ret)
{
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        if (!stage->request_is_left[i])
            continue;
        atomic_store(&stage->request_is_left[i], false);
        *ret = request_of(stage, &stage->requests[i]);
        clear_slot(&stage->requests[i]);
        return true;
    }
    return false;
}

bool stage_request_left_made(struct stage *stage, uint64_t ino)
{
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        if (stage->request_is_left[i] && stage->requests[i].ino == ino)
            return true;
    return false;
}
