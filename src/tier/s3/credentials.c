// SPDX-License-Identifier: Apache-2.0
/* Caches the last credentials and decides when to renew them; the sources are in
 * credentials_{http,process,profile,sts}.c.
 *
 * 1. At most one caller asks the sources at a time, without the lock.
 * 2. Credentials are valid until they expire. If a source returns ones that have expired by our
 *    clock, our clock may be wrong: they stay valid until the next renewal.
 * 3. A caller without valid credentials waits for the caller that asks, and shares its outcome,
 *    success or error. */
#include "tier/s3/credentials.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/text.h"
#include "tier/s3/credentials_source.h"

#define REFRESH_BEFORE_NS (300 * SECOND_NS)
/* Pauses before the sources are asked again while the old credentials are valid: after new ones
 * that expire as soon as the old ones, and after a failure. */
#define ASK_PAUSE_NS (60 * SECOND_NS)
#define FAILURE_PAUSE_NS (30 * SECOND_NS)

struct s3_credential_source {
    char *profile; /* NULL: not chosen by an option */
    struct http *http;
    pthread_cond_t answered;
    struct {
        struct cairn_mutex lock;
        struct s3_credentials found; /* key_id NULL: none yet */
        bool asking;
        uint64_t asked;      /* number of completed renewals */
        int64_t ask_next_ns; /* monotonic: no renewal earlier, while `found` is valid */
        int result;          /* of the last renewal */
        char *error;
    } locked;
};

/* In order of precedence. */
static s3_source_fn *const sources[] = {s3_source_environment, s3_source_environment_identity,
                                        s3_source_profile, s3_source_container, s3_source_metadata};

struct s3_credential_source *s3_credentials_open(const char *profile, struct http *http)
{
    struct s3_credential_source *source = xcalloc(1, sizeof *source);
    source->profile = profile ? xstrdup(profile) : NULL;
    source->http = http;
    mutex_init(&source->locked.lock, LOCK_LEAF);
    cond_init(&source->answered);
    return source;
}

void s3_credentials_close(struct s3_credential_source *source)
{
    if (!source)
        return;
    check(!source->locked.asking);
    s3_credentials_done(&source->locked.found);
    mutex_done(&source->locked.lock);
    (void)pthread_cond_destroy(&source->answered);
    free(source->locked.error);
    free(source->profile);
    free(source);
}

int s3_source_environment(const struct s3_lookup *lookup, struct s3_credentials *ret_credentials,
                          char **ret_error)
{
    const struct s3_credential_texts texts = {.key_id = s3_env("AWS_ACCESS_KEY_ID"),
                                              .secret = s3_env("AWS_SECRET_ACCESS_KEY"),
                                              .token = s3_env("AWS_SESSION_TOKEN")};
    if (lookup->profile_chosen || (!texts.key_id && !texts.secret))
        return text_fail(ret_error, -ENOKEY, "no environment (AWS_ACCESS_KEY_ID is %s)",
                         lookup->profile_chosen ? "ignored because a profile is chosen"
                                                : "not set");
    return s3_credentials_make(&texts, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                               ret_credentials, ret_error);
}

/* Tries the sources in order; the first that is configured decides. */
static int ask_sources(const struct s3_lookup *lookup, struct s3_credentials *ret_credentials,
                       char **ret_error)
{
    _cleanup_free_ char *looked = xstrdup(
        "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add a profile "
        "to ~/.aws/credentials, or mount a public bucket with -o no_sign_request,ro; found");
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        char *error = NULL;
        int r = sources[i](lookup, ret_credentials, &error);
        /* Instance metadata is always tried, even if not configured: a failure is not an error. */
        bool go_on = r == -ENOKEY || (r < 0 && r != -ECANCELED && sources[i] == s3_source_metadata);
        if (!go_on) {
            if (r < 0)
                *ret_error = error;
            return r;
        }
        char *longer = xasprintf("%s%s %s", looked, i ? ";" : "", error);
        free(error);
        free(looked);
        looked = longer;
    }
    *ret_error = looked;
    looked = NULL;
    return -ENOKEY;
}

