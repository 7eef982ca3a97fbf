// SPDX-License-Identifier: Apache-2.0
#include "cli/why.h"

#include <stdio.h>

#include "base/text.h"
#include "base/vector.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/human.h"
#include "daemon/control.h"

#define FILES_SHOWN 3u

/* A sample of chunks, and for each the first file that was reported to have it. */
struct owned {
    const struct survey_sample *sample;
    char *paths[SURVEY_SAMPLE_MAX]; /* NULL: none */
    const char *outside;            /* files below this path do not count; NULL: all count */
};

static bool is_below(const char *path, const char *root)
{
    size_t len = strlen(root);
    if (strncmp(path, root, len) != 0)
        return false;
    return path[len] == '\0' || path[len] == '/' || (len > 0 && root[len - 1] == '/');
}

static bool take_users(struct owned *owned, const cJSON *reply)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, json_part(reply, "users"))
    {
        uint64_t chunk = json_count(row, "chunk");
        const char *path = json_text(row, "path");
        if (chunk >= owned->sample->count || !path)
            return false;
        if (owned->paths[chunk] || (owned->outside && is_below(path, owned->outside)))
            continue;
        owned->paths[chunk] = xstrdup(path);
    }
    return true;
}

static cJSON *users_request(const struct survey_sample *sample, uint64_t at)
{
    cJSON *request = cJSON_CreateObject(), *chunks = cJSON_AddArrayToObject(request, "chunks");
    for (unsigned i = 0; i < sample->count; i++)
        (void)cJSON_AddItemToArray(chunks, cJSON_CreateString(sample->at[i].name));
    control_add_u64(request, "at", at);
    return request;
}

/* Looks through all files, a portion at a time. */
static int find_owners(const struct command *command, const char *store, struct owned *owned)
{
    uint64_t at = 0, next = 0;
    bool more = owned->sample->count > 0, is_good = true;
    while (more && is_good) {
        _cleanup_json_ cJSON *reply = NULL;
        if (!interrupt_sleep_ms(0))
            return CLI_INTERRUPTED;
        if (ask_daemon(command->name, store, "users", users_request(owned->sample, at), &reply) < 0)
            return CLI_FAILED;
        more = control_get_u64(reply, "at", &next);
        is_good = take_users(owned, reply) && (!more || next > at);
        at = next;
    }
    return is_good ? CLI_OK : complain_answer(command->name, store);
}

/* --- files, by their share --- */

struct owner {
    const char *path; /* NULL: no file has it any more */
    uint64_t bytes;
};

DEFINE_VECTOR(owners, struct owner);

static int owners_by_bytes(const void *a, const void *b)
{
    const struct owner *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : 0;
}

static struct owner *owner_of(struct owners *owners, const char *path)
{
    for (size_t i = 0; i < owners->count; i++) {
        const char *its = owners->at[i].path;
        if (its == path || (its && path && strcmp(its, path) == 0))
            return &owners->at[i];
    }
    vector_add(owners, (struct owner){.path = path});
    return &owners->at[owners->count - 1];
}

/* The owners of chunks on which one encoding depends. */
static struct owners owners_of(const struct owned *owned, unsigned encoding)
{
    struct owners owners = {0};
    for (unsigned i = 0; i < owned->sample->count; i++)
        if (owned->sample->at[i].encoding == encoding)
            owner_of(&owners, owned->paths[i])->bytes += owned->sample->at[i].bytes;
    vector_sort(&owners, owners_by_bytes);
    return owners;
}

static void add_owners(cJSON *object, const char *name, const struct owners *owners)
{
    uint64_t all = 0;
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (size_t i = 0; i < owners->count; i++)
        all += owners->at[i].bytes;
    for (size_t i = 0; i < owners->count; i++) {
        cJSON *one = cJSON_CreateObject();
        if (owners->at[i].path)
            (void)cJSON_AddStringToObject(one, "path", owners->at[i].path);
        (void)cJSON_AddNumberToObject(one, "share",
                                      all ? (double)owners->at[i].bytes / (double)all : 0);
        (void)cJSON_AddItemToArray(array, one);
    }
}

static void print_owners(const char *before, const struct owners *owners)
{
    for (size_t i = 0; i < owners->count && i < FILES_SHOWN; i++)
        text_print(stdout, "  %-16s%s%s", "", i ? "and of " : before,
                   owners->at[i].path ? owners->at[i].path : "a file that is gone");
    if (owners->count > FILES_SHOWN)
        (void)printf("  %-16sand of other files\n", "");
}

/* --- the report ------------------------------------------------------------------------------- */

struct why {
    const struct survey_sum *sum;
    struct owned bases, shared;
};

static void add_why(const struct why *why, cJSON *object)
{
    survey_add_forms(object, "nvme_encodings", why->sum->nvme_forms);
    survey_add_forms(object, "remote_encodings", why->sum->remote_forms);
    cJSON *bases = cJSON_AddObjectToObject(object, "bases");
    for (unsigned i = 0; i < CHUNK_ENCODINGS; i++) {
        _cleanup_vector_ struct owners owners = owners_of(&why->bases, i);
        if (owners.count)
            add_owners(bases, survey_encoding_name(i), &owners);
    }
    _cleanup_vector_ struct owners sharers = owners_of(&why->shared, 0);
    control_add_u64(object, "shared_bytes", why->sum->shared_bytes);
    add_owners(object, "shared_with", &sharers);
}

static void why_print_forms(const struct why *why, const char *where,
                            const struct survey_form *forms, bool with_bases)
{
    for (unsigned i = 0; i < SURVEY_FORMS; i++) {
        if (forms[i].raw == 0)
            continue;
        (void)printf("  %-16s%s: %s stored in %s (%.3f)\n", where, survey_encoding_name(i),
                     human_bytes(forms[i].raw).text, human_bytes(forms[i].stored).text,
                     survey_ratio(&forms[i]));
        where = "";
        if (!with_bases)
            continue;
        _cleanup_vector_ struct owners owners = owners_of(&why->bases, i);
        print_owners("  by chunks of ", &owners);
    }
}

static void print_why(const struct why *why)
{
    const struct survey_sum *sum = why->sum;
    why_print_forms(why, "on NVMe", sum->nvme_forms, false);
    why_print_forms(why, "in the remote", sum->remote_forms, true);
    uint64_t repeated = sum->used_bytes - min_u64(sum->used_bytes, sum->unique_bytes);
    if (repeated)
        (void)printf("  %-16s%s that is there more than once: stored once\n", "repeated",
                     human_bytes(repeated).text);
    if (sum->shared_bytes == 0)
        return;
    _cleanup_vector_ struct owners sharers = owners_of(&why->shared, 0);
    (void)printf("  %-16s%s that other files have, too: stored once\n", "shared",
                 human_bytes(sum->shared_bytes).text);
    print_owners("  such as ", &sharers);
}

static void owned_done(struct owned *owned)
{
    for (unsigned i = 0; i < SURVEY_SAMPLE_MAX; i++)
        free(owned->paths[i]);
}

int why_report(const struct command *command, const char *store, const cJSON *root,
               const struct survey_sum *sum, cJSON *object)
{
    struct why why = {.sum = sum,
                      .bases = {.sample = &sum->bases},
                      .shared = {.sample = &sum->shared, .outside = json_text(root, "path")}};
    int code = find_owners(command, store, &why.bases);
    if (code == CLI_OK)
        code = find_owners(command, store, &why.shared);
    if (code == CLI_OK && object)
        add_why(&why, object);
    else if (code == CLI_OK)
        print_why(&why);
    owned_done(&why.bases);
    owned_done(&why.shared);
    return code;
}
