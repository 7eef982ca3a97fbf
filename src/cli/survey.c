// SPDX-License-Identifier: Apache-2.0
#include "cli/survey_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/human.h"
#include "codec/encode.h"
#include "daemon/control.h"

#define TODO_PER_REQUEST 512 /* requests are limited */
#define DRAW_NS (200ll * 1000000)

static void push_item(struct walk *w, const char *item)
{
    struct item *added = vector_next(&w->todo);
    (void)snprintf(added->text, sizeof added->text, "%s", item);
}

static void push_ino(struct walk *w, char kind, uint64_t ino)
{
    char item[64];
    (void)snprintf(item, sizeof item, "%c%" PRIu64 ":0", kind, ino);
    push_item(w, item);
}

static struct linked *linked_of(struct walk *w, uint64_t ino)
{
    struct linked *linked;
    HASH_FIND(hh, w->linked, &ino, sizeof ino, linked);
    if (linked)
        return linked;
    linked = xcalloc(1, sizeof *linked);
    linked->ino = ino;
    HASH_ADD(hh, w->linked, ino, sizeof linked->ino, linked);
    return linked;
}

static bool is_first_sight(struct walk *w, uint64_t ino, uint64_t links, bool has_content)
{
    struct linked *linked = linked_of(w, ino);
    linked->links = links;
    linked->has_content = has_content;
    return linked->seen++ == 0;
}

void survey_see_entry(struct walk *w, char kind, uint64_t ino, uint64_t size, uint64_t links,
                      uint64_t staged)
{
    bool has_content = kind == 'f' && size > 0, is_linked = kind != 'd' && links > 1;
    if (is_linked && !is_first_sight(w, ino, links, has_content))
        return;
    w->sum.files += kind == 'f';
    w->sum.directories += kind == 'd';
    w->sum.others += kind == 'o';
    w->sum.logical_bytes += kind == 'f' ? size : 0;
    w->sum.staged_bytes += staged;
    if (kind == 'd' || (has_content && !is_linked))
        push_ino(w, kind, ino);
}

/* Called when the list is empty: continues with the linked files of the next phase that has some.
 * False: there is no further phase. */
static bool begin_next_phase(struct walk *w)
{
    while (w->todo.count == 0 && w->phase < LINKED_OUTSIDE) {
        w->phase++;
        for (struct linked *linked = w->linked; linked; linked = linked->hh.next) {
            enum phase its = linked->seen < linked->links ? LINKED_OUTSIDE : LINKED_WITHIN;
            if (linked->has_content && its == w->phase)
                push_ino(w, 'f', linked->ino);
        }
    }
    return w->todo.count > 0;
}

static int compare_chunks(const void *a, const void *b)
{
    const struct survey_chunk *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static void add_to_sample(struct survey_sample *sample, const char *name, unsigned encoding,
                          uint64_t bytes)
{
    struct survey_chunk chunk = {.encoding = encoding, .bytes = bytes};
    unsigned i = sample->count;
    memcpy(chunk.name, name, sizeof chunk.name);
    while (i > 0 && compare_chunks(&chunk, &sample->at[i - 1]) < 0)
        i--;
    if (i > 0 && compare_chunks(&chunk, &sample->at[i - 1]) == 0) {
        sample->at[i - 1].bytes += bytes;
        return;
    }
    if (i == SURVEY_SAMPLE_MAX)
        return;
    sample->count += sample->count < SURVEY_SAMPLE_MAX;
    memmove(&sample->at[i + 1], &sample->at[i], (sample->count - 1 - i) * sizeof *sample->at);
    check(i < sample->count && sample->count <= SURVEY_SAMPLE_MAX);
    sample->at[i] = chunk;
}

static void add_form(struct survey_form *forms, unsigned encoding, uint32_t raw, uint32_t stored)
{
    struct survey_form *form = &forms[encoding < CHUNK_ENCODINGS ? encoding : CHUNK_ENCODINGS];
    form->raw += raw;
    form->stored += stored;
}

static void add_freed(struct survey_sum *sum, const struct part *part)
{
    sum->freed_nvme_bytes += part->where & 1 ? part->stored : 0;
    sum->freed_remote_bytes += part->remote_stored;
}

static void add_unique(struct survey_sum *sum, const struct part *part)
{
    sum->chunks++;
    sum->unique_bytes += part->raw;
    sum->stored_bytes += part->stored;
    add_form(sum->forms, part->encoding, part->raw, part->stored);
    if (part->where & 1) {
        add_form(sum->nvme_forms, part->encoding, part->raw, part->stored);
        sum->nvme_bytes += part->stored;
    }
    if (part->where & 2) {
        add_form(sum->remote_forms, part->remote_encoding, part->raw, part->remote_stored);
        sum->remote_bytes += part->remote_stored;
    }
    for (unsigned i = 0; i < part->base_count; i++)
        add_to_sample(&sum->bases, part->bases[i], part->remote_encoding, part->raw);
}

static bool is_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == 32;
}

