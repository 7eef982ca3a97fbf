// SPDX-License-Identifier: Apache-2.0
#include "daemon/remote_tier.h"

static int open_s3(const struct remote_address *address, const struct mount_options *o,
                   struct tier **ret, char **ret_text)
{
    struct s3_options options = {.bucket = address->bucket,
                                 .prefix = address->prefix,
                                 .endpoint_url = o->remote.endpoint_url,
                                 .region = o->remote.region,
                                 .profile = o->remote.profile,
                                 .addressing = (enum s3_addressing)o->remote.addressing,
                                 .checksum = (enum s3_checksum)o->remote.checksum,
                                 .storage_class = o->remote.storage_class,
                                 .sse = o->remote.sse,
                                 .sse_kms_key_id = o->remote.sse_kms_key_id,
                                 .ca_bundle = o->remote.ca_bundle,
                                 .connections = (unsigned)o->remote.connections,
                                 .patience_ns = o->remote.timeout_ns,
                                 .unsigned_requests = o->remote.no_sign_request};
    return s3_tier_open(&options, ret, ret_text);
}

static int open_dir(const struct remote_address *address, const struct mount_options *o,
                    bool read_only, const struct remote_waiter *waiter, struct tier **ret,
                    char **ret_text)
{
    struct dir_options options = {.path = address->path,
                                  .read_only = read_only,
                                  .later = waiter->later,
                                  .must_exist = waiter->must_exist,
                                  .patience_ns = o->remote.timeout_ns,
                                  .given_up = waiter->given_up,
                                  .judge = waiter->judge,
                                  .arg = waiter->arg};
    return dir_tier_open(&options, ret, ret_text);
}

int remote_tier_open(const struct remote_address *address, const struct mount_options *options,
                     bool read_only, const struct remote_waiter *waiter, struct tier **ret,
                     char **ret_text)
{
    static const struct remote_waiter patient;
    char *text = NULL;
    *ret_text = NULL;
    int r = address->kind == REMOTE_KIND_DIR
                ? open_dir(address, options, read_only, waiter ? waiter : &patient, ret, &text)
                : open_s3(address, options, ret, &text);
    bool was_judged = r < 0 && !text && waiter && waiter->judge && r != -ECANCELED;
    if (r < 0 && !was_judged)
        *ret_text = xasprintf("remote %s: %s", address->text, text ? text : strerror(-r));
    else if (r == 0 && options->remote.timeout_ns)
        (*ret)->patience_ns = options->remote.timeout_ns;
    free(text);
    return r;
}
