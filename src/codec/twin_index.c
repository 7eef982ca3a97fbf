// SPDX-License-Identifier: Apache-2.0
#include "codec/twin_index.h"

/* Entries are numbered in order of insertion, from 1 on, and lie in blocks. Entries with the same
 * hash form a chain, newest first; an entry that is too old ends the chain, and need not be
 * unlinked. */
#define BLOCK 1024u /* entries */
#define OFFSET_BITS 20u
#define STEPS_MAX 64u  /* along a chain */
#define HEADS_MIN 256u /* a power of two */
#define LOAD 4u        /* entries for each head before the number of heads is doubled */

/* Bytes of content for each entry: with its share of the heads an entry takes at most 18 bytes, so
 * this is 0.98 MB for each GB. Usual content has fewer landmarks; content with more, such as short
 * tensors, may use up the unused share, to some extent. */
#define ENTRY_SHARE 18432u
#define CREDIT_MAX (1024u * ENTRY_SHARE)

struct entry {
    union {
        uint64_t place; /* of a landmark: its key, but with its offset in the lowest bits */
        uint64_t tag;   /* of an image */
    };
    uint32_t older; /* distance to the next older entry of the chain; 0: none */
    uint32_t image; /* distance to the entry of its image; 0: this is the image */
};

struct twin_index {
    struct entry **blocks; /* a ring: block n is at n modulo block_slots; NULL: none */
    uint32_t *heads;       /* of the chains: the lower bits of entry numbers */
    size_t block_slots, head_count;
    uint64_t oldest, next; /* of the oldest entry that is kept, and of the next one to insert */
    uint64_t image;        /* the image that landmarks now belong to; 0: it has no entry yet */
    uint64_t tag, credit;
};

struct twin_index *twin_index_new(size_t bytes_max)
{
    check(bytes_max >= TWIN_INDEX_MIN);
    struct twin_index *index = xcalloc(1, sizeof *index);
    size_t of_block = BLOCK * sizeof(struct entry) + sizeof *index->blocks +
                      2 * BLOCK / LOAD * sizeof *index->heads;
    index->block_slots = (bytes_max - sizeof *index) / of_block;
    index->blocks = xcalloc(index->block_slots, sizeof *index->blocks);
    index->head_count = HEADS_MIN;
    index->heads = xcalloc(index->head_count, sizeof *index->heads);
    index->oldest = index->next = 1;
    index->credit = CREDIT_MAX;
    return index;
}

void twin_index_free(struct twin_index *index)
{
    if (!index)
        return;
    for (size_t i = 0; i < index->block_slots; i++)
        free(index->blocks[i]);
    free(index->blocks);
    free(index->heads);
    free(index);
}

size_t twin_index_bytes(const struct twin_index *index)
{
    size_t blocks = 0;
    for (size_t i = 0; i < index->block_slots; i++)
        blocks += index->blocks[i] != NULL;
    return sizeof *index + index->block_slots * sizeof *index->blocks +
           blocks * BLOCK * sizeof(struct entry) + index->head_count * sizeof *index->heads;
}

static struct entry **block_of(const struct twin_index *index, uint64_t number)
{
    return &index->blocks[number / BLOCK % index->block_slots];
}

static struct entry *index_entry_at(const struct twin_index *index, uint64_t number)
{
    return &(*block_of(index, number))[number % BLOCK];
}

/* Returns the number that is `by` less than `number`; 0: the entry is gone, or there is none. */
static uint64_t number_before(const struct twin_index *index, uint64_t number, uint32_t by)
{
    return by > 0 && by <= number - index->oldest ? number - by : 0;
}

static uint32_t *head_of(const struct twin_index *index, uint64_t key)
{
    return &index->heads[(key >> OFFSET_BITS) & (index->head_count - 1)];
}

/* Returns the newest entry of the key's chain; 0: none. If more than 2^32 entries were added since
 * the head was set, the entry may belong to another chain, and has another key. */
static uint64_t newest_of(const struct twin_index *index, uint64_t key)
{
    return number_before(index, index->next, (uint32_t)index->next - *head_of(index, key));
}

static bool index_entry_has_key(const struct entry *entry, uint64_t key)
{
    return entry->place >> OFFSET_BITS == key >> OFFSET_BITS;
}

static void chain_entry(const struct twin_index *index, uint64_t number)
{
    struct entry *entry = index_entry_at(index, number);
    uint32_t *head = head_of(index, entry->place);
    entry->older = (uint32_t)number - *head;
    *head = (uint32_t)number;
}

static void add_heads(struct twin_index *index)
{
    index->head_count *= 2;
    free(index->heads);
    index->heads = xcalloc(index->head_count, sizeof *index->heads);
    for (uint64_t n = index->oldest; n < index->next; n++)
        if (index_entry_at(index, n)->image > 0)
            chain_entry(index, n);
}

/* The first entry of a block replaces the oldest block if the ring is full. */
static uint64_t twin_index_add_entry(struct twin_index *index)
{
    struct entry **block = block_of(index, index->next);
    if (index->next % BLOCK == 0 && *block)
        index->oldest = index->next - (index->block_slots - 1) * BLOCK;
    if (!*block)
        *block = xcalloc(BLOCK, sizeof **block);
    if (index->next - index->oldest >= LOAD * index->head_count)
        add_heads(index);
    index->credit -= ENTRY_SHARE;
    return index->next++;
}

void twin_index_allow(struct twin_index *index, size_t len)
{
    index->credit = min_u64(index->credit + len, CREDIT_MAX);
}

void twin_index_begin(struct twin_index *index, size_t len, uint64_t tag)
{
    twin_index_allow(index, len);
    index->tag = tag;
    index->image = 0;
}

static bool image_has(const struct twin_index *index, uint64_t key)
{
    uint64_t number = newest_of(index, key);
    for (unsigned i = 0; i < STEPS_MAX && number > index->image; i++) {
        const struct entry *entry = index_entry_at(index, number);
        if (index_entry_has_key(entry, key))
            return true;
        number = number_before(index, number, entry->older);
    }
    return false;
}

void twin_index_put(struct twin_index *index, uint64_t key, uint32_t offset)
{
    check(offset < 1u << OFFSET_BITS);
    if (index->credit < 2 * ENTRY_SHARE || (index->image > 0 && image_has(index, key)))
        return;
    if (index->image == 0) {
        index->image = twin_index_add_entry(index);
        *index_entry_at(index, index->image) = (struct entry){.tag = index->tag};
    }
    uint64_t number = twin_index_add_entry(index);
    struct entry *entry = index_entry_at(index, number);
    entry->place = align_down(key, 1u << OFFSET_BITS) | offset;
    entry->image = (uint32_t)(number - index->image);
    chain_entry(index, number);
}

size_t twin_index_get(const struct twin_index *index, uint64_t key,
                      struct twin_place ret[TWIN_PLACES_MAX])
{
    size_t count = 0;
    uint64_t number = newest_of(index, key);
    for (unsigned i = 0; i < STEPS_MAX && number > 0 && count < TWIN_PLACES_MAX; i++) {
        const struct entry *entry = index_entry_at(index, number);
        uint64_t image = number_before(index, number, entry->image);
        if (index_entry_has_key(entry, key) && image > 0)
            ret[count++] =
                (struct twin_place){.tag = index_entry_at(index, image)->tag,
                                    .offset = (uint32_t)(entry->place & ((1u << OFFSET_BITS) - 1))};
        number = number_before(index, number, entry->older);
    }
    return count;
}