/* Parses ":STORED:ENCODING:BASE..." of the remote, behind the other fields. */
static bool parse_remote(const char *text, struct part *ret)
{
    int len = 0;
    if (sscanf(text, ":%" SCNu32 ":%u%n", &ret->remote_stored, &ret->remote_encoding, &len) != 2)
        return false;
    for (text += len; *text; text += 33) {
        if (ret->base_count == CHUNK_REFS_MAX || *text != ':' || !is_name(text + 1))
            return false;
        memcpy(ret->bases[ret->base_count++], text + 1, 32);
    }
    return true;
}

static bool parse_part(const cJSON *item, struct part *ret)
{
    const char *text = cJSON_GetStringValue(item);
    int len = 0;
    *ret = (struct part){0};
    if (!text ||
        sscanf(text,
               "%32[0-9a-f]:%" SCNu64 ":%" SCNu32 ":%" SCNu64 ":%" SCNu32 ":%" SCNu32 ":%d:%u%n",
               ret->name, &ret->refs, &ret->uses, &ret->length, &ret->raw, &ret->stored,
               &ret->where, &ret->encoding, &len) != 8 ||
        strlen(ret->name) != 32)
        return false;
    if (text[len] != '\0')
        return ret->where & 2 && parse_remote(text + len, ret);
    /* A daemon of 0.2.0 omits the remote, which then has the same chunks as NVMe. */
    ret->remote_stored = ret->where & 2 ? ret->stored : 0;
    ret->remote_encoding = ret->encoding;
    return true;
}

void survey_see_chunk(struct walk *w, const struct part *part)
{
    struct shared *shared;
    bool goes = w->phase != LINKED_OUTSIDE;
    w->sum.uses++;
    w->sum.used_bytes += part->length;
    if (part->refs <= part->uses) { /* no other file refers to it */
        add_unique(&w->sum, part);
        if (goes)
            add_freed(&w->sum, part);
        return;
    }
    HASH_FIND(hh, w->shared, part->name, 32, shared);
    if (!shared) {
        shared = xcalloc(1, sizeof *shared);
        memcpy(shared->name, part->name, sizeof shared->name);
        shared->stored_len = part->where & 1 ? part->stored : 0;
        shared->remote_len = part->remote_stored;
        HASH_ADD(hh, w->shared, name, sizeof shared->name, shared);
        add_unique(&w->sum, part);
    }
    shared->refs = part->refs;
    shared->uses += goes ? part->uses : 0;
    shared->used_bytes += part->length;
}

void survey_see_inline(struct walk *w, uint64_t bytes, uint64_t remote_bytes)
{
    struct survey_sum *sum = &w->sum;
    sum->used_bytes += bytes;
    sum->unique_bytes += bytes;
    sum->stored_bytes += bytes;
    sum->nvme_bytes += bytes;
    sum->remote_bytes += remote_bytes;
    if (w->phase == LINKED_OUTSIDE)
        return;
    sum->freed_nvme_bytes += bytes;
    sum->freed_remote_bytes += remote_bytes;
}

static bool take_portion(struct walk *w, const cJSON *reply, size_t asked)
{
    uint64_t done = json_count(reply, "done"), ino, size, links, staged;
    struct part part;
    const char *rest = json_text(reply, "rest");
    const cJSON *item;
    char kind;
    if (done == 0 || done > asked)
        return false;
    check(asked <= w->todo.count);
    w->todo.count -= done;
    if (rest)
        push_item(w, rest);
    survey_see_inline(w, json_count(reply, "inline_bytes"),
                      json_count(reply, "inline_remote_bytes"));
    cJSON_ArrayForEach(item, json_part(reply, "found"))
    {
        if (!cJSON_IsString(item) ||
            sscanf(item->valuestring, "%c%" SCNu64 ":%" SCNu64 ":%" SCNu64 ":%" SCNu64, &kind, &ino,
                   &size, &links, &staged) != 5)
            return false;
        survey_see_entry(w, kind, ino, size, links, staged);
    }
    cJSON_ArrayForEach(item, json_part(reply, "chunks"))
    {
        if (!parse_part(item, &part))
            return false;
        survey_see_chunk(w, &part);
    }
    return true;
}

