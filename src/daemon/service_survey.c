// SPDX-License-Identifier: Apache-2.0
/* The chunks of files and trees, for the control socket. The client walks the tree and keeps the
 * list of items to do: a request returns a portion that is limited in rows and time, and the daemon
 * keeps no state. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/hex.h"
#include "daemon/control.h"
#include "daemon/service_internal.h"
#include "fs/past.h"
#include "store/lookback.h"
#include "store/reader.h"

#define ROWS_MAX 4096
#define VIEW_WAIT_NS (3ll * 1000000000)
#define PORTION_NS (100ll * 1000000)
#define DIFFER_NS (1000ll * 1000000)

static const char *type_word(mode_t mode)
{
    return S_ISREG(mode)   ? "file"
           : S_ISDIR(mode) ? "directory"
           : S_ISLNK(mode) ? "link"
                           : "special";
}

cJSON *handle_look(struct service *service, const cJSON *request)
{
    uint64_t ino;
    struct stat st;
    struct ns_inode inode;
    struct stage_file_state staged = {0};
    char level[16] = "";
    if (!control_get_u64(request, "ino", &ino))
        return control_error(EINVAL, "look: ino is missing");
    /* A client that waited for the horizon must find its data in the view. */
    store_await_view(service->store, clock_monotonic_ns() + VIEW_WAIT_NS);
    int r = fs_getattr(service->fs, ino, &st);
    if (r == 0)
        r = ns_inode(store_ns(service->store), ino, &inode);
    if (r < 0)
        return control_error(-r, strerror(-r));
    (void)stage_file_state(store_stage(service->store), ino, &staged);
    ssize_t len = fs_getxattr(service->fs, ino, "user.cairn.level", level, sizeof level - 1);
    _cleanup_free_ char *path = ns_path(store_ns(service->store), ino);
    cJSON *reply = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(reply, "path", path);
    (void)cJSON_AddStringToObject(reply, "type", type_word(st.st_mode));
    control_add_u64(reply, "ino", ino);
    control_add_u64(reply, "size_bytes", (uint64_t)st.st_size);
    control_add_u64(reply, "links", st.st_nlink);
    control_add_u64(reply, "version", inode.version);
    (void)cJSON_AddNumberToObject(reply, "created_s", (double)inode.attrs.btime / 1e9);
    control_add_u64(reply, "staged_bytes", staged.dirty_bytes);
    (void)cJSON_AddBoolToObject(reply, "being_written", staged.has_draft);
    (void)cJSON_AddBoolToObject(reply, "newer_version_staged", staged.has_sealed);
    (void)cJSON_AddStringToObject(reply, "level", len > 0 ? level : "stage");
    if (ino == ROOT_INO)
        control_add_u64(reply, "history_bytes", store_history_bytes(service->store));
    return reply;
}

/* --- a portion -------------------------------------------------------------------------------- */

struct portion {
    struct service *service;
    cJSON *found, *chunks;
    unsigned rows;
    uint64_t inline_bytes, inline_remote_bytes;
    uint64_t offset; /* in the directory, where the next portion begins */
};

static void add_row(struct portion *p, cJSON *rows, const char *text)
{
    (void)cJSON_AddItemToArray(rows, cJSON_CreateString(text));
    p->rows++;
}

/* Prints the chunk's entry in the published remote: stored bytes there, encoding, and the chunks
 * that it refers to. */
static void print_remote(const struct chunk_entry *entry, char *text)
{
    text += sprintf(text, ":%" PRIu32 ":%u", entry->stored_len, entry->encoding);
    for (size_t i = 0; i < entry->ref_count; i++, text += 32) {
        *text++ = ':';
        hex_print(text, entry->refs[i].name.bytes, 16);
    }
}

static void add_part(const struct survey_part *part, void *arg)
{
    struct portion *p = arg;
    char text[384];
    if (!part->is_chunk) {
        p->inline_bytes += part->length;
        p->inline_remote_bytes += part->is_remote ? part->length : 0;
        return;
    }
    hex_print(text, part->name.bytes, 16);
    (void)snprintf(text + 32, sizeof text - 32,
                   ":%" PRIu64 ":%" PRIu32 ":%" PRIu64 ":%" PRIu32 ":%" PRIu32 ":%d:%u", part->refs,
                   part->uses, part->length, part->raw_len, part->stored_len,
                   (part->is_local ? 1 : 0) | (part->is_remote ? 2 : 0), part->encoding);
    if (part->is_remote)
        print_remote(&part->remote, text + strlen(text));
    add_row(p, p->chunks, text);
}

