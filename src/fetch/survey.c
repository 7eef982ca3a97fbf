// SPDX-License-Identifier: Apache-2.0
/* Lists the parts of files, a portion at a time: nothing is held or remembered between portions, so
 * a survey costs other callers nothing. */
#include "dense/bases.h"
#include "fetch/internal.h"
#include "remote/maintenance.h"
#include "remote/remote.h"
#include "remote/state.h"
#include "view/remote.h"

#define DAMAGED_PORTION 4096

struct survey {
    struct store *store;
    struct view *view; /* the store's, or that of an earlier state */
    const struct survey_request *want;
    uint64_t at;
    size_t left; /* parts that may still be visited */
    bool is_published, more;
};

/* References are counted by extent pages: a part that was listed as one extent counts for each page
 * that it touches. */
static uint32_t uses_of(const struct extent *e)
{
    return (uint32_t)((e->offset + e->length - 1) / VIEW_PAGE_LEN - e->offset / VIEW_PAGE_LEN + 1);
}

static void set_survey_lengths(struct survey_part *part, const struct chunk_entry *entry)
{
    part->raw_len = entry->raw_len;
    part->stored_len = entry->stored_len;
    part->encoding = entry->encoding;
}

static int survey_look_up(const struct survey *survey, struct survey_part *part)
{
    struct store *store = survey->store;
    struct chunk_entry entry;
    bool published;
    int r = view_chunk(survey->view, &part->name, &entry, &part->refs);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    part->is_local = entry.pack != 0 && !damage_is_known(store->commit.damage, &part->name);
    set_survey_lengths(part, &entry);
    if (view_remote_chunk(survey->view, &part->name, &entry, &published) < 0)
        return 0;
    part->is_remote = published;
    part->remote = entry;
    part->is_sound = published && (!store->remote || bases_are_sound(store, &entry));
    if (!part->is_local)
        set_survey_lengths(part, &entry);
    return 0;
}

/* Inline content is published with its inode. */
static bool survey_is_published(struct store *store, uint64_t ino)
{
    uint64_t cut, horizon = horizon_published(store->commit.horizon);
    return horizon > 0 && view_unpublished(store->local.view, ino, &cut) == 0 && cut <= horizon;
}

static int survey_look_at(const struct view_extent *extent, void *arg)
{
    struct survey *survey = arg;
    const struct extent *e = &extent->extent;
    survey->more = survey->left == 0;
    if (survey->more)
        return 1;
    survey->left--;
    survey->at = e->offset + e->length;
    if (e->kind == EXTENT_HOLE)
        return 0;
    struct survey_part part = {.is_chunk = e->kind == EXTENT_CHUNK,
                               .offset = e->offset,
                               .length = e->length,
                               .uses = uses_of(e)};
    int r = 0;
    if (part.is_chunk) {
        part.name = e->chunk;
        r = survey_look_up(survey, &part);
    } else {
        part.is_local = true;
        part.is_remote = part.is_sound = survey->is_published;
    }
    if (r == 0)
        survey->want->fn(&part, survey->want->arg);
    return r;
}

int fetch_survey(struct store *store, const struct survey_request *want, uint64_t *at,
                 bool *ret_more)
{
    const struct fetch_view of = fetch_view_enter(store, want->ino);
    struct survey survey = {
        .store = store, .view = of.view, .want = want, .at = *at, .left = want->max};
    survey.is_published = survey_is_published(store, want->ino);
    int r = of.view ? view_extents(of.view, of.ino, *at, INT64_MAX - *at, survey_look_at, &survey)
                    : -ESTALE;
    fetch_view_leave(store, want->ino, &of);
    *at = survey.at;
    *ret_more = r == 0 && survey.more;
    return r == -ENOENT ? 0 : r;
}

static void add_damaged(const struct survey_part *part, void *arg)
{
    struct fetch_unsafe *unsafe = arg;
    if (part->is_chunk && !part->is_sound)
        *(part->is_local ? &unsafe->pending_bytes : &unsafe->lost_bytes) += part->length;
}

static bool has_all_there(struct store *store)
{
    uint64_t packs, chunks;
    if (!store->remote)
        return true;
    remote_suspects(store->remote, &packs, &chunks);
    return packs == 0 && remote_damaged_chunks(store->remote) == 0;
}

int fetch_remote_damaged(struct store *store, uint64_t ino, struct fetch_unsafe *ret)
{
    const struct survey_request damaged = {
        .ino = ino, .max = DAMAGED_PORTION, .fn = add_damaged, .arg = ret};
    uint64_t pending = 0, at = 0;
    bool more;
    *ret = (struct fetch_unsafe){0};
    if (has_all_there(store))
        return 0;
    int r = remote_needs(store, ino, &pending);
    if (r < 0 || pending)
        return r; /* it has changed since: its present content is on its way */
    do
        r = fetch_survey(store, &damaged, &at, &more);
    while (more);
    if (r == 0 && ret->lost_bytes + ret->pending_bytes > 0)
        r = remote_needs(store, ino, &pending);
    if (pending) /* it changed meanwhile, and newer bytes were counted */
        *ret = (struct fetch_unsafe){0};
    return r;
}

int fetch_find_users(struct store *store, const struct view_users *want, uint64_t *at,
                     bool *ret_more)
{
    return view_find_users(store->local.view, want, at, ret_more);
}
