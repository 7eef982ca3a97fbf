// SPDX-License-Identifier: Apache-2.0
/* Chunks that refer to others, in a small remote. The first bytes say of which kind each is; what
 * follows damages some: their stored bytes, what the index says of them, the bases that are there.
 * Whatever that gives, a chunk is read as it was or not at all, with every set of instructions the
 * same; where nothing is damaged, all are read. */
#include "base/log.h"
#include "codec/dx.h"
#include "codec/encode.h"
#include "codec/twin.h"
#include "commit/shared.h"
#include "dense/bases.h"
#include "dense/dense.h"
#include "format/le.h"
#include "fuzz.h"

#define CHUNKS_MAX 10u
#define RAW_MAX (8u * 1024)
#define STORED_MAX (RAW_MAX * 3 + 100)
#define PACKS 3u
#define PACK_LEN (16u * 1024 * 1024)
#define GETS_MAX 100000u /* no chain asks so often */

struct chunk {
    uint8_t raw[RAW_MAX];
    uint32_t raw_len;
    uint8_t stored[STORED_MAX];
    struct chunk_entry entry; /* as it was written */
    struct chunk_entry told;  /* as the index says */
    bool is_flapping;         /* the index says the one and the other in turns */
    bool is_missing, is_local;
    int local_error;
    unsigned looks;
};

static struct chunk chunks[CHUNKS_MAX];
static size_t count;
static uint64_t stride; /* from chunk to chunk in the packs */
static int pack_error[PACKS + 1];
static unsigned gets;
static enum cpu_level level;
static struct store store;

/* --- the store around bases.c ----------------------------------------------------------------- */

enum cpu_level __wrap_cpu_level(void);
int __wrap_view_remote_place(struct view *view, const struct chunk_name *name,
                             struct chunk_entry *ret_entry);
int __wrap_packs_find(struct packs *s, const struct chunk_name *name, struct chunk_entry *ret);
int __wrap_packs_read_at(struct packs *s, const struct chunk_entry *place, void *buf);
void __wrap_damage_note_local(struct damage *s, const struct chunk_name *name);
bool __wrap_heal_give(struct heal *s, const struct chunk_name *name, const void *raw,
                      size_t raw_len);

static struct chunk *find(const struct chunk_name *name)
{
    for (size_t i = 0; i < count; i++)
        if (chunk_name_equal(&chunks[i].entry.name, name))
            return &chunks[i];
    return NULL;
}

enum cpu_level __wrap_cpu_level(void)
{
    return level;
}

int __wrap_view_remote_place(struct view *view, const struct chunk_name *name,
                             struct chunk_entry *ret_entry)
{
    struct chunk *chunk = find(name);
    (void)view;
    if (!chunk || chunk->is_missing)
        return -ENOENT;
    *ret_entry = chunk->is_flapping && chunk->looks++ % 2 ? chunk->entry : chunk->told;
    return 0;
}

int __wrap_packs_find(struct packs *s, const struct chunk_name *name, struct chunk_entry *ret)
{
    const struct chunk *chunk = find(name);
    (void)s;
    if (!chunk || !chunk->is_local)
        return -ENOENT;
    *ret = (struct chunk_entry){
        .name = *name, .pack = 99, .stored_len = chunk->raw_len, .raw_len = chunk->raw_len};
    return 0;
}

int __wrap_packs_read_at(struct packs *s, const struct chunk_entry *place, void *buf)
{
    const struct chunk *chunk = find(&place->name);
    (void)s;
    check(chunk && chunk->is_local);
    if (chunk->local_error == 0)
        memcpy(buf, chunk->raw, chunk->raw_len);
    return chunk->local_error;
}

void __wrap_damage_note_local(struct damage *s, const struct chunk_name *name)
{
    (void)s, (void)name;
}

bool __wrap_heal_give(struct heal *s, const struct chunk_name *name, const void *raw,
                      size_t raw_len)
{
    const struct chunk *chunk = find(name);
    (void)s;
    check(chunk && raw_len == chunk->raw_len && memcmp(raw, chunk->raw, raw_len) == 0);
    return true;
}

static void note_bad_pack(struct remote *remote, uint64_t pack, int error)
{
    (void)remote, (void)pack, (void)error;
}