static void walk_draw(struct walk *w)
{
    int64_t now = clock_monotonic_ns();
    if (!isatty(STDERR_FILENO) || now - w->drawn_at < DRAW_NS)
        return;
    w->drawn_at = now;
    w->drawn = true;
    (void)fprintf(stderr, "\r%" PRIu64 " files, %" PRIu64 " directories, %s \033[K", w->sum.files,
                  w->sum.directories, human_bytes(w->sum.logical_bytes).text);
    (void)fflush(stderr);
}

/* Requests the end of the list, the next item first. */
static int ask_portion(struct walk *w)
{
    size_t asked = w->todo.count < TODO_PER_REQUEST ? w->todo.count : TODO_PER_REQUEST;
    _cleanup_json_ cJSON *reply = NULL;
    cJSON *request = cJSON_CreateObject(), *todo = cJSON_AddArrayToObject(request, "todo");
    for (size_t i = 0; i < asked; i++)
        (void)cJSON_AddItemToArray(todo,
                                   cJSON_CreateString(w->todo.at[w->todo.count - 1 - i].text));
    if (ask_daemon(w->command->name, w->store, "survey", request, &reply) < 0)
        return CLI_FAILED;
    return take_portion(w, reply, asked) ? CLI_OK : complain_answer(w->command->name, w->store);
}

/* --- the whole --- */

static void settle_shared(struct survey_sum *sum, const struct shared *shared)
{
    char name[33] = "";
    if (shared->uses >= shared->refs) {
        sum->freed_nvme_bytes += shared->stored_len;
        sum->freed_remote_bytes += shared->remote_len;
        return;
    }
    memcpy(name, shared->name, sizeof shared->name);
    sum->shared_bytes += shared->used_bytes;
    add_to_sample(&sum->shared, name, 0, shared->used_bytes);
}

static void settle_walk(struct walk *w)
{
    struct shared *shared, *next_shared;
    struct linked *linked, *next_linked;
    HASH_ITER(hh, w->shared, shared, next_shared)
    {
        settle_shared(&w->sum, shared);
        HASH_DEL(w->shared, shared);
        free(shared);
    }
    HASH_ITER(hh, w->linked, linked, next_linked)
    {
        HASH_DEL(w->linked, linked);
        free(linked);
    }
    vector_free(&w->todo);
    if (w->drawn)
        (void)fprintf(stderr, "\r\033[K");
}

int survey_walk_all(struct walk *w, struct survey_sum *ret)
{
    int code = CLI_OK;
    while (code == CLI_OK && (w->todo.count > 0 || begin_next_phase(w))) {
        code = interrupt_sleep_ms(0) ? w->look(w) : CLI_INTERRUPTED;
        walk_draw(w);
    }
    settle_walk(w);
    *ret = w->sum;
    return code;
}

int survey_walk(const struct command *command, const char *store, const cJSON *root,
                struct survey_sum *ret)
{
    struct walk w = {
        .command = command, .look = ask_portion, .store = store, .drawn_at = clock_monotonic_ns()};
    const char *type = json_text_or(root, "type", "");
    char kind = strcmp(type, "directory") == 0 ? 'd' : strcmp(type, "file") == 0 ? 'f' : 'o';
    interrupt_catch(false);
    survey_see_entry(&w, kind, json_count(root, "ino"), json_count(root, "size_bytes"),
                     json_count(root, "links"), json_count(root, "staged_bytes"));
    return survey_walk_all(&w, ret);
}

const char *survey_encoding_name(unsigned encoding)
{
    return encoding < CHUNK_ENCODINGS ? chunk_encoding_name((uint8_t)encoding) : "unknown";
}

void survey_add_forms(cJSON *object, const char *name, const struct survey_form *forms)
{
    cJSON *encodings = cJSON_AddObjectToObject(object, name);
    for (unsigned i = 0; i < SURVEY_FORMS; i++) {
        if (forms[i].raw == 0)
            continue;
        cJSON *one = cJSON_AddObjectToObject(encodings, survey_encoding_name(i));
        control_add_u64(one, "raw_bytes", forms[i].raw);
        control_add_u64(one, "stored_bytes", forms[i].stored);
    }
}

double survey_ratio(const struct survey_form *form)
{
    return form->raw ? (double)form->stored / (double)form->raw : 1;
}

int survey_look(const struct command *command, const char *path, struct target *ret_target,
                cJSON **ret_root)
{
    uint64_t ino;
    int code = target_of_path(command, path, ret_target, &ino);
    if (code != CLI_OK)
        return code;
    cJSON *request = cJSON_CreateObject();
    control_add_u64(request, "ino", ino);
    int r = ask_daemon(command->name, ret_target->store, "look", request, ret_root);
    return r < 0 ? CLI_FAILED : CLI_OK;
}
