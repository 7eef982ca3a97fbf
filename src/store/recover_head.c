// SPDX-License-Identifier: Apache-2.0
/* Makes the view from a head's runs and the packs on NVMe. */
#include "base/vector.h"
#include "commit/run_lists.h"
#include "prefix/verdict.h"
#include "store/internal.h"

static int add_row(const struct run_row *row, void *arg)
{
    return view_adopt_row(arg, row);
}

int recover_rows(struct local *local, const struct head *head)
{
    struct view_adoption *adoption = NULL;
    struct view_state state;
    struct view_head of_view;
    view_state_of_head(head, &state, &of_view);
    int r = view_adopt_begin(local->view, &adoption);
    if (r == 0)
        r = runs_read(local, head, add_row, adoption);
    if (r == 0)
        r = view_adopt_end(adoption, &state, &of_view);
    view_adopt_done(adoption);
    return r;
}

struct later {
    uint64_t after;
    VECTOR(uint64_t) made, dropped; /* ascending, once all are known */
};

static void note_pack(const struct record *rec, void *arg)
{
    struct later *later = arg;
    if (rec->type == REC_PACK)
        vector_add(&later->made, rec->pack);
    if (rec->type == REC_DROP)
        vector_add(&later->dropped, rec->pack);
}

/* Packs that are written and dropped after the head's cut are added and dropped by the journal. */
static int note_later(const struct journal_batch *batch, void *arg)
{
    const struct later *later = arg;
    return batch->header.cut_seq > later->after ? batch_each_record(batch, note_pack, arg) : 0;
}

struct whole_pack {
    uint64_t id, length;
};

struct registering {
    struct store *store;
    const struct later *later;
    const struct head *head;
    VECTOR(struct whole_pack) packs;
};

static int count_entry(const struct chunk_entry *entry, void *arg)
{
    (void)entry;
    (*(uint32_t *)arg)++;
    return 0;
}

typedef int pack_index_fn(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                          void *fn_arg, bool *ret_was_made, void *arg);

/* The dropped pack's file may still exist: the power may have failed between the batch that drops
 * it and the removal. */
static int index_of_dropped(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                            void *fn_arg, bool *ret_was_made, void *arg)
{
    (void)pack;
    (void)fn;
    (void)fn_arg;
    (void)arg;
    *ret_was_made = false;
    return -ENOENT;
}

static int register_pack(struct registering *reg, const struct whole_pack *pack, uint32_t count,
                         pack_index_fn *index)
{
    struct record rec = {.type = REC_PACK,
                         .seq = reg->head->cut,
                         .pack = pack->id,
                         .length = pack->length,
                         .count = count};
    size_t len = record_encoded_len(&rec);
    _cleanup_free_ uint8_t *bytes = xcalloc(1, len);
    record_encode(&rec, bytes);
    struct view_batch batch = {.records = bytes,
                               .records_len = len,
                               .cut_seq = reg->head->cut,
                               .pack_index = index,
                               .arg = &reg->store->commit};
    memcpy(batch.chain, reg->head->chain, sizeof batch.chain);
    return view_apply(reg->store->local.view, &batch);
}

static int note_object(const struct tier_object *object, void *arg)
{
    struct registering *reg = arg;
    uint64_t id;
    if (!object_number(object->name, "packs", &id))
        return 0;
    /* A pack that is dropped later need not be registered with its content: its chunks may lie in
     * another pack, which counts then. */
    if (vector_search(&reg->later->made, &id, compare_u64) ||
        vector_search(&reg->later->dropped, &id, compare_u64))
        return 0;
    vector_add(&reg->packs, (struct whole_pack){id, object->len});
    return 0;
}

/* Content is named by its hash: a whole pack serves this state too, whatever it was written for.
 * The newest last: a chunk in several packs was stored again because it was damaged, or its first
 * pack was about to be dropped. */
static int register_packs(struct registering *reg)
{
    int r = 0;
    vector_sort(&reg->packs, compare_u64);
    for (size_t i = 0; i < reg->packs.count && r == 0; i++) {
        uint32_t count = 0;
        if (!packs_is_ours(reg->store->commit.packs,
                           reg->packs.at[i].id)) /* set aside as a leftover */
            continue;
        bool was_made;
        r = packs_recover_index(reg->store->commit.packs, reg->packs.at[i].id, count_entry, &count,
                                &was_made);
        /* The pack is kept, whatever its content: runs may refer to it. If not all of its content
         * was found, its count is unknown (gc.c, may_be_needed()). */
        bool is_lost = r == -EUCLEAN || r == -EBADMSG || r == -EIO;
        if (r == -ENOENT)
            r = 0;
        else if (r == 0 || is_lost)
            r = register_pack(reg, &reg->packs.at[i], r == 0 && !was_made ? count : 0,
                              commit_pack_index);
    }
    return r;
}

/* A pack that is dropped later must be known, as an empty one. */
static int register_dropped(struct registering *reg)
{
    int r = 0;
    for (size_t i = 0; i < reg->later->dropped.count && r == 0; i++) {
        struct view_pack known;
        struct whole_pack pack = {.id = reg->later->dropped.at[i]};
        if (!vector_search(&reg->later->made, &pack.id, compare_u64) &&
            view_pack(reg->store->local.view, pack.id, &known) == -ENOENT)
            r = register_pack(reg, &pack, 0, index_of_dropped);
    }
    return r;
}

int recover_adopt(struct store *store, const struct head *head)
{
    struct later later = {.after = head->cut};
    struct registering reg = {.store = store, .later = &later, .head = head};
    int r = recover_rows(&store->local, head);
    if (r == 0)
        r = journal_read(store->commit.journal, 0, note_later, &later);
    vector_sort_unique(&later.made);
    vector_sort_unique(&later.dropped);
    if (r == 0)
        r = store->local.tier->ops->list(store->local.tier, "packs", NULL, note_object, &reg);
    if (r == 0)
        r = register_packs(&reg);
    if (r == 0)
        r = register_dropped(&reg);
    vector_free(&reg.packs);
    vector_free(&later.made);
    vector_free(&later.dropped);
    return r;
}
