// SPDX-License-Identifier: Apache-2.0
/* Superblocks of stores. */
#include "format/superblock.h"
#include "fuzz.h"
#include "mend.h"

static void decode(const uint8_t *p, size_t size)
{
    struct superblock sb;
    if (superblock_decode(p, size, &sb) < 0)
        return;
    /* A feature of a later version may have put fields where this one writes zeros. */
    if (sb.compat || sb.ro_compat)
        return;
    uint8_t again[SUPERBLOCK_LEN];
    superblock_encode(&sb, again);
    check(memcmp(again, p, sizeof again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Short inputs are the beginning of one: most of it is zeros. */
    uint8_t *copy = exact_copy(data, size);
    decode(copy, size);
    free(copy);
    uint8_t whole[SUPERBLOCK_LEN] = {0};
    memcpy(whole, data, size < sizeof whole ? size : sizeof whole);
    mend_frame(whole, sizeof whole);
    decode(whole, sizeof whole);
    return 0;
}
