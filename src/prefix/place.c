// SPDX-License-Identifier: Apache-2.0
/* A path does not prove which prefix is there: while its filesystem is not mounted, it leads to an
 * empty directory of another filesystem. A prefix is identified by its marker, the object `cairn`
 * (prefix.c); if there is no marker, STORE/remote.place says on which filesystem the prefix was. */
#include "prefix/prefix.h"

#include "base/crc.h"
#include "base/io.h"
#include "base/log.h"

#define PLACE_MAX 8192
#define CHECKSUM_WORD "crc32 "

static char *place_path(const struct prefix *prefix)
{
    return xasprintf("%s/remote.place", prefix->local->path);
}

static bool look_at_place(struct prefix *prefix, struct tier_place *ret)
{
    return prefix->tier->ops->place && prefix->tier->ops->place(prefix->tier, ret) == 0;
}

/* STORE/remote.place: three lines, the address of the remote, the text that is compared, the text
 * that is shown; and their checksum, which version 1 lacks. */
struct known_place {
    char *text, *name, *identity, *shown;
    bool is_damaged; /* the file exists, but cannot be trusted */
};

static char *make_place_text(const char *name, const struct tier_place *place)
{
    _cleanup_free_ char *lines = xasprintf("%s\n%s\n%s\n", name, place->identity, place->shown);
    return xasprintf("%s" CHECKSUM_WORD "%08x\n", lines, crc32_of(0, lines, strlen(lines)));
}

/* `rest`: the bytes behind the three lines, which are `len` bytes with their ends. */
static bool is_verified(const char *lines, size_t len, const char *rest)
{
    _cleanup_free_ char *wanted = xasprintf(CHECKSUM_WORD "%08x\n", crc32_of(0, lines, len));
    return *rest == '\0' || strcmp(rest, wanted) == 0;
}

static void read_known(const struct prefix *prefix, struct known_place *ret)
{
    _cleanup_free_ char *path = place_path(prefix);
    size_t len = 0;
    *ret = (struct known_place){0};
    int r = io_read_file(path, PLACE_MAX, &ret->text, &len);
    ret->is_damaged = r < 0 && r != -ENOENT;
    if (r < 0)
        return;
    const char *end = ret->text;
    for (int i = 0; i < 3 && end; i++)
        end = (end = strchr(end, '\n')) ? end + 1 : NULL;
    ret->is_damaged =
        strlen(ret->text) != len || !end || !is_verified(ret->text, (size_t)(end - ret->text), end);
    char *rest = ret->text;
    ret->name = strsep(&rest, "\n");
    ret->identity = strsep(&rest, "\n");
    ret->shown = strsep(&rest, "\n");
}

static char *explain_damage(const struct prefix *prefix)
{
    return xasprintf("%s is empty, and %s/remote.place, which says on which filesystem this store "
                     "published before, is damaged: see that the right "
                     "one is mounted there; then begin anew, with --takeover",
                     prefix->name, prefix->local->path);
}

int place_check(struct prefix *prefix, char **ret_text)
{
    struct known_place known;
    struct tier_place now;
    read_known(prefix, &known);
    bool knows = !known.is_damaged && known.name && strcmp(known.name, prefix->name) == 0;
    bool is_elsewhere =
        knows && look_at_place(prefix, &now) && strcmp(known.identity, now.identity) != 0;
    if (known.is_damaged && !prefix->options->takeover && look_at_place(prefix, &now))
        *ret_text = explain_damage(prefix);
    if (is_elsewhere && !prefix->options->takeover) {
        *ret_text = xasprintf("%s is empty, and not on the filesystem where this store published "
                              "before (%s), but on another (%s): "
                              "mount that one first; or begin anew here, with --takeover",
                              prefix->name, known.shown, now.shown);
    }
    free(known.text);
    return *ret_text ? -EBUSY : 0;
}

/* A store without a known place cannot check the place: it logs where the prefix is. */
void place_report_new(struct prefix *prefix)
{
    struct tier_place now;
    if (!look_at_place(prefix, &now))
        return;
    if (now.is_of_root)
        log_warn("remote: %s is empty: a new remote begins there, on the filesystem of / (%s); if "
                 "another is to be mounted there, "
                 "unmount, mount that, and remove what began here",
                 prefix->name, now.shown);
    else
        log_info("remote: %s is empty: a new remote begins there (%s)", prefix->name, now.shown);
}

int place_remember(struct prefix *prefix)
{
    _cleanup_free_ char *path = place_path(prefix);
    _cleanup_free_ char *known = NULL;
    struct tier_place now;
    if (!look_at_place(prefix, &now))
        return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
    _cleanup_free_ char *text = make_place_text(prefix->name, &now);
    if (io_read_file(path, PLACE_MAX, &known, NULL) == 0 && strcmp(known, text) == 0)
        return 0;
    return io_write_file_durable(path, text, strlen(text));
}
