// SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>

#include "base/crc.h"
#include "tier/s3/internal.h"

static char *base64_of(const uint8_t *bytes, size_t len)
{
    char *text = xmalloc(4 * (len + 2) / 3 + 1);
    (void)EVP_EncodeBlock((unsigned char *)text, bytes, (int)len);
    return text;
}

int s3_md5(const void *body, size_t len, char **ret_text)
{
    uint8_t hash[EVP_MAX_MD_SIZE];
    unsigned hash_len;
    if (EVP_Digest(len ? body : "", len, hash, &hash_len, EVP_md5(), NULL) != 1)
        return -EOPNOTSUPP;
    *ret_text = base64_of(hash, hash_len);
    return 0;
}

static void add_md5(const void *bytes, size_t len, void *arg)
{
    (void)EVP_DigestUpdate(arg, bytes, len);
}

int s3_md5_from(struct tier_source *source, char **ret_text)
{
    uint8_t hash[EVP_MAX_MD_SIZE];
    unsigned hash_len;
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    int r = md && EVP_DigestInit_ex(md, EVP_md5(), NULL) == 1
                ? tier_source_each(source, add_md5, md)
                : -EOPNOTSUPP;
    if (r == 0 && EVP_DigestFinal_ex(md, hash, &hash_len) != 1)
        r = -EOPNOTSUPP;
    EVP_MD_CTX_free(md);
    if (r == 0)
        *ret_text = base64_of(hash, hash_len);
    return r;
}

static char *crc_text(uint32_t crc)
{
    uint8_t bytes[4] = {(uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8),
                        (uint8_t)crc};
    return base64_of(bytes, sizeof bytes);
}

char *s3_crc32(const void *body, size_t len)
{
    return crc_text(crc32_of(0, body, len));
}

static void add_crc32(const void *bytes, size_t len, void *arg)
{
    uint32_t *crc = arg;
    *crc = crc32_of(*crc, bytes, len);
}

int s3_crc32_from(struct tier_source *source, char **ret_text)
{
    uint32_t crc = 0;
    int r = tier_source_each(source, add_crc32, &crc);
    if (r == 0)
        *ret_text = crc_text(crc);
    return r;
}