/* Reads the files again, as they may have changed. */
static int find_credentials(struct s3_credential_source *source,
                            struct s3_credentials *ret_credentials, char **ret_error)
{
    struct s3_lookup lookup = {.http = source->http, .profile_chosen = source->profile != NULL};
    struct s3_profiles *profiles;
    lookup.profile = source->profile ? source->profile : s3_profiles_default_name();
    /* Keys in the environment need no file, so a broken file must not prevent their use. */
    int r = s3_source_environment(&lookup, ret_credentials, ret_error);
    if (r != -ENOKEY)
        return r;
    free(*ret_error);
    *ret_error = NULL;
    TRY(s3_profiles_read(&profiles, ret_error));
    lookup.profiles = profiles;
    r = ask_sources(&lookup, ret_credentials, ret_error);
    s3_profiles_free(profiles);
    return r;
}

static bool same_credential_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_refused(const struct s3_credentials *found, const struct s3_credentials *refused)
{
    return refused && same_credential_text(found->key_id, refused->key_id) &&
           same_credential_text(found->secret, refused->secret) &&
           same_credential_text(found->token, refused->token);
}

static bool holds_credentials(const struct s3_credential_source *source,
                              const struct s3_credentials *refused)
{
    const struct s3_credentials *found = &source->locked.found;
    if (!found->key_id || is_refused(found, refused))
        return false;
    return found->expires_ns == 0 || clock_realtime_ns() < found->expires_ns ||
           (source->locked.result == 0 && clock_monotonic_ns() < source->locked.ask_next_ns);
}

static bool is_due(const struct s3_credential_source *source)
{
    int64_t end = source->locked.found.expires_ns;
    return end != 0 && clock_realtime_ns() > end - REFRESH_BEFORE_NS &&
           clock_monotonic_ns() >= source->locked.ask_next_ns;
}

/* How long not to renew credentials that are due already when new: half of their remaining time,
 * limited to ASK_PAUSE_NS. */
static int64_t pause_after(const struct s3_credentials *found)
{
    int64_t left = found->expires_ns - clock_realtime_ns();
    if (left > REFRESH_BEFORE_NS)
        return 0;
    return left > 0 && left / 2 < ASK_PAUSE_NS ? left / 2 : ASK_PAUSE_NS;
}

/* Releases the lock while it asks. */
static void ask_locked(struct s3_credential_source *source)
{
    check_held(&source->locked.lock);
    struct s3_credentials found = {0};
    char *error = NULL;
    source->locked.asking = true;
    mutex_unlock(&source->locked.lock);
    int r = find_credentials(source, &found, &error);
    mutex_lock(&source->locked.lock);
    source->locked.asking = false;
    source->locked.asked++;
    /* there were some before, so their absence may be transient */
    source->locked.result = r == -ENOKEY && source->locked.found.key_id ? -EAGAIN : r;
    free(source->locked.error);
    source->locked.error = error;
    if (r == 0) {
        s3_credentials_done(&source->locked.found);
        source->locked.found = found;
    }
    source->locked.ask_next_ns =
        clock_monotonic_ns() + (r == 0 ? pause_after(&found) : FAILURE_PAUSE_NS);
    (void)pthread_cond_broadcast(&source->answered);
}

static void wait_for_credentials(struct s3_credential_source *source)
{
    uint64_t asked = source->locked.asked;
    while (source->locked.asked == asked)
        (void)mutex_wait(&source->locked.lock, &source->answered, -1);
}

int s3_credentials_get(struct s3_credential_source *source, const struct s3_credentials *refused,
                       struct s3_credentials *ret_credentials, char **ret_error)
{
    _cleanup_free_ char *stale_because = NULL;
    mutex_lock(&source->locked.lock);
    bool held = holds_credentials(source, refused), asked = false;
    if (source->locked.asking && !held) {
        wait_for_credentials(source);
        asked = true;
    } else if (!source->locked.asking && (!held || is_due(source))) {
        ask_locked(source);
        asked = true;
    }
    int r = asked ? source->locked.result : 0;
    if (r < 0 && holds_credentials(source, refused)) {
        stale_because = held ? xstrdup(source->locked.error) : NULL;
        r = 0;
    }
    if (r == 0)
        s3_credentials_copy(&source->locked.found, ret_credentials);
    else
        *ret_error = xstrdup(source->locked.error);
    mutex_unlock(&source->locked.lock);
    if (stale_because)
        log_warn("cannot renew S3 credentials; the old ones are used until they expire: %s",
                 stale_because);
    return r;
}
