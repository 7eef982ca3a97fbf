// SPDX-License-Identifier: Apache-2.0
#include "tier/s3/error.h"

#include "tier/xml.h"

#define ADVICE_REGION "the bucket is in another region: set the region"
#define ADVICE_TOKEN "the credentials have expired: renew them"
#define ADVICE_BUCKET "no such bucket: create it, or correct its name or the endpoint"
#define ADVICE_DENIED                                                                              \
    "access denied: the policy of the key must allow it to get, put, delete and list objects here"
#define ADVICE_KEY "unknown access key: check AWS_ACCESS_KEY_ID or the profile"
#define ADVICE_SECRET                                                                              \
    "the secret does not match the access key: check AWS_SECRET_ACCESS_KEY or the profile"
#define ADVICE_CLOCK "this machine's clock is wrong: set it"
#define ADVICE_KMS "the key for encryption cannot be used: check sse_kms_key_id and its policy"
#define ADVICE_FULL "the quota is exceeded: raise it or delete unneeded objects"
#define ADVICE_ARCHIVE "the object is in an archive: restore it to another storage class first"
#define ADVICE_LACKS "the server does not support the request"

/* Codes of AWS, Ceph, MinIO, Google, Aliyun. */
static const struct s3_rule by_code[] = {
    {"NoSuchKey", S3_FAIL, -ENOENT, NULL},
    {"NoSuchVersion", S3_FAIL, -ENOENT, NULL},
    {"NoSuchBucket", S3_FAIL, -ENODEV, ADVICE_BUCKET},
    {"InvalidBucketName", S3_FAIL, -ENODEV, ADVICE_BUCKET},
    {"PreconditionFailed", S3_FAIL, -EEXIST, NULL},
    {"FileAlreadyExists", S3_FAIL, -EEXIST, NULL},
    {"ObjectAlreadyExists", S3_FAIL, -EEXIST, NULL},
    {"KeyAlreadyExists", S3_FAIL, -EEXIST, NULL},
    {"InvalidRange", S3_FAIL, -ERANGE, NULL},
    {"EntityTooLarge", S3_FAIL, -EFBIG, NULL},
    {"KeyTooLongError", S3_FAIL, -ENAMETOOLONG, "shorten the prefix"},
    {"AccessDenied", S3_FAIL, -EACCES, ADVICE_DENIED},
    {"AllAccessDisabled", S3_FAIL, -EACCES, ADVICE_DENIED},
    {"AccountProblem", S3_FAIL, -EACCES, "the account has a problem: ask the provider"},
    {"UserSuspended", S3_FAIL, -EACCES, "the account has a problem: ask the provider"},
    {"SignatureDoesNotMatch", S3_FAIL, -EACCES, ADVICE_SECRET},
    {"InvalidAccessKeyId", S3_CREDENTIALS, -EACCES, ADVICE_KEY},
    {"InvalidObjectState", S3_FAIL, -EACCES, ADVICE_ARCHIVE},
    {"KMS.DisabledException", S3_FAIL, -EACCES, ADVICE_KMS},
    {"KMS.NotFoundException", S3_FAIL, -EACCES, ADVICE_KMS},
    {"QuotaExceeded", S3_FAIL, -ENOSPC, ADVICE_FULL},
    {"XMinioStorageFull", S3_FAIL, -ENOSPC, ADVICE_FULL},
    {"ExpiredToken", S3_CREDENTIALS, -EKEYEXPIRED, ADVICE_TOKEN},
    {"ExpiredTokenException", S3_CREDENTIALS, -EKEYEXPIRED, ADVICE_TOKEN},
    {"InvalidToken", S3_CREDENTIALS, -EKEYEXPIRED, ADVICE_TOKEN},
    {"TokenRefreshRequired", S3_CREDENTIALS, -EKEYEXPIRED, ADVICE_TOKEN},
    {"RequestTimeTooSkewed", S3_CLOCK, -EACCES, ADVICE_CLOCK},
    {"AuthorizationHeaderMalformed", S3_REGION, -EACCES, ADVICE_REGION},
    {"PermanentRedirect", S3_REGION, -ENODEV, ADVICE_REGION},
    {"TemporaryRedirect", S3_REGION, -ENODEV, ADVICE_REGION},
    {"IllegalLocationConstraintException", S3_REGION, -ENODEV, ADVICE_REGION},
    {"NotImplemented", S3_UNSUPPORTED, -EOPNOTSUPP, ADVICE_LACKS},
    {"MethodNotAllowed", S3_FAIL, -EOPNOTSUPP, ADVICE_LACKS},
    {"InvalidRequest", S3_UNSUPPORTED, -EINVAL, NULL},
    {"BadDigest", S3_AGAIN, -EUCLEAN, NULL},
    {"XAmzContentSHA256Mismatch", S3_AGAIN, -EUCLEAN, NULL},
    {"XAmzContentChecksumMismatch", S3_AGAIN, -EUCLEAN, NULL},
    {"IncompleteBody", S3_AGAIN, -ECONNRESET, NULL},
    {"RequestTimeout", S3_AGAIN, -ETIMEDOUT, NULL},
    {"ConditionalRequestConflict", S3_AGAIN, -EBUSY, NULL},
    {"OperationAborted", S3_AGAIN, -EBUSY, NULL},
    {"ConcurrentModification", S3_AGAIN, -EBUSY, NULL},
    {"SlowDown", S3_AGAIN, -EBUSY, NULL},
    {"Throttling", S3_AGAIN, -EBUSY, NULL},
    {"ThrottlingException", S3_AGAIN, -EBUSY, NULL},
    {"TooManyRequests", S3_AGAIN, -EBUSY, NULL},
    {"RequestLimitExceeded", S3_AGAIN, -EBUSY, NULL},
    {"BandwidthLimitExceeded", S3_AGAIN, -EBUSY, NULL},
    {"ServiceUnavailable", S3_AGAIN, -EBUSY, NULL},
    {"InternalError", S3_AGAIN, -EREMOTEIO, NULL},
};