struct listed {
    uint64_t ino, offset;
};

struct listing {
    struct listed *entries;
    unsigned count, max;
};

static int add_entry(const struct fs_entry *entry, void *arg)
{
    struct listing *listing = arg;
    if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
        return 0;
    if (listing->count == listing->max)
        return 1;
    listing->entries[listing->count++] = (struct listed){entry->ino, entry->offset};
    return 0;
}

static void add_inode(struct portion *p, uint64_t ino)
{
    struct stat st;
    struct stage_file_state staged = {0};
    char text[128];
    if (fs_getattr(p->service->fs, ino, &st) < 0)
        return; /* it was removed meanwhile */
    if (S_ISREG(st.st_mode))
        (void)stage_file_state(store_stage(p->service->store), ino, &staged);
    char kind = S_ISREG(st.st_mode) ? 'f' : S_ISDIR(st.st_mode) ? 'd' : 'o';
    (void)snprintf(text, sizeof text, "%c%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%" PRIu64, kind, ino,
                   (uint64_t)st.st_size, (uint64_t)st.st_nlink, staged.dirty_bytes);
    add_row(p, p->found, text);
}

/* *ret_more: the directory continues at the new *at. */
static int survey_directory(struct portion *p, uint64_t ino, uint64_t *at, bool *ret_more)
{
    struct listing listing = {.max = ROWS_MAX - p->rows};
    listing.entries = xcalloc(listing.max, sizeof *listing.entries);
    const struct fs_listing list = {.dir = ino,
                                    .after = *at,
                                    .until = UINT64_MAX,
                                    .expected = listing.max,
                                    .fn = add_entry,
                                    .arg = &listing};
    int r = fs_readdir(p->service->fs, &list);
    for (unsigned i = 0; r == 0 && i < listing.count; i++)
        add_inode(p, listing.entries[i].ino);
    *ret_more = r == 0 && listing.count == listing.max;
    if (*ret_more)
        *at = listing.entries[listing.count - 1].offset;
    free(listing.entries);
    return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

static int survey_file(struct portion *p, uint64_t ino, uint64_t *at, bool *ret_more)
{
    const struct survey_request want = {
        .ino = ino, .max = ROWS_MAX - p->rows, .fn = add_part, .arg = p};
    return fetch_survey(p->service->store, &want, at, ret_more);
}

/* Parses digits up to `end`; returns the text behind it, or NULL. */
static const char *parse_digits(const char *text, char end, uint64_t *ret)
{
    size_t len = strspn(text, "0123456789");
    if (len == 0 || len > 19 || text[len] != end)
        return NULL;
    *ret = strtoull(text, NULL, 10);
    return text + len + (end ? 1 : 0);
}

static bool parse_item(const char *item, char *kind, uint64_t *ino, uint64_t *at)
{
    *kind = *item;
    const char *rest = *item == 'd' || *item == 'f' ? parse_digits(item + 1, ':', ino) : NULL;
    return rest && parse_digits(rest, '\0', at) && *at <= INT64_MAX;
}

/* Does one item: "dINO:OFFSET", a directory, or "fINO:OFFSET", a file. ret_rest: the item that
 * continues it; empty: none. */
static int survey_item(struct portion *p, const char *item, char ret_rest[64])
{
    uint64_t ino, at;
    char kind;
    bool more;
    *ret_rest = '\0';
    if (!parse_item(item, &kind, &ino, &at))
        return -EINVAL;
    TRY(kind == 'd' ? survey_directory(p, ino, &at, &more) : survey_file(p, ino, &at, &more));
    if (more)
        (void)snprintf(ret_rest, 64, "%c%" PRIu64 ":%" PRIu64, kind, ino, at);
    return 0;
}

cJSON *handle_survey(struct service *service, const cJSON *request)
{
    int64_t until = clock_monotonic_ns() + PORTION_NS;
    struct portion p = {.service = service};
    cJSON *reply = cJSON_CreateObject();
    p.found = cJSON_AddArrayToObject(reply, "found");
    p.chunks = cJSON_AddArrayToObject(reply, "chunks");
    char rest[64] = "";
    unsigned done = 0;
    int r = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, json_part(request, "todo"))
    {
        if (p.rows >= ROWS_MAX || (done > 0 && clock_monotonic_ns() >= until))
            break;
        r = cJSON_IsString(item) ? survey_item(&p, item->valuestring, rest) : -EINVAL;
        if (r < 0)
            break;
        done++;
        if (*rest)
            break;
    }
    if (r < 0) {
        cJSON_Delete(reply);
        return control_error(-r, r == -EINVAL ? "survey: invalid request" : strerror(-r));
    }
    control_add_u64(reply, "done", done);
    if (*rest)
        (void)cJSON_AddStringToObject(reply, "rest", rest);
    control_add_u64(reply, "inline_bytes", p.inline_bytes);
    control_add_u64(reply, "inline_remote_bytes", p.inline_remote_bytes);
    return reply;
}

