// SPDX-License-Identifier: Apache-2.0
/* Chunks that do not verify. A chunk damaged in every tier is reported to people, with the file
 * that was read. A chunk that another tier supplied is only not relied on, until it is stored
 * again. */
#include "base/cause.h"
#include "base/hex.h"
#include "base/log.h"
#include "commit/commit.h"
#include "commit/local.h"
#include "commit/read_internal.h"
#include "overlay/ns.h"

struct damage *damage_new(const struct local *local)
{
    struct damage *damage = xcalloc(1, sizeof *damage);
    damage->local = local;
    mutex_init(&damage->lock, LOCK_LEAF);
    return damage;
}

void damage_free(struct damage *damage)
{
    for (unsigned i = 0; i < damage->known_count; i++) {
        free(damage->known[i].path);
        free(damage->known[i].what);
    }
    mutex_done(&damage->lock);
    free(damage);
}

const char *damage_describe(int error)
{
    switch (error) {
    case -EBADMSG:
    case -EUCLEAN:
        return "damaged";
    case -ENODATA:
        return "its pack is missing";
    case -ENOLINK:
        return "a chunk that it refers to cannot be read";
    case -ENOTCONN:
        return "it lies in the remote only, and this mount has none: mount with --remote";
    default:
        return strerror(-error);
    }
}

void damage_note(struct damage *damage, uint64_t ino, const struct chunk_name *name, int error)
{
    _cleanup_free_ char *path = ns_path(damage->local->ns, ino);
    char hex[17];
    hex_print(hex, name->bytes, 8);
    const char *how = error == -ENOLINK && *cause_text() ? cause_text() : damage_describe(error);
    _cleanup_free_ char *what = xasprintf("chunk %s: %s", hex, how);
    bool known = false;
    mutex_lock(&damage->lock);
    for (unsigned i = 0; i < damage->known_count; i++)
        known = known || (strcmp(damage->known[i].path, path) == 0 &&
                          strcmp(damage->known[i].what, what) == 0);
    if (!known && damage->known_count < DAMAGE_MAX) {
        damage->known[damage->known_count].path = xstrdup(path);
        damage->known[damage->known_count].what = xstrdup(what);
        damage->known[damage->known_count++].chunk = *name;
    }
    mutex_unlock(&damage->lock);
    cause_note("%s; 'cairn scrub' heals what another tier has, else restore the file", what);
    if (!known)
        log_error("%s: %s; these bytes read as EIO", path, what);
}

/* A thread that has the content stores the chunk again; until then nothing relies on the damaged
 * copy. */
void damage_note_local(struct damage *damage, const struct chunk_name *name)
{
    LOCK_SCOPE(&damage->lock);
    for (unsigned i = 0; i < damage->on_nvme_count; i++)
        if (chunk_name_equal(&damage->on_nvme[i], name))
            return;
    if (damage->on_nvme_count < DAMAGE_LOCAL_MAX)
        damage->on_nvme[damage->on_nvme_count++] = *name;
}

void damage_cured(struct damage *damage, const struct chunk_name *name)
{
    LOCK_SCOPE(&damage->lock);
    for (unsigned i = 0; i < damage->on_nvme_count; i++) {
        if (!chunk_name_equal(&damage->on_nvme[i], name))
            continue;
        damage->on_nvme[i] = damage->on_nvme[--damage->on_nvme_count];
        atomic_fetch_add(&damage->healed_total, 1);
        return;
    }
}

bool damage_is_known(struct damage *damage, const struct chunk_name *name)
{
    LOCK_SCOPE(&damage->lock);
    for (unsigned i = 0; i < damage->on_nvme_count; i++)
        if (chunk_name_equal(&damage->on_nvme[i], name))
            return true;
    for (unsigned i = 0; i < damage->known_count; i++)
        if (chunk_name_equal(&damage->known[i].chunk, name))
            return true;
    return false;
}

void damage_list(struct damage *damage, void (*fn)(const char *path, const char *what, void *arg),
                 void *arg)
{
    LOCK_SCOPE(&damage->lock);
    for (unsigned i = 0; i < damage->known_count; i++)
        fn(damage->known[i].path, damage->known[i].what, arg);
}

void damage_forget(struct damage *damage, const struct chunk_name *name)
{
    LOCK_SCOPE(&damage->lock);
    for (unsigned i = 0; i < damage->known_count;) {
        if (!chunk_name_equal(&damage->known[i].chunk, name)) {
            i++;
            continue;
        }
        free(damage->known[i].path);
        free(damage->known[i].what);
        damage->known[i] = damage->known[--damage->known_count];
    }
}
