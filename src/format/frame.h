// SPDX-License-Identifier: Apache-2.0
/* The frame that small objects of a remote share: 8 bytes of magic, a version of 4, and a crc32 of
 * everything before it in the last 4 bytes. Within format/. Pure functions. */
#pragma once

#include "base/base.h"

/* Text for people, "host:/path pid 123", NUL-terminated. */
#define HOLDER_MAX 128u

/* Writes magic, version and checksum around the fields, which are already in the buffer. */
void frame_put(uint8_t *p, size_t len, const uint8_t magic[8], uint32_t version);

/* -EUCLEAN: not this type of object, or version 0; -EBADMSG: damaged; -EPROTONOSUPPORT: newer than
 * `version`, with a cause noted. */
CAIRN_MUST_CHECK int frame_check(const uint8_t *p, size_t len, const uint8_t magic[8],
                                 uint32_t version);

/* The caller has zeroed HOLDER_MAX bytes at `p`: bytes after the text's end are not copied. */
void frame_put_holder(uint8_t *p, const char holder[HOLDER_MAX]);

/* False: the text has no end, or bytes other than zeros follow it. */
CAIRN_MUST_CHECK bool frame_get_holder(const uint8_t *p, char ret_holder[HOLDER_MAX]);
