// SPDX-License-Identifier: Apache-2.0
/* Chunks that do not verify. What is damaged everywhere is named to people, by the file that was
 * read; what another tier gave is only not relied on, until it is stored anew. */
#include "base/cause.h"
#include "base/hex.h"
#include "base/log.h"
#include "commit/internal.h"

void damage_init(struct store *store)
{
    mutex_init(&store->commit->damage.lock, LOCK_LEAF);
}

void damage_done(struct store *store)
{
    for (unsigned i = 0; i < store->commit->damage.known_count; i++) {
        free(store->commit->damage.known[i].path);
        free(store->commit->damage.known[i].what);
    }
    mutex_done(&store->commit->damage.lock);
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

void damage_note(struct store *store, uint64_t ino, const struct chunk_name *name, int error)
{
    _cleanup_free_ char *path = ns_path(store->ns, ino);
    char hex[17];
    hex_print(hex, name->bytes, 8);
    const char *how = error == -ENOLINK && *cause_text() ? cause_text() : damage_describe(error);
    _cleanup_free_ char *what = xasprintf("chunk %s: %s", hex, how);
    bool known = false;
    mutex_lock(&store->commit->damage.lock);
    for (unsigned i = 0; i < store->commit->damage.known_count; i++)
        known = known || (strcmp(store->commit->damage.known[i].path, path) == 0 &&
                          strcmp(store->commit->damage.known[i].what, what) == 0);
    if (!known && store->commit->damage.known_count < DAMAGE_MAX)
        store->commit->damage.known[store->commit->damage.known_count++] =
            (struct damage){xstrdup(path), xstrdup(what), *name};
    mutex_unlock(&store->commit->damage.lock);
    cause_note("%s; 'cairn scrub' heals what another tier has, else restore the file", what);
    if (!known)
        log_error("%s: %s; these bytes read as EIO", path, what);
}

/* A chunk known to be damaged is stored anew by a thread that has it; it is not relied on until
 * then. */
void damage_note_local(struct store *store, const struct chunk_name *name)
{
    LOCK_SCOPE(&store->commit->damage.lock);
    for (unsigned i = 0; i < store->commit->damage.local_count; i++)
        if (chunk_name_equal(&store->commit->damage.local[i], name))
            return;
    if (store->commit->damage.local_count < DAMAGE_LOCAL_MAX)
        store->commit->damage.local[store->commit->damage.local_count++] = *name;
}

void damage_cured(struct store *store, const struct chunk_name *name)
{
    LOCK_SCOPE(&store->commit->damage.lock);
    for (unsigned i = 0; i < store->commit->damage.local_count; i++) {
        if (!chunk_name_equal(&store->commit->damage.local[i], name))
            continue;
        store->commit->damage.local[i] =
            store->commit->damage.local[--store->commit->damage.local_count];
        atomic_fetch_add(&store->commit->healed_total, 1);
        return;
    }
}

bool damage_is_known(struct store *store, const struct chunk_name *name)
{
    LOCK_SCOPE(&store->commit->damage.lock);
    for (unsigned i = 0; i < store->commit->damage.local_count; i++)
        if (chunk_name_equal(&store->commit->damage.local[i], name))
            return true;
    for (unsigned i = 0; i < store->commit->damage.known_count; i++)
        if (chunk_name_equal(&store->commit->damage.known[i].chunk, name))
            return true;
    return false;
}

void damage_list(struct store *store, void (*fn)(const char *path, const char *what, void *arg),
                 void *arg)
{
    LOCK_SCOPE(&store->commit->damage.lock);
    for (unsigned i = 0; i < store->commit->damage.known_count; i++)
        fn(store->commit->damage.known[i].path, store->commit->damage.known[i].what, arg);
}

void damage_forget(struct store *store, const struct chunk_name *name)
{
    LOCK_SCOPE(&store->commit->damage.lock);
    for (unsigned i = 0; i < store->commit->damage.known_count;) {
        struct damage *damage = &store->commit->damage.known[i];
        if (!chunk_name_equal(&damage->chunk, name)) {
            i++;
            continue;
        }
        free(damage->path);
        free(damage->what);
        *damage = store->commit->damage.known[--store->commit->damage.known_count];
    }
}
