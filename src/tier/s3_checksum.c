#include <openssl/evp.h>

#include "base/crc.h"
#include "tier/s3_internal.h"

static char *base64(const uint8_t *bytes, size_t len)
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
    *ret_text = base64(hash, hash_len);
    return 0;
}

char *s3_crc32(const void *body, size_t len)
{
    uint32_t crc = crc32_of(0, body, len);
    uint8_t bytes[4] = {(uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8), (uint8_t)crc};
    return base64(bytes, sizeof bytes);
}