/* --- uses of a chunk -------------------------------------------------------------------------- */

#define USERS_CHUNKS_MAX 256u
#define USERS_MAX 16u     /* files that a request reports for each chunk */
#define USERS_PAGES 1024u /* of extents that a request reads: of 16 GiB or of 1,024 files */

struct users {
    struct service *service;
    cJSON *rows;
    uint64_t ino; /* of the last row */
    char *path;
    uint64_t last[USERS_CHUNKS_MAX]; /* the file that was reported last for each chunk */
    unsigned reported[USERS_CHUNKS_MAX];
};

/* {"verb":"users","at":"INO","chunks":[...]}: 32 digits of each name, ascending. */
static int parse_chunks(const cJSON *request, struct chunk_prefix *ret, size_t *ret_count)
{
    const cJSON *item;
    size_t count = 0;
    cJSON_ArrayForEach(item, json_part(request, "chunks"))
    {
        const char *text = cJSON_GetStringValue(item);
        if (count == USERS_CHUNKS_MAX || !text || strlen(text) != 32 ||
            !hex_read(ret[count].bytes, text, sizeof ret[count].bytes) ||
            (count > 0 && memcmp(&ret[count - 1], &ret[count], sizeof *ret) >= 0))
            return -EINVAL;
        count++;
    }
    *ret_count = count;
    return 0;
}

static void add_user(uint64_t ino, size_t chunk, void *arg)
{
    struct users *users = arg;
    if (users->last[chunk] == ino || users->reported[chunk] == USERS_MAX)
        return;
    users->last[chunk] = ino;
    users->reported[chunk]++;
    if (users->ino != ino) {
        free(users->path);
        users->path = ns_path(store_ns(users->service->store), ino);
        users->ino = ino;
    }
    cJSON *row = cJSON_CreateObject();
    control_add_u64(row, "chunk", chunk);
    control_add_u64(row, "ino", ino);
    (void)cJSON_AddStringToObject(row, "path", users->path);
    (void)cJSON_AddItemToArray(users->rows, row);
}

cJSON *handle_users(struct service *service, const cJSON *request)
{
    struct chunk_prefix chunks[USERS_CHUNKS_MAX];
    size_t count;
    uint64_t at;
    if (!control_get_u64(request, "at", &at) || parse_chunks(request, chunks, &count) < 0)
        return control_error(EINVAL, "users: invalid request");
    cJSON *reply = cJSON_CreateObject();
    struct users users = {.service = service, .rows = cJSON_AddArrayToObject(reply, "users")};
    const struct view_users want = {
        .chunks = chunks, .count = count, .max = USERS_PAGES, .fn = add_user, .arg = &users};
    bool more;
    int r = fetch_find_users(service->store, &want, &at, &more);
    free(users.path);
    if (r < 0) {
        cJSON_Delete(reply);
        return control_error(-r, strerror(-r));
    }
    if (more)
        control_add_u64(reply, "at", at);
    return reply;
}

