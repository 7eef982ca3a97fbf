// SPDX-License-Identifier: Apache-2.0
#include "codec/hash.h"
#include "../expect.h"

#include <stdio.h>

/* From the official test vectors: input 0, 1, ... 250, 0, 1, ... */
static const struct {
    size_t len;
    const char *plain, *keyed;
} vectors[] = {
    {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
     "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e7"},
    {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
     "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34b"},
    {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11",
     "c951ecdf03288d0fcc96ee3413563d8a6d3589547f2c2fb3"},
    {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7",
     "75c46f6f3d9eb4f55ecaaee480db732e6c2105546f1e6750"},
    {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444",
     "357dc55de0c7e382c900fd6e320acc04146be01db6a8ce72"},
    {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030",
     "9f29700902f7c86e514ddc4df1e3049f258b2472b6dd5267"},
    {5121, "628bd2cb2004694adaab7bbd778a25df25c47b9d4155a55f8fbd79f2fe154cff",
     "6ccf1c34753e7a044db80798ecd0782a8f76f33563accadd"},
    {7169, "a003fc7a51754a9b3c7fae0367ab3d782dccf28855a03d435f8cfe74605e7817",
     "ed9b1a922c046fdb3d423ae34e143b05ca1bf28b71043285"},
};

static uint8_t input[8192];
static struct chunk_key key;

static void prepare(void)
{
    for (size_t i = 0; i < sizeof input; i++)
        input[i] = (uint8_t)(i % 251);
    memcpy(key.bytes, "whats the Elvish word for friend", sizeof key.bytes);
}

TestSuite(hash, .init = prepare);

static void expect_hex(const uint8_t *hash, size_t len, const char *hex)
{
    char text[65];
    for (size_t i = 0; i < len; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", hash[i]);
    assert_str(text, hex);
}

Test(hash, official_vectors)
{
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        struct iovec iov = {input, vectors[i].len};
        uint8_t hash[HASH_LEN];
        hash_parts(&iov, 1, hash);
        expect_hex(hash, sizeof hash, vectors[i].plain);
        struct chunk_name name = hash_chunk(&key, &iov, 1);
        expect_hex(name.bytes, sizeof name.bytes, vectors[i].keyed);
    }
}

Test(hash, parts_do_not_matter)
{
    for (size_t step = 1; step < 3000; step = step * 2 + 5) {
        struct iovec iov[7169];
        size_t count = 0;
        for (size_t at = 0; at < 7169; at += step)
            iov[count++] = (struct iovec){input + at, min_u64(step, 7169 - at)};
        uint8_t hash[HASH_LEN];
        hash_parts(iov, count, hash);
        expect_hex(hash, sizeof hash, vectors[7].plain);
        struct chunk_name name = hash_chunk(&key, iov, count);
        expect_hex(name.bytes, sizeof name.bytes, vectors[7].keyed);
    }
}

Test(hash, the_key_matters)
{
    struct iovec iov = {input, 100};
    struct chunk_name a = hash_chunk(&key, &iov, 1);
    key.bytes[31] ^= 1;
    struct chunk_name b = hash_chunk(&key, &iov, 1);
    cr_assert(!chunk_name_equal(&a, &b));
}

Test(hash, a_stream_is_its_parts)
{
    for (size_t step = 1; step < 3000; step = step * 2 + 5) {
        struct hash_stream *stream = hash_stream_new();
        for (size_t at = 0; at < 7169; at += step)
            hash_stream_add(stream, input + at, min_u64(step, 7169 - at));
        uint8_t hash[HASH_LEN];
        hash_stream_result(stream, hash);
        hash_stream_free(stream);
        expect_hex(hash, sizeof hash, vectors[7].plain);
    }
}