static int read_pack(struct remote *remote, uint64_t pack, uint64_t offset, void *buf, size_t len)
{
    (void)remote;
    check(++gets < GETS_MAX);
    if (pack > PACKS || pack_error[pack])
        return pack > PACKS ? -ENOENT : pack_error[pack];
    if (offset > PACK_LEN || len > PACK_LEN - offset)
        return -EUCLEAN;
    memset(buf, 0, len);
    for (size_t i = 0; i < count; i++) {
        const struct chunk_entry *e = &chunks[i].entry;
        uint64_t from = max_u64(offset, e->offset),
                 to = min_u64(offset + len, e->offset + e->stored_len);
        if (e->pack == pack && from < to)
            memcpy((uint8_t *)buf + (from - offset), chunks[i].stored + (from - e->offset),
                   to - from);
    }
    return 0;
}

/* --- chunks ----------------------------------------------------------------------------------- */

static uint32_t noise(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static void refer(struct chunk_entry *entry, const struct chunk *base, uint32_t offset,
                  uint32_t length)
{
    entry->refs[entry->ref_count++] = (struct chunk_ref){base->entry.name, offset, length};
    if (entry->depth <= base->entry.depth)
        entry->depth = base->entry.depth + 1;
}

static void make_plain(struct chunk *chunk, uint32_t raw_len, uint32_t seed)
{
    chunk->raw_len = raw_len;
    for (uint32_t i = 0; i + 2 <= raw_len; i += 2)
        put_le16(chunk->raw + i, (uint16_t)(0x3c00 + (noise(&seed) & 0x83ff)));
}

/* The chunk is a later version of the base. False: its difference does not pay. */
static bool make_dx(struct chunk *chunk, const struct chunk *base, uint8_t width, uint32_t seed)
{
    struct fx_guess guess = {.width = width};
    chunk->raw_len = base->raw_len;
    memcpy(chunk->raw, base->raw, base->raw_len);
    for (uint32_t i = 0; i < chunk->raw_len; i += width)
        chunk->raw[i] = (uint8_t)(chunk->raw[i] + noise(&seed) % 4);
    const struct dx_pair pair = {chunk->raw, base->raw, chunk->raw_len};
    size_t len = dx_encode(&dx_scalar, &guess, &pair, chunk->stored, STORED_MAX);
    chunk->entry.stored_len = (uint32_t)len;
    chunk->entry.encoding = ENCODING_DX;
    if (len)
        refer(&chunk->entry, base, 0, base->raw_len);
    return len > 0;
}

/* The chunk's numbers are rounded to those of two images, in `parts` slices. */
static bool make_twin(struct chunk *chunk, const struct chunk *a, const struct chunk *b,
                      unsigned parts, uint32_t seed)
{
    static uint8_t scratch[TWIN_SCRATCH_LEN];
    struct twin_part list[CHUNK_REFS_MAX];
    uint32_t image_len = (uint32_t)min_u64(min_u64(a->raw_len, b->raw_len), RAW_MAX / 2),
             each = image_len / parts / 2;
    chunk->raw_len = 2 * image_len;
    memset(chunk->raw, 7, chunk->raw_len);
    for (unsigned p = 0; p < parts; p++) {
        const struct chunk *image = p % 2 ? b : a;
        uint32_t offset = p * 2 * each, at = p * 4 * each;
        list[p] = (struct twin_part){image->raw + offset, at, each};
        for (uint32_t k = 0; k < each; k++)
            put_le32(chunk->raw + at + 4 * k,
                     ((uint32_t)get_le16(image->raw + offset + 2 * k) << 16) +
                         (noise(&seed) & 0x7fff));
        refer(&chunk->entry, image, offset, 2 * each);
    }
    const struct twin_chunk twin = {list, parts, chunk->raw, chunk->raw_len};
    chunk->entry.stored_len =
        (uint32_t)twin_encode(CPU_SCALAR, &twin, scratch, chunk->stored, STORED_MAX);
    chunk->entry.encoding = ENCODING_TWIN;
    return chunk->entry.stored_len > 0;
}

static void store_plain(struct chunk *chunk)
{
    static uint8_t scratch[CHUNK_SCRATCH_LEN];
    struct iovec iov = {chunk->raw, chunk->raw_len};
    struct chunk_encoded e =
        chunk_encode(REDUCE_FAST, &iov, 1, chunk->raw_len, scratch, chunk->stored);
    if (e.encoding == ENCODING_RAW)
        memcpy(chunk->stored, chunk->raw, chunk->raw_len);
    chunk->entry = (struct chunk_entry){.encoding = e.encoding, .stored_len = (uint32_t)e.len};
}

static void make_chunk(struct input *in, size_t i)
{
    struct chunk *chunk = &chunks[i];
    uint8_t kind = input_u8(in), which = input_u8(in), how = input_u8(in);
    const struct chunk *a = i ? &chunks[which % i] : NULL, *b = i ? &chunks[how % i] : NULL;
    uint32_t seed = (uint32_t)(i * 256 + which);
    bool is_dense = false;
    *chunk = (struct chunk){0};
    if (kind % 3 == 1 && a)
        is_dense = make_dx(chunk, a, how % 2 ? 2 : 4, seed);
    else if (kind % 3 == 2 && a)
        is_dense = make_twin(chunk, a, b, 1 + how / 16 % CHUNK_REFS_MAX, seed);
    else
        make_plain(chunk, FX_RAW_MIN, seed);
    if (!is_dense)
        store_plain(chunk);
    struct iovec iov = {chunk->raw, chunk->raw_len};
    chunk->entry.name = hash_chunk(&store.local.sb.key, &iov, 1);
    chunk->entry.raw_len = chunk->raw_len;
    chunk->entry.pack = 1 + i % PACKS;
    chunk->entry.offset = i * stride;
    chunk->told = chunk->entry;
    chunk->is_local = kind & 128;
}

/* --- damage ----------------------------------------------------------------------------------- */

static void damage_reference(struct input *in, struct chunk_entry *told)
{
    uint8_t how = input_u8(in);
    uint16_t value = input_u16(in);
    struct chunk_ref *ref = &told->refs[how % CHUNK_REFS_MAX];
    if (how & 16)
        ref->name = chunks[value % count].entry.name;
    if (how & 32)
        ref->name.bytes[value % sizeof ref->name]++;
    if (how & 64)
        ref->offset = how & 4 ? 0xffff0000u | value : value;
    if (how & 128)
        ref->length = how & 8 ? 0xffff0000u | value : value;
}

static void damage_entry(struct input *in, struct chunk_entry *told)
{
    uint8_t how = input_u8(in);
    uint16_t value = input_u16(in);
    switch (how % 8) {
    case 0:
        told->encoding = (uint8_t)(value % 7);
        break;
    case 1:
        told->ref_count = (uint8_t)(value % 6);
        break;
    case 2:
        told->depth = (uint8_t)(value % 12);
        break;
    case 3:
        told->raw_len = (uint32_t)value << how % 6;
        break;
    case 4:
        told->stored_len = (uint32_t)value << how % 6;
        break;
    case 5:
        told->offset += value;
        break;
    case 6:
        told->pack = value % (PACKS + 2);
        break;
    default:
        *told = chunks[value % count].told;
    }
}

static void damage_stored(struct input *in, struct chunk *chunk)
{
    uint8_t how = input_u8(in);
    uint16_t value = input_u16(in);
    if (how % 2) {
        chunk->stored[value % chunk->entry.stored_len] ^= (uint8_t)(1u << how / 2 % 8);
        return;
    }
    size_t len = min_u64(in->left, STORED_MAX);
    if (len)
        memcpy(chunk->stored, in->at, len);
}

static void damage_place(struct input *in, struct chunk *chunk)
{
    static const int errors[] = {-ENOENT, -EBADMSG, -EUCLEAN, -EIO, -ETIMEDOUT, -ECANCELED};
    uint8_t how = input_u8(in);
    switch (how % 4) {
    case 0:
        chunk->is_missing = true;
        break;
    case 1:
        chunk->is_flapping = true;
        break;
    case 2:
        chunk->local_error = errors[how / 4 % ARRAY_LEN(errors)];
        break;
    default:
        pack_error[chunk->entry.pack] = errors[how / 4 % ARRAY_LEN(errors)];
    }
}

/* False: all is as it was written. */
static bool damage(struct input *in)
{
    bool is_damaged = in->left > 0;
    for (unsigned n = 0; n < 16 && in->left; n++) {
        uint8_t what = input_u8(in);
        struct chunk *chunk = &chunks[what / 4 % count];
        switch (what % 4) {
        case 0:
            damage_reference(in, &chunk->told);
            break;
        case 1:
            damage_entry(in, &chunk->told);
            break;
        case 2:
            damage_stored(in, chunk);
            break;
        default:
            damage_place(in, chunk);
        }
    }
    return is_damaged;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Bytes of the chunk go to `raw`, as every reader of the remote has them. */
static int read_chunk(struct chunk *chunk, uint8_t **ret_raw)
{
    struct chunk_entry entry;
    struct bases bases;
    int r = dense_find_place(&store, &chunk->entry.name, &entry);
    if (r < 0)
        return r;
    entry.name = chunk->entry.name; /* callers that look it up have it */
    uint8_t *stored = xmalloc(entry.stored_len), *raw = xmalloc(entry.raw_len);
    r = read_pack(NULL, entry.pack, entry.offset, stored, entry.stored_len);
    if (r == 0) {
        check(bases_gather(&bases, &store, &entry, 1) == 1);
        r = bases_decode(&bases, &entry, stored, raw, NULL);
        bases_release(&bases);
    }
    check(r < 0 ||
          (entry.raw_len == chunk->raw_len && memcmp(raw, chunk->raw, entry.raw_len) == 0));
    free(stored);
    *ret_raw = raw;
    return r;
}

static void forget_looks(void)
{
    gets = 0;
    for (size_t i = 0; i < count; i++)
        chunks[i].looks = 0;
}

static void read_at_level(enum cpu_level at, int results[CHUNKS_MAX])
{
    level = at;
    forget_looks();
    store.past = past_views_new();
    store.dense = dense_new(
        &store, &(struct dense_remote){.read = read_pack, .note_bad_pack = note_bad_pack}, false);
    for (size_t i = 0; i < count; i++) {
        uint8_t *raw = NULL;
        results[i] = read_chunk(&chunks[i], &raw);
        free(raw);
    }
    dense_free(store.dense);
    past_views_free(store.past);
}

/* The encoding alone, beside bases of lengths that the index did not tell. */
static void decode_alone(const struct chunk *chunk, uint8_t how)
{
    struct iovec bases[CHUNK_REFS_MAX];
    struct chunk_entry entry = chunk->told;
    entry.raw_len = (uint32_t)min_u64(entry.raw_len, 2 * CHUNK_SIZE_MAX);
    entry.stored_len = (uint32_t)min_u64(entry.stored_len, STORED_MAX);
    uint8_t *stored = exact_copy(chunk->stored, entry.stored_len),
            *raw = xmalloc(entry.raw_len ? entry.raw_len : 1);
    for (size_t i = 0; i < CHUNK_REFS_MAX; i++) {
        const struct chunk *base = &chunks[(how + i) % count];
        uint32_t len = how & 1u << i ? (uint32_t)min_u64(entry.refs[i].length, RAW_MAX)
                                     : base->raw_len / (1 + how / 64);
        bases[i] = (struct iovec){exact_copy(base->raw, len), len};
    }
    level = cpu_level_of_machine();
    int r = chunk_decode_entry(&entry, stored, how & 16 ? NULL : bases, raw);
    check(r == 0 || r == -EBADMSG || r == -EUCLEAN || r == -EPROTONOSUPPORT);
    for (size_t i = 0; i < CHUNK_REFS_MAX; i++)
        free(bases[i].iov_base);
    free(stored);
    free(raw);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    log_set_level(LOG_LEVEL_ERROR);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    int scalar[CHUNKS_MAX], others[CHUNKS_MAX];
    uint8_t how = input_u8(&in);
    size_t wanted = 1 + how % CHUNKS_MAX;
    stride = how & 128 ? 200u * 1024 : STORED_MAX;
    level = cpu_level_of_machine();
    memset(pack_error, 0, sizeof pack_error);
    for (count = 0; count < wanted; count++)
        make_chunk(&in, count);
    bool is_damaged = damage(&in);
    read_at_level(CPU_SCALAR, scalar);
    for (enum cpu_level at = CPU_SCALAR + 1; at <= cpu_level_of_machine(); at++) {
        read_at_level(at, others);
        check(memcmp(scalar, others, count * sizeof *scalar) == 0);
    }
    for (size_t i = 0; i < count && !is_damaged; i++)
        check(scalar[i] == 0 || chunks[i].entry.depth > CHUNK_DEPTH_MAX);
    for (size_t i = 0; i < count && is_damaged; i++)
        decode_alone(&chunks[i], data[size - 1]);
    return 0;
}