static const struct {
    long status;
    struct s3_rule rule;
} by_status[] = {
    {301, {"", S3_REGION, -ENODEV, ADVICE_REGION}},
    {304, {"", S3_FAIL, -EEXIST, NULL}}, /* some servers' answer to a PUT with If-None-Match */
    {307, {"", S3_REGION, -ENODEV, ADVICE_REGION}},
    {308, {"", S3_REGION, -ENODEV, ADVICE_REGION}},
    {400, {"", S3_FAIL, -EINVAL, NULL}},
    {401, {"", S3_FAIL, -EACCES, ADVICE_DENIED}},
    {403, {"", S3_FAIL, -EACCES, ADVICE_DENIED}},
    {404, {"", S3_FAIL, -ENOENT, NULL}},
    {405, {"", S3_FAIL, -EOPNOTSUPP, ADVICE_LACKS}},
    {407, {"", S3_FAIL, -EACCES, "the proxy requires authentication"}},
    {408, {"", S3_AGAIN, -ETIMEDOUT, NULL}},
    {409, {"", S3_AGAIN, -EBUSY, NULL}},
    {412, {"", S3_FAIL, -EEXIST, NULL}},
    {413, {"", S3_FAIL, -EFBIG, NULL}},
    {416, {"", S3_FAIL, -ERANGE, NULL}},
    {429, {"", S3_AGAIN, -EBUSY, NULL}},
    {500, {"", S3_AGAIN, -EREMOTEIO, NULL}},
    {501, {"", S3_UNSUPPORTED, -EOPNOTSUPP, ADVICE_LACKS}},
    {502, {"", S3_AGAIN, -EREMOTEIO, NULL}},
    {503, {"", S3_AGAIN, -EBUSY, NULL}},
    {504, {"", S3_AGAIN, -EREMOTEIO, NULL}},
    {507, {"", S3_FAIL, -ENOSPC, ADVICE_FULL}},
};

/* An <Error> with status 200 is a fault of the server; another unknown status means that it is not
 * S3. */
const struct s3_rule *s3_rule_of(long status, const char *code)
{
    static const struct s3_rule late = {"", S3_AGAIN, -EREMOTEIO, NULL};
    static const struct s3_rule other = {"", S3_FAIL, -EPROTO, NULL};
    for (size_t i = 0; *code && i < ARRAY_LEN(by_code); i++)
        if (strcmp(code, by_code[i].code) == 0)
            return &by_code[i];
    for (size_t i = 0; i < ARRAY_LEN(by_status); i++)
        if (status == by_status[i].status)
            return &by_status[i].rule;
    return status / 100 == 2 || status / 100 == 5 ? &late : &other;
}

const char *s3_advice_of_errno(int error)
{
    switch (error) {
    case -EKEYREJECTED:
        return "the server's certificate is not trusted: set AWS_CA_BUNDLE to the authority's";
    case -EPROTO:
        return "the server there is not S3: check the endpoint";
    case -EHOSTUNREACH:
        return "check the endpoint's name and the network";
    case -ECONNREFUSED:
        return "no server listens there: check the endpoint";
    default:
        return NULL;
    }
}

struct parse {
    struct s3_error *error;
    bool is_error;
};

/* Replaces control bytes by '?': a server must not send escapes to a terminal. */
static void copy_plain(char *to, size_t size, const char *value)
{
    size_t n = 0;
    for (; *value && n < size - 1; value++)
        to[n++] = (unsigned char)*value < ' ' || *value == 127 ? '?' : *value;
    to[n] = '\0';
}

static int on_element(const char *path, const char *value, void *arg)
{
    struct parse *p = arg;
    if (strncmp(path, "ErrorResponse/", 14) == 0)
        path += 14;
    if (strncmp(path, "Error", 5) == 0 && (path[5] == '/' || path[5] == '\0'))
        p->is_error = true;
    if (strcmp(path, "Error/Code") == 0)
        copy_plain(p->error->code, sizeof p->error->code, value);
    else if (strcmp(path, "Error/Message") == 0)
        copy_plain(p->error->message, sizeof p->error->message, value);
    else if (strcmp(path, "Error/Region") == 0)
        copy_plain(p->error->region, sizeof p->error->region, value);
    return 0;
}

bool s3_error_parse(const char *text, size_t len, struct s3_error *ret_error)
{
    struct parse p = {.error = ret_error};
    *ret_error = (struct s3_error){0};
    int r = len ? xml_read(text, len, on_element, &p) : -EPROTO;
    if (r < 0 || !p.is_error)
        *ret_error = (struct s3_error){0};
    return r == 0 && p.is_error;
}
