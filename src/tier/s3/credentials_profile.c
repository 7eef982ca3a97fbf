// SPDX-License-Identifier: Apache-2.0
#include "tier/s3/credentials_source.h"
#include "base/text.h"

#define CHAIN_MAX 8

/* The profiles from the chosen one to the one with keys. */
struct chain {
    const char *names[CHAIN_MAX];
    size_t count;
};

static int from_profile(const struct s3_lookup *lookup, const char *name, struct chain *chain,
                        struct s3_credentials *ret_credentials, char **ret_error);

static int by_credential_source(const struct s3_lookup *lookup, const char *name,
                                const char *source, struct s3_credentials *ret_credentials,
                                char **ret_error)
{
    static const struct {
        const char *name;
        s3_source_fn *fn;
    } sources[] = {{"Environment", s3_source_environment},
                   {"Ec2InstanceMetadata", s3_source_metadata},
                   {"EcsContainer", s3_source_container}};
    struct s3_lookup asked_for = *lookup;
    asked_for.profile_chosen = false;
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        if (strcmp(source, sources[i].name) != 0)
            continue;
        int r = sources[i].fn(&asked_for, ret_credentials, ret_error);
        if (r != -ENOKEY)
            return r;
        _cleanup_free_ char *why = *ret_error;
        return text_fail(ret_error, -EINVAL, "profile \"%s\": credential_source %s: %s", name,
                         source, why);
    }
    return text_fail(
        ret_error, -EINVAL,
        "profile \"%s\": credential_source \"%s\" is none of Environment, Ec2InstanceMetadata, "
        "EcsContainer",
        name, source);
}

static bool is_in_chain(const struct chain *chain, const char *name)
{
    for (size_t i = 0; i < chain->count; i++)
        if (strcmp(chain->names[i], name) == 0)
            return true;
    return false;
}

/* Finds the credentials with which a role is assumed. */
static int base_credentials(const struct s3_lookup *lookup, const char *name, struct chain *chain,
                            struct s3_credentials *ret_credentials, char **ret_error)
{
    const char *profile = s3_profiles_get(lookup->profiles, name, "source_profile");
    const char *source = s3_profiles_get(lookup->profiles, name, "credential_source");
    if (!profile == !source)
        return text_fail(ret_error, -EINVAL,
                         "profile \"%s\": role_arn wants one of source_profile, credential_source, "
                         "web_identity_token_file",
                         name);
    if (source)
        return by_credential_source(lookup, name, source, ret_credentials, ret_error);
    /* a profile may be its own source: it has a role and keys */
    if (chain->count == CHAIN_MAX || (is_in_chain(chain, profile) && strcmp(profile, name) != 0))
        return text_fail(ret_error, -EINVAL,
                         "profile \"%s\": source_profile \"%s\" leads in a circle", name, profile);
    return from_profile(lookup, profile, chain, ret_credentials, ret_error);
}

static int by_role(const struct s3_lookup *lookup, const char *name, const char *arn,
                   struct chain *chain, struct s3_credentials *ret_credentials, char **ret_error)
{
    const struct s3_profiles *p = lookup->profiles;
    struct s3_role role = {
        .arn = arn,
        .session_name = s3_profiles_get(p, name, "role_session_name"),
        .external_id = s3_profiles_get(p, name, "external_id"),
        .duration = s3_profiles_get(p, name, "duration_seconds"),
        .token_file = s3_profiles_get(p, name, "web_identity_token_file"),
    };
    if (role.token_file)
        return s3_source_role(lookup, &role, ret_credentials, ret_error);
    if (s3_profiles_get(p, name, "mfa_serial"))
        return text_fail(ret_error, -EINVAL,
                         "profile \"%s\": mfa_serial wants a code typed in; use credential_process",
                         name);
    struct s3_credentials base;
    TRY(base_credentials(lookup, name, chain, &base, ret_error));
    role.by = &base;
    int r = s3_source_role(lookup, &role, ret_credentials, ret_error);
    s3_credentials_done(&base);
    return r;
}

/* Uses the keys in a profile besides a role. -ENOKEY: none. */
static int by_own_keys(const struct s3_profiles *p, const char *name,
                       struct s3_credentials *ret_credentials, char **ret_error)
{
    const struct s3_credential_texts texts = {
        .key_id = s3_profiles_get(p, name, "aws_access_key_id"),
        .secret = s3_profiles_get(p, name, "aws_secret_access_key"),
        .token = s3_profiles_get(p, name, "aws_session_token")};
    const char *command = s3_profiles_get(p, name, "credential_process");
    if (texts.key_id || texts.secret) {
        _cleanup_free_ char *what = xasprintf("profile \"%s\"", name);
        return s3_credentials_make(&texts, what, ret_credentials, ret_error);
    }
    if (command)
        return s3_source_process(name, command, ret_credentials, ret_error);
    if (s3_profiles_get(p, name, "sso_session") || s3_profiles_get(p, name, "sso_start_url"))
        return text_fail(
            ret_error, -EINVAL,
            "profile \"%s\" uses single sign-on, which is left to the aws command: make a profile "
            "with "
            "credential_process = aws configure export-credentials --profile %s --format process",
            name, name);
    return text_fail(ret_error, -ENOKEY, "profile \"%s\" of %s has no credentials", name,
                     s3_profiles_where(p));
}

static int from_profile(const struct s3_lookup *lookup, const char *name, struct chain *chain,
                        struct s3_credentials *ret_credentials, char **ret_error)
{
    bool is_first = chain->count == 0, is_own_source = is_in_chain(chain, name);
    if (!s3_profiles_has(lookup->profiles, name))
        return text_fail(ret_error, is_first && strcmp(name, "default") == 0 ? -ENOKEY : -EINVAL,
                         "profile \"%s\" is not in %s", name, s3_profiles_where(lookup->profiles));
    chain->names[chain->count++] = name;
    const char *arn = s3_profiles_get(lookup->profiles, name, "role_arn");
    if (arn && !is_own_source)
        return by_role(lookup, name, arn, chain, ret_credentials, ret_error);
    int r = by_own_keys(lookup->profiles, name, ret_credentials, ret_error);
    return r == -ENOKEY && !is_first ? -EINVAL : r;
}

int s3_source_profile(const struct s3_lookup *lookup, struct s3_credentials *ret_credentials,
                      char **ret_error)
{
    struct chain chain = {0};
    return from_profile(lookup, lookup->profile, &chain, ret_credentials, ret_error);
}