/* --- the content of one file, and the differences of two --- */

/* Adds the data by which a client that knows the file can tell that it is the same, and unchanged.
 * -ESTALE for states of a union: they belong to another store, which closes while the socket still
 * answers. */
static int add_file(struct service *service, uint64_t ino, const char *name, cJSON *reply)
{
    struct stat st;
    char text[64];
    if (fs_is_past(ino) && !store_lookback(service->store))
        return -ESTALE;
    TRY(fs_is_past(ino) ? fs_past_getattr(service->fs, ino, true, &st)
                        : fs_getattr(service->fs, ino, &st));
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    (void)snprintf(text, sizeof text, "%" PRId64 ":%" PRId64, (int64_t)st.st_size,
                   (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
    (void)cJSON_AddStringToObject(reply, name, text);
    return 0;
}

static cJSON *reply_or_error(cJSON *reply, int r)
{
    if (r >= 0)
        return reply;
    cJSON_Delete(reply);
    return control_error(-r, strerror(-r));
}

static void add_extent(const struct survey_part *part, void *extents)
{
    char text[128];
    uint64_t raw = part->is_chunk ? part->raw_len : part->length;
    uint64_t stored = part->is_chunk ? part->stored_len : part->length;
    (void)snprintf(text, sizeof text, "%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%" PRIu64, part->offset,
                   part->length, raw, stored);
    (void)cJSON_AddItemToArray(extents, cJSON_CreateString(text));
}

cJSON *handle_extents(struct service *service, const cJSON *request)
{
    uint64_t at = 0, version;
    bool more = false;
    struct survey_request want = {.max = ROWS_MAX, .fn = add_extent};
    if (!control_get_u64(request, "ino", &want.ino) || !control_get_u64(request, "at", &at) ||
        at > INT64_MAX)
        return control_error(EINVAL, "extents: invalid request");
    store_await_view(service->store, clock_monotonic_ns() + VIEW_WAIT_NS);
    cJSON *reply = cJSON_CreateObject();
    want.arg = cJSON_AddArrayToObject(reply, "extents");
    int r = add_file(service, want.ino, "file", reply);
    if (r == 0)
        r = fetch_survey(service->store, &want, &at, &more);
    if (r == 0 && !fs_is_past(want.ino))
        r = store_version_in_view(service->store, want.ino, &version);
    if (more)
        control_add_u64(reply, "at", at);
    return reply_or_error(reply, r);
}

struct ranges {
    struct reader_range at[ROWS_MAX];
    unsigned count;
};

/* The last range includes all differences for which there is no room. */
static int add_range(const struct reader_range *range, void *arg)
{
    struct ranges *ranges = arg;
    struct reader_range *last = &ranges->at[ROWS_MAX - 1];
    if (ranges->count < ROWS_MAX)
        ranges->at[ranges->count++] = *range;
    else
        last->length = range->offset + range->length - last->offset;
    return 0;
}

cJSON *handle_differ(struct service *service, const cJSON *request)
{
    _cleanup_free_ struct ranges *ranges = xcalloc(1, sizeof *ranges);
    struct store_differ want = {.fn = add_range, .arg = ranges};
    if (!control_get_u64(request, "ino", &want.inos[0]) ||
        !control_get_u64(request, "other", &want.inos[1]))
        return control_error(EINVAL, "differ: ino or other is missing");
    store_await_view(service->store, clock_monotonic_ns() + VIEW_WAIT_NS);
    cJSON *reply = cJSON_CreateObject(), *rows = cJSON_AddArrayToObject(reply, "ranges");
    want.until = clock_monotonic_ns() + DIFFER_NS;
    int r = store_differ(service->store, &want);
    if (r == 0)
        r = add_file(service, want.inos[0], "file", reply);
    if (r == 0)
        r = add_file(service, want.inos[1], "other", reply);
    for (unsigned i = 0; r == 0 && i < ranges->count; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "%" PRIu64 ":%" PRIu64, ranges->at[i].offset,
                       ranges->at[i].length);
        (void)cJSON_AddItemToArray(rows, cJSON_CreateString(text));
    }
    return reply_or_error(reply, r);
}
