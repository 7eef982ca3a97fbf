// SPDX-License-Identifier: Apache-2.0
/* Head:
 *
 *   OFFSET SIZE
 *        0    8  "CAIRNHED"
 *        8    4  version
 *       12    4  number of runs
 *       16    8  number
 *       24   16  history
 *       40   16  store id
 *       56   16  nonce
 *       72    8  epoch
 *       80    2  writer
 *       82    2  number of entries about heads that were given up
 *       84    4  features that a reader must know; zero in version 1
 *       88    8  hybrid time of the cut, ns
 *       96    8  published, ns since 1970
 *      104    8  cut
 *      112   32  chain
 *      144    8  largest inode number, without writer slot
 *      152    8  largest id of a pack or run
 *      160    8  files
 *      168    8  logical bytes
 *      176    8  chunks
 *      184    8  stored bytes
 *      192    8  packs
 *      200    8  bytes of packs
 *      208  128  holder, then zeros
 *      336       runs, 72 bytes each
 *                entries about heads that were given up, 40 bytes each
 *                4  zero
 *                4  crc32 of everything before it
 *
 * Run of a head:
 *
 *   OFFSET SIZE
 *        0    8  run id
 *        8    8  base cut
 *       16    8  cut
 *       24    8  rows
 *       32    8  length
 *       40   32  hash
 *
 * Entry about heads that were given up:
 *
 *   OFFSET SIZE
 *        0    8  cut of the head from which the writer went on
 *        8    8  newest epoch of those given up
 *       16    8  first number of those given up
 *       24    8  last number
 *       32    8  when, ns since 1970
 *
 * Prefix info:
 *
 *   OFFSET SIZE
 *        0    8  "CAIRNPFX"
 *        8    4  version
 *       12    4  zero
 *       16    8  features that a reader must know
 *       24    8  features that a writer must know
 *       32    8  features that need not be known
 *       40   16  history
 *       56    8  created, ns since 1970
 *       64    8  key id
 *       72   32  chunk key
 *      104  148  zero
 *      252    4  crc32 of everything before it
 *
 * Lease:
 *
 *   OFFSET SIZE
 *        0    8  "CAIRNLSE"
 *        8    4  version
 *       12    4  zero
 *       16   16  history
 *       32   16  store id
 *       48    8  epoch
 *       56  128  holder, then zeros
 *      184   68  zero
 *      252    4  crc32 of everything before it
 *
 * Magic, version, feature words and checksum stay where they are in every later version; the
 * checksum of a head is its
 * last 4 bytes. */
#include "format/head.h"

#include "base/crc.h"
#include "format/le.h"
#include "format/record.h"

static const uint8_t head_magic[8] = {'C', 'A', 'I', 'R', 'N', 'H', 'E', 'D'};
static const uint8_t prefix_magic[8] = {'C', 'A', 'I', 'R', 'N', 'P', 'F', 'X'};
static const uint8_t lease_magic[8] = {'C', 'A', 'I', 'R', 'N', 'L', 'S', 'E'};

#define HEAD_RUNS_AT 336u
#define HEAD_RUN_LEN 72u
#define HEAD_GIVEN_UP_LEN 40u
#define HEAD_TAIL_LEN 8u
/* A feature of heads alone: they name what was given up. A writer that ignored it would take a
 * state that was given up for an earlier one of this, and discard its own. */
#define HEAD_INCOMPAT_GIVEN_UP (1u << 31)
#define HEAD_INCOMPAT_KNOWN (SUPERBLOCK_INCOMPAT_ENCODINGS | HEAD_INCOMPAT_GIVEN_UP)
#define PREFIX_FIELDS_END 104u
#define PREFIX_CRC_AT (PREFIX_INFO_LEN - 4)
#define PREFIX_INCOMPAT_KNOWN SUPERBLOCK_INCOMPAT_ENCODINGS
#define LEASE_FIELDS_END 184u
#define LEASE_CRC_AT (LEASE_LEN - 4)
#define EPOCH_MAX ((1ull << (64 - SEQ_EPOCH_SHIFT)) - 1)
#define INO_MAX ((1ull << 48) - 1)

