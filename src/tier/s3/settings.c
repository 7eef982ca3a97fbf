// SPDX-License-Identifier: Apache-2.0
#include <ctype.h>
#include <strings.h>

#include "tier/s3/credentials_source.h"
#include "base/text.h"

static char *copy_or_null(const char *text)
{
    return text ? xstrdup(text) : NULL;
}

char *s3_setting_region(const struct s3_profiles *profiles, const char *profile)
{
    const char *region = s3_env("AWS_REGION");
    if (!region)
        region = s3_env("AWS_DEFAULT_REGION");
    return copy_or_null(region ? region : s3_profiles_get(profiles, profile, "region"));
}

/* The environment takes precedence over the profile, also if it says false. */
static bool endpoints_are_ignored(const struct s3_profiles *profiles, const char *profile)
{
    static const char variable[] = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS";
    const char *value = s3_profiles_get(profiles, profile, "ignore_configured_endpoint_urls");
    return s3_env(variable) ? s3_env_is_true(variable) : value && strcasecmp(value, "true") == 0;
}

char *s3_setting_endpoint(const struct s3_profiles *profiles, const char *profile,
                          const char *service)
{
    if (endpoints_are_ignored(profiles, profile))
        return NULL;
    _cleanup_free_ char *variable = xasprintf("AWS_ENDPOINT_URL_%s", service);
    for (char *c = variable; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    const char *url = s3_env(variable);
    if (!url)
        url = s3_env("AWS_ENDPOINT_URL");
    const char *services = s3_profiles_get(profiles, profile, "services");
    if (!url && services) {
        _cleanup_free_ char *key = xasprintf("%s.endpoint_url", service);
        url = s3_profiles_get_service(profiles, services, key);
    }
    return copy_or_null(url ? url : s3_profiles_get(profiles, profile, "endpoint_url"));
}

int s3_settings_read(const char *profile, struct s3_settings *ret_settings, char **ret_error)
{
    struct s3_profiles *profiles;
    TRY(s3_profiles_read(&profiles, ret_error));
    int r = 0;
    const char *name = profile ? profile : s3_profiles_default_name();
    if (strcmp(name, "default") != 0 && !s3_profiles_has(profiles, name)) {
        r = text_fail(ret_error, -ENOENT, "profile \"%s\" is not in %s", name,
                      s3_profiles_where(profiles));
    } else {
        const char *ca_bundle = s3_env("AWS_CA_BUNDLE");
        ret_settings->region = s3_setting_region(profiles, name);
        ret_settings->endpoint_url = s3_setting_endpoint(profiles, name, "s3");
        ret_settings->ca_bundle =
            copy_or_null(ca_bundle ? ca_bundle : s3_profiles_get(profiles, name, "ca_bundle"));
    }
    s3_profiles_free(profiles);
    return r;
}

void s3_settings_done(struct s3_settings *settings)
{
    free(settings->region);
    free(settings->endpoint_url);
    free(settings->ca_bundle);
    *settings = (struct s3_settings){0};
}
