// SPDX-License-Identifier: Apache-2.0
/* A batch: the records that take the durable state from one cut to the next.
 *
 * Operations are written in their original form, except those that no chosen cut needs: content of
 * versions superseded or dead at the cut, and everything about a file that was created and removed
 * in between. */
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "commit/writeback_internal.h"

static void put_record(struct batch *batch, const struct record *rec)
{
    (void)history_dump_record(rec, &batch->bytes);
    batch->count++;
}

void batch_done(struct batch *batch)
{
    vector_free(&batch->bytes);
    vector_free(&batch->packs);
    *batch = (struct batch){0};
}

/* --- files created and removed within the batch ----------------------------------------------- */

struct lifetime {
    UT_hash_handle hh;
    uint64_t ino;
    bool born, died, entangled; /* entangled: an operation connects it with other names */
};

static struct lifetime *lifetime_of(struct lifetime **all, uint64_t ino, bool create)
{
    struct lifetime *life = NULL;
    HASH_FIND(hh, *all, &ino, sizeof ino, life);
    if (!life && create) {
        life = xcalloc(1, sizeof *life);
        life->ino = ino;
        HASH_ADD(hh, *all, ino, sizeof life->ino, life);
    }
    return life;
}

static void note_lifetime(struct lifetime **all, const struct op *op)
{
    struct lifetime *life = lifetime_of(all, op->ino, true);
    switch (op->type) {
    case REC_SEAL:
        life->born = life->born || (op->flags & RECORD_BIRTH);
        break;
    case REC_UNLINK:
        life->died = !(op->flags & RECORD_ORPHAN);
        break;
    case REC_REAP:
        life->died = true;
        break;
    case REC_MAKE:
    case REC_LINK:
    case REC_RENAME:
        life->entangled = true;
        break;
    default:
        break;
    }
    if (op->ino2)
        lifetime_of(all, op->ino2, true)->entangled = true;
}

static struct lifetime *find_lifetimes(struct op *const *ops, size_t count)
{
    struct lifetime *all = NULL;
    for (size_t i = 0; i < count; i++)
        note_lifetime(&all, ops[i]);
    return all;
}

static bool is_void(struct lifetime *all, const struct op *op)
{
    const struct lifetime *life = lifetime_of(&all, op->ino, false);
    return life && life->born && life->died && !life->entangled;
}

bool batch_is_void(struct op *const *ops, size_t op_count)
{
    struct lifetime *all = find_lifetimes(ops, op_count);
    bool nothing = true;
    for (size_t i = 0; i < op_count && nothing; i++)
        nothing = is_void(all, ops[i]);
    HASH_FREE_ALL(all);
    return nothing;
}

/* --- records ---------------------------------------------------------------------------------- */

static void put_extents(struct batch *batch, const struct record *seal,
                        const struct content *content, size_t first, size_t count)
{
    struct record rec = {.type = REC_EXTENTS,
                         .writer = seal->writer,
                         .seq = seal->seq,
                         .time = seal->time,
                         .ino = seal->ino,
                         .version = seal->version,
                         .extents = content->extents.at + first,
                         .extent_count = (uint32_t)count};
    put_record(batch, &rec);
}

static void put_seal(struct batch *batch, const struct record *seal, const struct content *content)
{
    size_t first = 0;
    /* inline extents stay in the SEAL, with their bytes; they are few */
    while (content->extents.count - first > RECORD_EXTENTS_MAX) {
        put_extents(batch, seal, content, first, RECORD_EXTENTS_MAX);
        first += RECORD_EXTENTS_MAX;
    }
    struct record rec = *seal;
    rec.extents_encoded = NULL;
    rec.extents = content->extents.at + first;
    rec.extent_count = (uint32_t)(content->extents.count - first);
    rec.value = content->inline_bytes;
    rec.value_len = content->inline_len;
    put_record(batch, &rec);
}

/* A file created and removed within the batch still changed its directory's times. */
static void put_dir_times(struct batch *batch, const struct record *unlink)
{
    struct record rec = {.type = REC_SETATTR,
                         .writer = unlink->writer,
                         .seq = unlink->seq,
                         .time = unlink->time,
                         .ino = unlink->parent,
                         .mask = ATTR_MTIME | ATTR_CTIME,
                         .attrs = {.mtime = unlink->time, .ctime = unlink->time}};
    put_record(batch, &rec);
}

/* `version`: the content of a SEAL that the cut needs; NULL: none. Decodes each record, which
 * verifies it: memory may have changed since. */
static int put_op(struct batch *batch, const struct op *op, const struct version_content *version,
                  bool is_unneeded)
{
    struct record rec;
    size_t len;
    TRY(record_decode(op->bytes, op->len, &rec, &len));
    if (is_unneeded) {
        if (rec.type == REC_UNLINK)
            put_dir_times(batch, &rec);
        return 0;
    }
    if (rec.type == REC_SEAL && version) {
        /* versions merged into this one changed more than it did itself */
        rec.keep = version->keep;
        put_seal(batch, &rec, &version->content);
        return 0;
    }
    if (rec.type != REC_SEAL) { /* unchanged: the bytes encoded when it happened */
        vector_add_all(&batch->bytes, op->bytes, op->len);
        batch->count++;
    } else if (rec.flags & RECORD_BIRTH) {
        rec.flags |= RECORD_ELIDED;
        put_record(batch, &rec);
    }
    return 0;
}

struct naming {
    struct batch *batch;
    uint32_t writer;
    uint64_t cut;
};

/* Packs that the cut needs are durable by now; others contain data fetched meanwhile. */
static void put_pack(struct new_pack *pack, void *arg)
{
    struct naming *naming = arg;
    if (pack->is_named)
        return;
    struct record rec = {.type = REC_PACK,
                         .writer = naming->writer,
                         .seq = naming->cut,
                         .pack = pack->id,
                         .length = pack->length,
                         .count = pack->count};
    put_record(naming->batch, &rec);
    vector_add(&naming->batch->packs, pack->id);
}

int batch_build(struct commit *commit, const struct batch_source *source, struct batch *ret)
{
    *ret = (struct batch){0};
    struct lifetime *lives = find_lifetimes(source->ops, source->op_count);
    struct naming naming = {.batch = ret, .writer = commit->local->sb.writer, .cut = source->cut};
    packs_each_durable(commit->packs, put_pack, &naming);
    int r = 0;
    /* operations and versions are both in order */
    const struct version_content *version = source->versions,
                                 *end = version + source->version_count;
    for (size_t i = 0; i < source->op_count && r == 0; i++) {
        const struct op *op = source->ops[i];
        while (version < end && version->seal_seq < op->seq)
            version++;
        bool needed = version < end && version->seal_seq == op->seq;
        r = put_op(ret, op, needed ? version : NULL, is_void(lives, op));
    }
    for (size_t i = 0; i < source->drops->count; i++) {
        struct record rec = {.type = REC_DROP,
                             .flags = source->drops->flags,
                             .writer = commit->local->sb.writer,
                             .seq = source->cut,
                             .pack = source->drops->ids[i]};
        put_record(ret, &rec);
    }
    HASH_FREE_ALL(lives);
    if (r < 0)
        batch_done(ret);
    return r;
}