_Static_assert(HEAD_RUNS_AT + HEAD_RUNS_MAX * HEAD_RUN_LEN + HEAD_GIVEN_UP_MAX * HEAD_GIVEN_UP_LEN +
                       HEAD_TAIL_LEN <=
                   HEAD_LEN_MAX,
               "a full head fits");
_Static_assert((SUPERBLOCK_INCOMPAT_ENCODINGS & HEAD_INCOMPAT_GIVEN_UP) == 0,
               "features of a head and of a superblock share a word");
_Static_assert(RUN_MERGE_MAX >= HEAD_RUNS_MAX + 8,
               "the runs of a full head can be merged, and new ones with them");

/* Frames each of the three: magic, version, and a checksum in the last 4 of
 * `len` bytes. */
static void put_frame(uint8_t *p, size_t len, const uint8_t magic[8], uint32_t version)
{
    memcpy(p, magic, 8);
    put_le32(p + 8, version);
    put_le32(p + len - 4, crc32_of(0, p, len - 4));
}

static int check_frame(const uint8_t *p, size_t len, const uint8_t magic[8], uint32_t version)
{
    if (memcmp(p, magic, 8) != 0)
        return -EUCLEAN;
    if (get_le32(p + len - 4) != crc32_of(0, p, len - 4))
        return -EBADMSG;
    return get_le32(p + 8) > 0 ? format_check_known(get_le32(p + 8), version, 0, 0) : -EUCLEAN;
}

/* These bytes were cleared before; what the holder's string has behind its end stays out of it. */
static void put_head_holder(uint8_t *p, const char holder[HEAD_HOLDER_MAX])
{
    size_t len = strnlen(holder, HEAD_HOLDER_MAX);
    check(len < HEAD_HOLDER_MAX);
    memcpy(p, holder, len);
}

static bool get_head_holder(const uint8_t *p, char ret_holder[HEAD_HOLDER_MAX])
{
    memcpy(ret_holder, p, HEAD_HOLDER_MAX);
    size_t len = strnlen(ret_holder, HEAD_HOLDER_MAX);
    return len < HEAD_HOLDER_MAX && bytes_are_zero(p + len, HEAD_HOLDER_MAX - len);
}

/* --- head ------------------------------------------------------------------------------------- */

static bool run_id_is_new(const struct head *head, uint32_t i)
{
    for (uint32_t j = 0; j < i; j++)
        if (head->runs[j].id == head->runs[i].id)
            return false;
    return head->runs[i].id != 0;
}

static bool runs_sane(const struct head *head)
{
    uint64_t cut = 0;
    for (uint32_t i = 0; i < head->run_count; i++) {
        const struct run_info *run = &head->runs[i];
        if (!run_id_is_new(head, i) || run->base_cut != cut || run->cut < cut)
            return false;
        if (run->length < RUN_HEADER_LEN + RUN_TRAILER_LEN || run->length > INT64_MAX)
            return false;
        if (memcmp(run->history, head->history, sizeof head->history) != 0)
            return false;
        cut = run->cut;
    }
    return cut == head->cut;
}

static bool given_up_sane(const struct head *head)
{
    if (head->given_up_count > HEAD_GIVEN_UP_MAX)
        return false;
    for (uint32_t i = 0; i < head->given_up_count; i++) {
        const struct head_given_up *g = &head->given_up[i];
        if (g->epoch > EPOCH_MAX || g->cut >> SEQ_EPOCH_SHIFT > g->epoch || g->first == 0 ||
            g->last < g->first - 1 || g->last > head->number || g->time < 0)
            return false;
    }
    return true;
}

static bool head_sane(const struct head *head)
{
    return head->number > 0 && head->epoch <= EPOCH_MAX && head->max_ino <= INO_MAX &&
           head->run_count <= HEAD_RUNS_MAX && runs_sane(head) && given_up_sane(head);
}

static void encode_run(const struct run_info *run, uint8_t *p)
{
    put_le64(p, run->id);
    put_le64(p + 8, run->base_cut);
    put_le64(p + 16, run->cut);
    put_le64(p + 24, run->rows);
    put_le64(p + 32, run->length);
    memcpy(p + 40, run->hash, sizeof run->hash);
}

