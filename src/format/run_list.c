// SPDX-License-Identifier: Apache-2.0
/*   OFFSET SIZE
 *        0    8  run id
 *        8    8  base cut
 *       16    8  cut
 *       24    8  rows
 *       32    8  length
 *       40   32  hash */
#include "format/run_list.h"

#include "format/le.h"

_Static_assert(RUN_MERGE_MAX >= RUN_LIST_MAX + 8,
               "the runs of a full head can be merged, and new ones with them");

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

void run_list_encode(const struct run_info *runs, uint32_t count, uint8_t *p)
{
    for (uint32_t i = 0; i < count; i++)
        encode_run(&runs[i], p + (size_t)i * RUN_LIST_ITEM_LEN);
}

void run_list_decode(const uint8_t *p, uint32_t count, const uint8_t history[16],
                     struct run_info *ret_runs)
{
    for (uint32_t i = 0; i < count; i++)
        decode_run(p + (size_t)i * RUN_LIST_ITEM_LEN, history, &ret_runs[i]);
}

static bool run_id_is_new(const struct run_info *runs, uint32_t i)
{
    for (uint32_t j = 0; j < i; j++)
        if (runs[j].id == runs[i].id)
            return false;
    return runs[i].id != 0;
}

bool run_list_is_sane(const struct run_info *runs, uint32_t count, const uint8_t history[16],
                      uint64_t *ret_cut)
{
    uint64_t cut = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct run_info *run = &runs[i];
        if (!run_id_is_new(runs, i) || run->base_cut != cut || run->cut < cut)
            return false;
        if (run->length < RUN_HEADER_LEN + RUN_TRAILER_LEN || run->length > INT64_MAX)
            return false;
        if (memcmp(run->history, history, sizeof run->history) != 0)
            return false;
        cut = run->cut;
    }
    *ret_cut = cut;
    return true;
}
