// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <stdlib.h>
#include <string.h>

#include "grow.h"

enum { FIRST_SIZE = 1 << 16 };

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0xff51afd7ed558ccdull;
    return hash ^ hash >> 32;
}

static uint64_t hash_of(const struct state *state)
{
    const uint8_t *bytes = (const uint8_t *)state;
    uint64_t hash = 0x9e3779b97f4a7c15ull, word;
    size_t at = 0;
    for (; at + sizeof(word) <= sizeof(*state); at += sizeof(word)) {
        memcpy(&word, bytes + at, sizeof(word));
        hash = mix(hash, word);
    }
    word = 0;
    memcpy(&word, bytes + at, sizeof(*state) - at);
    hash = mix(mix(hash, word), 0);
    return hash ? hash : 1;
}

void table_init(struct table *table)
{
    *table = (struct table){.size = FIRST_SIZE};
    table->hashes = grow(NULL, FIRST_SIZE, sizeof(*table->hashes));
    table->numbers = grow(NULL, FIRST_SIZE, sizeof(*table->numbers));
    memset(table->hashes, 0, FIRST_SIZE * sizeof(*table->hashes));
}

void table_free(struct table *table)
{
    free(table->hashes);
    free(table->numbers);
}

static size_t place_of(const struct table *table, uint64_t hash)
{
    size_t place = hash & (table->size - 1);
    while (table->hashes[place] && table->hashes[place] != hash)
        place = (place + 1) & (table->size - 1);
    return place;
}

static void double_size(struct table *table)
{
    struct table old = *table;
    table->size *= 2;
    table->hashes = grow(NULL, table->size, sizeof(*table->hashes));
    table->numbers = grow(NULL, table->size, sizeof(*table->numbers));
    memset(table->hashes, 0, table->size * sizeof(*table->hashes));
    for (size_t i = 0; i < old.size; i++)
        if (old.hashes[i]) {
            size_t place = place_of(table, old.hashes[i]);
            table->hashes[place] = old.hashes[i];
            table->numbers[place] = old.numbers[i];
        }
    table_free(&old);
}

uint32_t table_add(struct table *table, const struct state *state)
{
    if (table->count * 2 > table->size)
        double_size(table);
    uint64_t hash = hash_of(state);
    size_t place = place_of(table, hash);
    if (!table->hashes[place]) {
        table->hashes[place] = hash;
        table->numbers[place] = (uint32_t)table->count++;
    }
    return table->numbers[place];
}