static void decode_run(const uint8_t *p, const uint8_t history[16], struct run_info *ret_run)
{
    *ret_run = (struct run_info){.id = get_le64(p),
                                 .base_cut = get_le64(p + 8),
                                 .cut = get_le64(p + 16),
                                 .rows = get_le64(p + 24),
                                 .length = get_le64(p + 32)};
    memcpy(ret_run->history, history, sizeof ret_run->history);
    memcpy(ret_run->hash, p + 40, sizeof ret_run->hash);
}

static void encode_given_up(const struct head_given_up *given_up, uint8_t *p)
{
    put_le64(p, given_up->cut);
    put_le64(p + 8, given_up->epoch);
    put_le64(p + 16, given_up->first);
    put_le64(p + 24, given_up->last);
    put_le64(p + 32, (uint64_t)given_up->time);
}

static void decode_given_up(const uint8_t *p, struct head_given_up *ret)
{
    *ret = (struct head_given_up){.cut = get_le64(p),
                                  .epoch = get_le64(p + 8),
                                  .first = get_le64(p + 16),
                                  .last = get_le64(p + 24),
                                  .time = (int64_t)get_le64(p + 32)};
}

static size_t head_len(const struct head *head)
{
    return HEAD_RUNS_AT + (size_t)head->run_count * HEAD_RUN_LEN +
           (size_t)head->given_up_count * HEAD_GIVEN_UP_LEN + HEAD_TAIL_LEN;
}

static void encode_head_state(const struct head *head, uint8_t *p)
{
    put_le64(p + 104, head->cut);
    memcpy(p + 112, head->chain, sizeof head->chain);
    put_le64(p + 144, head->max_ino);
    put_le64(p + 152, head->max_id);
    put_le64(p + 160, head->files);
    put_le64(p + 168, head->logical_bytes);
    put_le64(p + 176, head->chunks);
    put_le64(p + 184, head->stored_bytes);
    put_le64(p + 192, head->packs);
    put_le64(p + 200, head->pack_bytes);
}

size_t head_encode(const struct head *head, void *buf)
{
    check(head_sane(head));
    size_t len = head_len(head);
    uint32_t incompat = head->incompat | (head->given_up_count ? HEAD_INCOMPAT_GIVEN_UP : 0);
    uint8_t *p = buf;
    memset(p, 0, len);
    put_le32(p + 12, head->run_count);
    put_le64(p + 16, head->number);
    memcpy(p + 24, head->history, sizeof head->history);
    memcpy(p + 40, head->store, sizeof head->store);
    memcpy(p + 56, head->nonce, sizeof head->nonce);
    put_le64(p + 72, head->epoch);
    put_le16(p + 80, head->writer);
    put_le16(p + 82, (uint16_t)head->given_up_count);
    put_le32(p + 84, incompat);
    put_le64(p + 88, (uint64_t)head->time);
    put_le64(p + 96, (uint64_t)head->published);
    encode_head_state(head, p);
    put_head_holder(p + 208, head->holder);
    for (uint32_t i = 0; i < head->run_count; i++)
        encode_run(&head->runs[i], p + HEAD_RUNS_AT + (size_t)i * HEAD_RUN_LEN);
    uint8_t *after = p + HEAD_RUNS_AT + (size_t)head->run_count * HEAD_RUN_LEN;
    for (uint32_t i = 0; i < head->given_up_count; i++)
        encode_given_up(&head->given_up[i], after + (size_t)i * HEAD_GIVEN_UP_LEN);
    put_frame(p, len, head_magic, incompat ? HEAD_VERSION : 1);
    return len;
}

static void decode_fixed(const uint8_t *p, struct head *head)
{
    *head = (struct head){.run_count = get_le32(p + 12),
                          .number = get_le64(p + 16),
                          .epoch = get_le64(p + 72),
                          .writer = get_le16(p + 80),
                          .given_up_count = get_le16(p + 82),
                          .incompat = get_le32(p + 84),
                          .time = (int64_t)get_le64(p + 88),
                          .published = (int64_t)get_le64(p + 96),
                          .cut = get_le64(p + 104),
                          .max_ino = get_le64(p + 144),
                          .max_id = get_le64(p + 152),
                          .files = get_le64(p + 160),
                          .logical_bytes = get_le64(p + 168),
                          .chunks = get_le64(p + 176),
                          .stored_bytes = get_le64(p + 184),
                          .packs = get_le64(p + 192),
                          .pack_bytes = get_le64(p + 200)};
    memcpy(head->history, p + 24, sizeof head->history);
    memcpy(head->store, p + 40, sizeof head->store);
    memcpy(head->nonce, p + 56, sizeof head->nonce);
    memcpy(head->chain, p + 112, sizeof head->chain);
}

