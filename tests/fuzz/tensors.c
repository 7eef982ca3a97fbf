// SPDX-License-Identifier: Apache-2.0
/* Headers of safetensors files. */
#include "codec/tensors.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 9)
        return 0;
    size_t len = tensors_header_len(data);
    check(len == 0 || (len >= 9 && len <= TENSORS_HEADER_MAX));
    /* Whatever length it tells, the parser is given as much as there is. */
    uint8_t *header = exact_copy(data, size);
    uint64_t *anchors;
    size_t count;
    tensors_parse(header, size, &anchors, &count);
    check(count <= size / 8);
    for (size_t i = 0; i < count; i++)
        check(anchors[i] > (i ? anchors[i - 1] : size - 1));
    free(anchors);
    struct tensor *tensors;
    tensors_list(header, size, &tensors, &count);
    check(count <= size / 8);
    for (size_t i = 0; i < count; i++)
        check(tensors[i].start >= size && tensors[i].start < tensors[i].end &&
              (i == 0 || tensors[i].start >= tensors[i - 1].start));
    free(tensors);
    free(header);
    return 0;
}
