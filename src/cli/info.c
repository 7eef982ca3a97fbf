// SPDX-License-Identifier: Apache-2.0
#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/json.h"
#include "cli/survey.h"

static void print_row(const char *label, const char *fmt, ...) CAIRN_PRINTF(2, 3);

static void print_row(const char *label, const char *fmt, ...)
{
    va_list ap;
    (void)printf("  %-18s", label);
    va_start(ap, fmt);
    (void)vprintf(fmt, ap);
    va_end(ap);
    (void)printf("\n");
}

/* Returns 1 if there was nothing to reduce. */
static double ratio_of(uint64_t before, uint64_t after)
{
    return after > 0 ? (double)before / (double)after : 1;
}

static void add_sum(cJSON *info, const struct survey_sum *s)
{
    control_add_u64(info, "files", s->files);
    control_add_u64(info, "directories", s->directories);
    control_add_u64(info, "logical_bytes", s->logical_bytes);
    control_add_u64(info, "chunks", s->chunks);
    control_add_u64(info, "chunk_uses", s->uses);
    control_add_u64(info, "used_bytes", s->used_bytes);
    control_add_u64(info, "unique_bytes", s->unique_bytes);
    control_add_u64(info, "stored_bytes", s->stored_bytes);
    control_add_u64(info, "nvme_bytes", s->nvme_bytes);
    control_add_u64(info, "remote_bytes", s->remote_bytes);
    control_add_u64(info, "freed_nvme_bytes", s->freed_nvme_bytes);
    control_add_u64(info, "freed_remote_bytes", s->freed_remote_bytes);
    cJSON_DeleteItemFromObjectCaseSensitive(info, "staged_bytes");
    control_add_u64(info, "staged_bytes", s->staged_bytes);
    survey_add_forms(info, "encodings", s->forms);
    survey_add_forms(info, "remote_encodings", s->remote_forms);
    (void)cJSON_AddNumberToObject(info, "dedup_ratio", ratio_of(s->used_bytes, s->unique_bytes));
    (void)cJSON_AddNumberToObject(info, "compression_ratio",
                                  ratio_of(s->unique_bytes, s->stored_bytes));
}

static void print_versions(const cJSON *root)
{
    bool draft = json_true(root, "being_written"), newer = json_true(root, "newer_version_staged");
    uint64_t version = json_count(root, "version");
    const char *more = draft && newer
                           ? "; the newest waits in the stage, and the next is being written"
                       : draft ? "; the next is being written"
                       : newer ? "; it waits in the stage"
                               : "";
    if (version == 0)
        print_row("versions", "none yet%s", draft ? ": the first is being written" : "");
    else
        print_row("versions", "1 is kept, the newest, number %llu%s", (unsigned long long)version,
                  more);
}

static void print_forms(const char *label, const struct survey_form *forms)
{
    for (unsigned i = 0; i < SURVEY_FORMS; i++)
        if (forms[i].raw > 0)
            print_row(label, "%s: %s stored in %s (%.3f)", survey_encoding_name(i),
                      human_bytes(forms[i].raw).text, human_bytes(forms[i].stored).text,
                      survey_ratio(&forms[i]));
}

static void print_info(const char *path, const cJSON *root, const struct survey_sum *s)
{
    const char *type = json_text(root, "type"), *level = json_text(root, "level");
    bool is_directory = type && strcmp(type, "directory") == 0;
    uint64_t links = json_count(root, "links");
    text_print(stdout, "%s", path);
    print_row("what", "%s, %llu link%s, inode %llu", type ? type : "unknown",
              (unsigned long long)links, links == 1 ? "" : "s",
              (unsigned long long)json_count(root, "ino"));
    if (is_directory)
        print_row("content", "%llu files in %llu directories, %s", (unsigned long long)s->files,
                  (unsigned long long)s->directories, human_bytes(s->logical_bytes).text);
    else
        print_row("content", "%s", human_bytes(s->logical_bytes).text);
    if (type && strcmp(type, "file") == 0)
        print_versions(root);
    print_row("level", "%s", level ? level : "unknown");
    print_row("  stage", "%s not on NVMe yet", human_bytes(s->staged_bytes).text);
    print_row("  nvme", "%s", human_bytes(s->nvme_bytes).text);
    print_row("  remote", "%s", human_bytes(s->remote_bytes).text);
    print_row("chunks", "%llu, used %llu times", (unsigned long long)s->chunks,
              (unsigned long long)s->uses);
    print_row("stored", "%s: deduplication %.2f x, compression %.2f x",
              human_bytes(s->stored_bytes).text, ratio_of(s->used_bytes, s->unique_bytes),
              ratio_of(s->unique_bytes, s->stored_bytes));
    print_forms("  encoding", s->forms);
    print_forms("  in the remote", s->remote_forms);
    print_row("deleting it", "frees %s on NVMe, %s in the remote",
              human_bytes(s->freed_nvme_bytes).text, human_bytes(s->freed_remote_bytes).text);
}

struct info_request {
    bool json;
};

static int execute_info(struct call *call)
{
    const struct info_request *request = call->request;
    struct survey_sum sum;
    _cleanup_json_ cJSON *root = NULL;
    int code = survey_look(call->command, *call->operands, &call->target, &root);
    if (code == CLI_OK)
        code = survey_walk(call->command, call->target.store, root, &sum);
    if (code == CLI_OK && request->json) {
        add_sum(root, &sum);
        json_print(root);
    } else if (code == CLI_OK) {
        print_info(*call->operands, root, &sum);
    }
    return code;
}

const struct command info_command = {
    .name = "info",
    .summary = "show what a file or directory consists of, and where it is stored",
    .description = "Version, chunks, level, stored bytes, deduplication and compression, and the "
                   "bytes that deleting it would free.\n"
                   "Data that is only in the stage is counted separately.",
    .flags = (const struct flag[]){FLAG_JSON(offsetof(struct info_request, json)), {0}},
    REQUEST(struct info_request, 0),
    .operands = (const struct operand[]){{.name = "PATH", .offers = OFFER_FILES}, {0}},
    .exits = EXITS_INTERRUPTED("printed", "failed"),
    .execute = execute_info,
};