static int decode_lists(const uint8_t *p, size_t len, struct head *head)
{
    if (head->run_count > HEAD_RUNS_MAX || head->given_up_count > HEAD_GIVEN_UP_MAX ||
        len != head_len(head))
        return -EUCLEAN;
    const uint8_t *after = p + HEAD_RUNS_AT + (size_t)head->run_count * HEAD_RUN_LEN;
    for (uint32_t i = 0; i < head->run_count; i++)
        decode_run(p + HEAD_RUNS_AT + (size_t)i * HEAD_RUN_LEN, head->history, &head->runs[i]);
    for (uint32_t i = 0; i < head->given_up_count; i++)
        decode_given_up(after + (size_t)i * HEAD_GIVEN_UP_LEN, &head->given_up[i]);
    return 0;
}

int head_decode(const void *buf, size_t len, struct head *ret_head)
{
    const uint8_t *p = buf;
    if (len < HEAD_RUNS_AT + HEAD_TAIL_LEN || len > HEAD_LEN_MAX || len % 8 != 0)
        return -EUCLEAN;
    int r = check_frame(p, len, head_magic, HEAD_VERSION);
    if (r < 0)
        return r;
    struct head head;
    decode_fixed(p, &head);
    if (get_le32(p + 8) == 1 && head.incompat)
        return -EUCLEAN;
    r = format_check_known(get_le32(p + 8), HEAD_VERSION, head.incompat, HEAD_INCOMPAT_KNOWN);
    if (r < 0)
        return r;
    bool has_given_up = head.incompat & HEAD_INCOMPAT_GIVEN_UP;
    head.incompat &= ~HEAD_INCOMPAT_GIVEN_UP;
    if (has_given_up != (head.given_up_count > 0) || !bytes_are_zero(p + len - 8, 4) ||
        !get_head_holder(p + 208, head.holder) || decode_lists(p, len, &head) < 0 ||
        !head_sane(&head))
        return -EUCLEAN;
    *ret_head = head;
    return 0;
}

/* --- heads that were given up ----------------------------------------------------------------- */

void head_give_up(struct head *head, const struct head_given_up *more)
{
    struct head_given_up *at = head->given_up;
    check(head->given_up_count <= HEAD_GIVEN_UP_MAX);
    if (head->given_up_count == HEAD_GIVEN_UP_MAX) {
        at[1] = (struct head_given_up){.cut = min_u64(at[0].cut, at[1].cut),
                                       .epoch = max_u64(at[0].epoch, at[1].epoch),
                                       .first = at[1].first,
                                       .last = at[1].last,
                                       .time = at[1].time};
        memmove(at, at + 1, --head->given_up_count * sizeof *at);
    }
    at[head->given_up_count++] = *more;
}

const struct head_given_up *head_gave_up(const struct head *head, const struct head *other)
{
    for (uint32_t i = 0; i < head->given_up_count; i++)
        if (other->epoch <= head->given_up[i].epoch && other->cut > head->given_up[i].cut)
            return &head->given_up[i];
    return NULL;
}

static bool is_listed(const struct head_given_up *list, uint32_t count,
                      const struct head_given_up *g)
{
    for (uint32_t i = 0; i < count; i++)
        if (list[i].cut == g->cut && list[i].epoch == g->epoch)
            return true;
    return false;
}

void head_take_back(struct head *head, const struct head *known, uint64_t cut)
{
    struct head_given_up list[HEAD_GIVEN_UP_MAX];
    uint32_t count = head->given_up_count;
    memcpy(list, head->given_up, sizeof list);
    head->given_up_count = 0;
    for (uint32_t i = 0; known && i < known->given_up_count; i++) {
        struct head_given_up g = known->given_up[i];
        g.last = min_u64(g.last, head->number);
        g.first = min_u64(g.first, g.last + 1);
        if (!is_listed(list, count, &g))
            head_give_up(head, &g);
    }
    for (uint32_t i = 0; i < count; i++) {
        bool has_some = cut > list[i].cut && cut >> SEQ_EPOCH_SHIFT <= list[i].epoch;
        bool has_all = has_some && known && known->epoch >= list[i].epoch;
        if (has_some)
            list[i].cut = cut;
        if (!has_all)
            head_give_up(head, &list[i]);
    }
}

