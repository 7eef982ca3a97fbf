#include "daemon/remote_tier.h"

static int open_s3(const struct remote_address *address, const struct mount_options *o, struct tier **ret, char **ret_text)
{
    struct s3_options options = {.bucket = address->bucket,
                                 .prefix = address->prefix,
                                 .endpoint_url = o->endpoint_url,
                                 .region = o->region,
                                 .profile = o->profile,
                                 .addressing = (enum s3_addressing)o->addressing,
                                 .checksum = (enum s3_checksum)o->checksum,
                                 .storage_class = o->storage_class,
                                 .sse = o->sse,
                                 .sse_kms_key_id = o->sse_kms_key_id,
                                 .ca_bundle = o->ca_bundle,
                                 .connections = (unsigned)o->connections,
                                 .patience_ns = o->remote_timeout_ns,
                                 .unsigned_requests = o->no_sign_request};
    return s3_tier_open(&options, ret, ret_text);
}

int remote_tier_open(const struct remote_address *address, const struct mount_options *options, bool read_only,
                     struct tier **ret, char **ret_text)
{
    char *text = NULL;
    int r = address->kind == REMOTE_KIND_DIR ? dir_tier_open(address->path, read_only, ret, &text)
                                             : open_s3(address, options, ret, &text);
    if (r < 0)
        *ret_text = xasprintf("remote %s: %s", address->text, text ? text : strerror(-r));
    else if (options->remote_timeout_ns)
        (*ret)->patience_ns = options->remote_timeout_ns;
    free(text);
    return r;
}
