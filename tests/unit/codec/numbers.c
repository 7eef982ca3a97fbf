// SPDX-License-Identifier: Apache-2.0
#include "numbers.h"

#include "format/le.h"

/* 0 in about half of all cases, 1 in a quarter... */
static uint64_t rarely(struct seeded *s)
{
    uint64_t x = seeded_u64(s) | 1ull << 40;
    return (uint64_t)__builtin_ctzll(x);
}

static uint32_t f32(struct seeded *s, uint32_t exponent, bool is_signed)
{
    uint32_t sign = is_signed ? (uint32_t)seeded_below(s, 2) << 31 : 0;
    return sign | exponent << 23 | (uint32_t)seeded_below(s, 1u << 23);
}

static uint32_t nan_or_so(struct seeded *s)
{
    static const uint32_t some[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff,
                                    0,          0x80000000, 0x7f800001, 0x7fffffff};
    return some[seeded_below(s, ARRAY_LEN(some))];
}

/* The least exponent of an element of a matrix with rows of 192: by row and column. */
static uint32_t of_matrix(size_t i)
{
    uint64_t row = i / 192, column = i % 192;
    return (uint32_t)(60 + row * 2654435761u % 1021 % 9 + column * 2654435761u % 1019 % 13);
}

/* Element i; returns its width. */
static size_t element(enum numbers kind, struct seeded *s, size_t i, uint8_t *p)
{
    switch (kind) {
    case NUMBERS_BF16:
        put_le16(p, (uint16_t)(f32(s, 121 - (uint32_t)rarely(s), true) >> 16));
        return 2;
    case NUMBERS_F32:
        put_le32(p, f32(s, 121 - (uint32_t)rarely(s), true));
        return 4;
    case NUMBERS_F32_ROWS:
        put_le32(p, f32(s, (uint32_t)(60 + i / 256 % 30 + rarely(s)), false));
        return 4;
    case NUMBERS_F32_MATRIX:
        put_le32(p, f32(s, of_matrix(i) + (uint32_t)rarely(s), false));
        return 4;
    case NUMBERS_BF16_MATRIX:
        put_le16(p, (uint16_t)(f32(s, of_matrix(i) + (uint32_t)rarely(s), true) >> 16));
        return 2;
    case NUMBERS_F64:
        put_le64(p,
                 seeded_below(s, 2) << 63 | (1020 - rarely(s)) << 52 | seeded_below(s, 1ull << 52));
        return 8;
    case NUMBERS_I64:
        put_le64(p, seeded_below(s, 50000));
        return 8;
    case NUMBERS_BYTES:
        p[0] = (uint8_t)(seeded_below(s, 2) ? rarely(s) : -rarely(s));
        return 1;
    case NUMBERS_ZEROS:
        p[0] = 0;
        return 1;
    case NUMBERS_NANS:
        put_le32(p, nan_or_so(s));
        return 4;
    case NUMBERS_DENORMALS:
        put_le32(p, f32(s, 0, true));
        return 4;
    case NUMBERS_MIXED:
        return element(i / 4096 % 2 ? NUMBERS_F32 : NUMBERS_BF16, s, i, p);
    case NUMBERS_TEXT:
        p[0] = (uint8_t) " etaoinshrdlu,.\n"[seeded_below(s, 16)];
        return 1;
    default:
        p[0] = (uint8_t)seeded_u64(s);
        return 1;
    }
}

void numbers_fill(enum numbers kind, struct seeded *s, uint8_t *buf, size_t len, size_t shift)
{
    size_t done = 0;
    for (size_t i = 0; done < len + shift; i++) {
        uint8_t bytes[8];
        size_t width = element(kind, s, i, bytes);
        for (size_t k = 0; k < width && done < len + shift; k++, done++)
            if (done >= shift)
                buf[done - shift] = bytes[k];
    }
}