uint64_t head_after_given_up(const struct head *head, uint64_t number)
{
    for (uint32_t i = 0; i < head->given_up_count; i++)
        if (number >= head->given_up[i].first && number <= head->given_up[i].last)
            return head->given_up[i].last + 1;
    return number;
}

/* --- prefix info ------------------------------------------------------------------------------ */

void prefix_info_encode(const struct prefix_info *info, void *buf)
{
    check(info->version > 0);
    uint8_t *p = buf;
    memset(p, 0, PREFIX_INFO_LEN);
    put_le64(p + 16, info->incompat);
    put_le64(p + 24, info->ro_compat);
    put_le64(p + 32, info->compat);
    memcpy(p + 40, info->history, sizeof info->history);
    put_le64(p + 56, (uint64_t)info->created);
    memcpy(p + 64, info->key_id, sizeof info->key_id);
    memcpy(p + 72, info->key.bytes, sizeof info->key.bytes);
    put_frame(p, PREFIX_INFO_LEN, prefix_magic, info->version);
}

/* A feature that this version need not know may have put fields where zeros are now. */
static bool prefix_reserved_ok(const struct prefix_info *info, const uint8_t *p)
{
    if (info->compat || info->ro_compat)
        return true;
    return bytes_are_zero(p + 12, 4) &&
           bytes_are_zero(p + PREFIX_FIELDS_END, PREFIX_CRC_AT - PREFIX_FIELDS_END);
}

int prefix_info_decode(const void *buf, size_t len, struct prefix_info *ret_info)
{
    const uint8_t *p = buf;
    if (len < PREFIX_INFO_LEN)
        return -EUCLEAN;
    int r = check_frame(p, PREFIX_INFO_LEN, prefix_magic, PREFIX_INFO_VERSION);
    if (r < 0)
        return r;
    struct prefix_info info = {.version = get_le32(p + 8),
                               .incompat = get_le64(p + 16),
                               .ro_compat = get_le64(p + 24),
                               .compat = get_le64(p + 32),
                               .created = (int64_t)get_le64(p + 56)};
    r = format_check_known(info.version, PREFIX_INFO_VERSION, info.incompat, PREFIX_INCOMPAT_KNOWN);
    if (r < 0)
        return r;
    if (!prefix_reserved_ok(&info, p))
        return -EUCLEAN;
    memcpy(info.history, p + 40, sizeof info.history);
    memcpy(info.key_id, p + 64, sizeof info.key_id);
    memcpy(info.key.bytes, p + 72, sizeof info.key.bytes);
    *ret_info = info;
    return 0;
}

/* --- lease ------------------------------------------------------------------------------------ */

void lease_encode(const struct lease *lease, void *buf)
{
    check(lease->epoch <= EPOCH_MAX);
    uint8_t *p = buf;
    memset(p, 0, LEASE_LEN);
    memcpy(p + 16, lease->history, sizeof lease->history);
    memcpy(p + 32, lease->store, sizeof lease->store);
    put_le64(p + 48, lease->epoch);
    put_head_holder(p + 56, lease->holder);
    put_frame(p, LEASE_LEN, lease_magic, LEASE_VERSION);
}

int lease_decode(const void *buf, size_t len, struct lease *ret_lease)
{
    const uint8_t *p = buf;
    if (len < LEASE_LEN)
        return -EUCLEAN;
    int r = check_frame(p, LEASE_LEN, lease_magic, LEASE_VERSION);
    if (r < 0)
        return r;
    struct lease lease = {.epoch = get_le64(p + 48)};
    memcpy(lease.history, p + 16, sizeof lease.history);
    memcpy(lease.store, p + 32, sizeof lease.store);
    if (!get_head_holder(p + 56, lease.holder) || lease.epoch > EPOCH_MAX ||
        !bytes_are_zero(p + 12, 4) ||
        !bytes_are_zero(p + LEASE_FIELDS_END, LEASE_CRC_AT - LEASE_FIELDS_END))
        return -EUCLEAN;
    *ret_lease = lease;
    return 0;
}
