// SPDX-License-Identifier: Apache-2.0
#include "format/frame.h"

#include "base/crc.h"
#include "format/le.h"
#include "format/superblock.h"

void frame_put(uint8_t *p, size_t len, const uint8_t magic[8], uint32_t version)
{
    memcpy(p, magic, 8);
    put_le32(p + 8, version);
    put_le32(p + len - 4, crc32_of(0, p, len - 4));
}

int frame_check(const uint8_t *p, size_t len, const uint8_t magic[8], uint32_t version)
{
    if (memcmp(p, magic, 8) != 0)
        return -EUCLEAN;
    if (get_le32(p + len - 4) != crc32_of(0, p, len - 4))
        return -EBADMSG;
    return get_le32(p + 8) > 0 ? format_check_known(get_le32(p + 8), version, 0, 0) : -EUCLEAN;
}

void frame_put_holder(uint8_t *p, const char holder[HOLDER_MAX])
{
    size_t len = strnlen(holder, HOLDER_MAX);
    check(len < HOLDER_MAX);
    memcpy(p, holder, len);
}

bool frame_get_holder(const uint8_t *p, char ret_holder[HOLDER_MAX])
{
    memcpy(ret_holder, p, HOLDER_MAX);
    size_t len = strnlen(ret_holder, HOLDER_MAX);
    return len < HOLDER_MAX && bytes_are_zero(p + len, HOLDER_MAX - len);
}
