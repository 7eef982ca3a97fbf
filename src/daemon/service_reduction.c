// SPDX-License-Identifier: Apache-2.0
/* The status of a tier: what encoding made of the chunks that went there. */
#include "codec/encode.h"
#include "daemon/control.h"
#include "daemon/service_internal.h"

uint64_t service_reduced_bytes(const struct encode_counts *counts)
{
    uint64_t saved = 0;
    for (unsigned i = 0; i < CHUNK_ENCODINGS; i++)
        saved += counts->bytes[i].raw - counts->bytes[i].stored;
    return saved;
}

void service_add_reduction(const struct encode_counts *counts, cJSON *tier)
{
    cJSON *reduction = cJSON_AddObjectToObject(tier, "reduction"),
          *encodings = cJSON_AddArrayToObject(reduction, "encodings");
    (void)cJSON_AddNumberToObject(reduction, "cpu_s", counts->cpu_s);
    control_add_u64(reduction, "wrong_chunks", counts->wrong);
    for (unsigned i = 0; i < CHUNK_ENCODINGS; i++) {
        cJSON *one = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(one, "encoding", chunk_encoding_name((uint8_t)i));
        control_add_u64(one, "raw_bytes", counts->bytes[i].raw);
        control_add_u64(one, "stored_bytes", counts->bytes[i].stored);
        (void)cJSON_AddItemToArray(encodings, one);
    }
}
