/* A path is no proof of what lies there: where its filesystem is not mounted, it leads to a bare folder of another. The marker of a
 * prefix is its object `cairn` (heads.c); this is for when there is none: STORE/remote.place says on which filesystem it was. */
#include "persist/remote.h"

#include "base/io.h"
#include "base/log.h"

#define PLACE_MAX 8192

static char *place_path(const struct store *store)
{
    return xasprintf("%s/remote.place", store->path);
}

static bool look(struct remote *remote, struct tier_place *ret)
{
    return remote->tier->ops->place && remote->tier->ops->place(remote->tier, ret) == 0;
}

/* STORE/remote.place: three lines, the address of the remote, what is to be compared, what is shown. */
struct known_place {
    char *text, *name, *identity, *shown;
};

static bool read_known(const struct store *store, struct known_place *ret)
{
    _cleanup_free_ char *path = place_path(store);
    *ret = (struct known_place){0};
    if (io_read_file(path, PLACE_MAX, &ret->text, NULL) < 0)
        return false;
    char *rest = ret->text;
    ret->name = strsep(&rest, "\n");
    ret->identity = strsep(&rest, "\n");
    ret->shown = strsep(&rest, "\n");
    return ret->shown != NULL;
}

int place_check(struct remote *remote, char **ret_text)
{
    struct known_place known;
    struct tier_place now;
    bool knows = read_known(remote->store, &known) && strcmp(known.name, remote->name) == 0;
    bool is_elsewhere = knows && look(remote, &now) && strcmp(known.identity, now.identity) != 0;
    if (is_elsewhere && !remote->options.takeover) {
        *ret_text = xasprintf("%s is empty, and not on the filesystem where this store published before (%s), but on another (%s): "
                              "mount that one first; or begin anew here, with --takeover",
                              remote->name, known.shown, now.shown);
        remote->tier->ops->look_again(remote->tier); /* it may be mounted yet */
    }
    free(known.text);
    return *ret_text ? -EBUSY : 0;
}

/* For a store that knows nothing better nobody can tell: it is said. */
void place_tell_new(struct remote *remote)
{
    struct tier_place now;
    if (!look(remote, &now))
        return;
    if (now.is_of_root)
        log_warn("remote: %s is empty: a new remote begins there, on the filesystem of / (%s); if another is to be mounted there, "
                 "unmount, mount that, and remove what began here",
                 remote->name, now.shown);
    else
        log_info("remote: %s is empty: a new remote begins there (%s)", remote->name, now.shown);
}

int place_remember(struct remote *remote)
{
    _cleanup_free_ char *path = place_path(remote->store);
    _cleanup_free_ char *known = NULL;
    struct tier_place now;
    if (!look(remote, &now))
        return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
    _cleanup_free_ char *text = xasprintf("%s\n%s\n%s\n", remote->name, now.identity, now.shown);
    if (io_read_file(path, PLACE_MAX, &known, NULL) == 0 && strcmp(known, text) == 0)
        return 0;
    return io_write_file_durable(path, text, strlen(text));
}
