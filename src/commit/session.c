// SPDX-License-Identifier: Apache-2.0
/* The session: which stage belongs to the store now, and whether an existing stage is this store's.
 *
 * STORE/session records the control file of the stage, by a random name that is also in the stage's
 * header, and the boot in which it was created. A copy of the store records the same name. So the
 * stage also records its owner: its daemon holds its lock, and it contains the path of its store. A
 * stage of another store that still exists is never touched. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "commit/history.h"
#include "commit/horizon.h"
#include "commit/journal_internal.h"
#include "commit/session_internal.h"

#define SESSION_LEN_MAX 8192u
#define READER_LINE "reader\n"
#define BOOT_WORD "boot "
#define CREATE_TRIES 5
#define LOST_URGE_NS (3ll * 1000000000)

/* --- STORE/session ---------------------------------------------------------------------------- */

static char *session_path(const char *store)
{
    return xasprintf("%s/session", store);
}

void session_done(struct session *session)
{
    free(session->dir);
    session->dir = NULL;
}

static bool has_line(const char *text, const char *line)
{
    for (const char *at = text; (at = strchr(at, '\n'));)
        if (strncmp(++at, line, strlen(line)) == 0)
            return true;
    return false;
}

static void parse_boot(const char *text, struct session *ret)
{
    char boot[40];
    const char *at = strstr(text, "\n" BOOT_WORD);
    if (!at || stage_boot_id(boot) < 0)
        return; /* the stage reports this, too */
    at += 1 + strlen(BOOT_WORD);
    ret->names_boot = true;
    ret->is_of_other_boot = strncmp(at, boot, strlen(boot)) != 0 || at[strlen(boot)] != '\n';
}

/* A session of an older version records only the directory: the name of the stage is the store's
 * id. */
static void parse_session(const char *text, const uint8_t store_id[16], struct session *ret)
{
    _cleanup_free_ char *line = xasprintf("%.*s", (int)strcspn(text, "\n"), text);
    *ret = (struct session){.exists = true, .is_reader = has_line(text, READER_LINE)};
    parse_boot(text, ret);
    if (stage_parse_path(line, &ret->dir, ret->name) == 0)
        return;
    ret->dir = xstrdup(line);
    memcpy(ret->name, store_id, sizeof ret->name);
}

int session_read(const char *store, const uint8_t store_id[16], struct session *ret)
{
    _cleanup_free_ char *path = session_path(store);
    _cleanup_free_ char *text = NULL;
    *ret = (struct session){0};
    int r = io_read_file(path, SESSION_LEN_MAX, &text, NULL);
    if (r == 0)
        parse_session(text, store_id, ret);
    return r == -ENOENT ? 0 : r;
}

int session_write(struct own_stage *own, bool is_reader)
{
    char boot[40];
    TRY(stage_boot_id(boot));
    _cleanup_free_ char *path = session_path(own->local->path);
    _cleanup_free_ char *ctl = stage_ctl_path(own->dir, own->name);
    _cleanup_free_ char *text =
        xasprintf("%s\n" BOOT_WORD "%s\n%s", ctl, boot, is_reader ? READER_LINE : "");
    TRY(io_write_file_durable(path, text, strlen(text)));
    stage_note_named(own->local->stage);
    return 0;
}

int session_end(const char *store)
{
    _cleanup_free_ char *path = session_path(store);
    return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

/* May its stage have the only copy of data? */
static bool may_have_data(const struct session *session)
{
    return session->exists && !session->is_reader && !session->is_of_other_boot;
}

bool session_left_stage(const char *store, const uint8_t store_id[16])
{
    _cleanup_(session_done) struct session session;
    _cleanup_(stage_look_done) struct stage_look look = {0};
    if (session_read(store, store_id, &session) < 0)
        return true;
    return may_have_data(&session) && stage_look(session.dir, session.name, &look) != -ENOENT;
}

/* --- the owner of a stage --------------------------------------------------------------------- */

static bool is_same_directory(const char *a, const char *b)
{
    struct stat sa, sb;
    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}

enum directory { SAME, ANOTHER, UNKNOWN };

/* Is the store's directory the one recorded in the stage? Compares inodes, so it may have been
 * moved. */
static enum directory compare_directory(const char *store, const struct stage_look *look)
{
    uint64_t device, ino;
    stage_directory_identity(store, &device, &ino);
    if (look->owner_ino == 0 || ino == 0)
        return UNKNOWN;
    if (ino != look->owner_ino)
        return ANOTHER;
    return device == look->owner_device
               ? SAME
               : UNKNOWN; /* a disk mounted again may have another device number */
}

static bool is_at_its_path(const char *store, const struct stage_look *look)
{
    return strcmp(look->owner, store) == 0 || is_same_directory(look->owner, store);
}

/* Another directory is now at the path of the stage's owner, which may have been moved: a copy of
 * it, with the same session. */
static bool is_in_its_place(const char *store, const struct stage_look *look)
{
    return look->owner && *look->owner && compare_directory(store, look) == ANOTHER &&
           is_at_its_path(store, look);
}

/* Also true if the stage records no owner. */
static bool is_ours(const char *store, const struct stage_look *look)
{
    if (!look->owner || !*look->owner)
        return true;
    enum directory directory = compare_directory(store, look);
    return directory == SAME || (directory == UNKNOWN && is_at_its_path(store, look));
}

/* Returns whether the stage's owner still exists, with this session, in another directory than
 * ours. An owner that was moved elsewhere counts as gone. */
static bool is_others(const char *store, const uint8_t store_id[16], const struct session *session,
                      const struct stage_look *look)
{
    _cleanup_(session_done) struct session there = {0};
    if (is_ours(store, look))
        return false;
    if (is_in_its_place(store, look))
        return true;
    return session_read(look->owner, store_id, &there) == 0 && there.exists &&
           strcmp(there.dir, session->dir) == 0 &&
           memcmp(there.name, session->name, sizeof there.name) == 0;
}

/* As is_others(), for a stage that a daemon may have locked: perhaps one of this store's that is
 * about to die, or one that sweeps stale stages. */
static bool is_of_others(const char *store, const uint8_t store_id[16],
                         const struct session *session, const struct stage_look *look)
{
    return look->in_use ? !is_ours(store, look) : is_others(store, store_id, session, look);
}

char *session_staged(const char *store, const uint8_t store_id[16], uint64_t *ret_bytes)
{
    _cleanup_(session_done) struct session session;
    _cleanup_(stage_look_done) struct stage_look look = {0};
    *ret_bytes = 0;
    if (session_read(store, store_id, &session) < 0 || !may_have_data(&session) ||
        stage_look(session.dir, session.name, &look) < 0 ||
        is_of_others(store, store_id, &session, &look))
        return NULL;
    *ret_bytes = stage_held_bytes(session.dir, session.name);
    return stage_ctl_path(session.dir, session.name);
}

/* The stage of a read-only session is empty. */
int session_forget(const char *store, const uint8_t store_id[16])
{
    _cleanup_(session_done) struct session session;
    _cleanup_(stage_look_done) struct stage_look look = {0};
    if (session_read(store, store_id, &session) == 0 && session.exists && session.is_reader &&
        !session.is_of_other_boot && stage_look(session.dir, session.name, &look) == 0 &&
        !look.in_use && !is_others(store, store_id, &session, &look)) {
        stage_remove_files(session.dir, session.name);
        stage_leave_directory(session.dir);
    }
    return session_end(store);
}

static char *explain_copy(const struct own_stage *own, const struct session *session,
                          const struct stage_look *look)
{
    const char *original = look->owner && *look->owner ? look->owner : "another store";
    if (!look->in_use && is_in_its_place(own->local->path, look))
        return xasprintf("%s is a copy of the store that was there when its daemon died and left "
                         "its stage in %s; where that was moved, mount it there; if it is gone for "
                         "good, mount this one under another path, and it goes on with the stage; "
                         "to look at the copy, as it came to NVMe, mount it with -o ro; to make it "
                         "a store of its own, run: cairn adopt --new-id %s",
                         own->local->path, session->dir, own->local->path);
    _cleanup_free_ char *what = look->in_use
                                    ? xasprintf("which pid %d has mounted", (int)look->pid)
                                    : xasprintf("whose stage in %s was left when its daemon died; "
                                                "mount that one to go on with it",
                                                session->dir);
    return xasprintf("%s is a copy of %s, %s; to look at the copy, as it came to NVMe, mount it "
                     "with -o ro; to make it a store of its own, run: cairn adopt --new-id %s",
                     own->local->path, original, what, own->local->path);
}

/* A copy that is only read works without the stage; another mount of it is refused. */
static int meet_other(struct own_stage *own, const struct session *session,
                      const struct stage_look *look, char **ret_text)
{
    *ret_text = explain_copy(own, session, look);
    if (!own->local->options.read_only)
        return -EBUSY;
    log_warn("%s", *ret_text);
    free(*ret_text);
    *ret_text = NULL;
    return 0;
}

static char *explain_unusable(const struct own_stage *own, const struct session *session,
                              const struct stage_look *look, int r)
{
    _cleanup_free_ char *ctl = stage_ctl_path(session->dir, session->name);
    if (r == -EACCES && look->uid != geteuid())
        return xasprintf("%s, where the last session had its stage, belongs to user %u, not to you "
                         "(%u): it is not the stage that was left, or the store changed hands; to "
                         "go on from what is on NVMe, remove %s/session",
                         ctl, look->uid, geteuid(), own->local->path);
    return xasprintf("the stage that the last session left in %s cannot be opened: %s; it holds "
                     "what had not come to NVMe; to go on without that, remove %s/session",
                     ctl, r == -EACCES ? "others may read or write it" : strerror(-r),
                     own->local->path);
}

/* Each recovery chooses an epoch above both, notes it in the stage, begins the journal with it, and
 * then commits it in the stage. If it is killed, and its successor as well, the journal's epoch is
 * anywhere between the stage's two. */
static bool continues_journal(const struct own_stage *own)
{
    uint64_t epoch, next;
    stage_epochs(own->local->stage, &epoch, &next);
    return epoch <= own->journal->epoch && own->journal->epoch <= max_u64(epoch, next);
}

/* Call with the stage open: is it the one that continues this journal? */
static int judge_stage(struct own_stage *own, const struct session *session,
                       const struct stage_look *look, char **ret_text)
{
    bool others = is_others(own->local->path, own->local->sb.store, session, look);
    if (others || !continues_journal(own)) {
        stage_close(own->local->stage, false);
        own->local->stage = NULL;
    }
    if (others)
        return meet_other(own, session, look, ret_text);
    if (!own->local->stage) {
        log_warn("the stage in %s is not of this session of the store: going on from the NVMe "
                 "horizon; the stage stays there",
                 session->dir);
        return 0;
    }
    if (own->journal->cut_seq < stage_durable_seq(own->local->stage)) {
        *ret_text = xasprintf(
            "the journal of %s ends before what its stage in %s knows to be on NVMe: the store is "
            "an older copy, or the end of its journal is damaged (cairn fsck says which); nothing "
            "was changed; to go on without the stage, remove %s/session",
            own->local->path, session->dir, own->local->path);
        return -EUCLEAN;
    }
    return 0;
}

static void take_stage(struct own_stage *own, const char *dir, const uint8_t name[16])
{
    free(own->dir);
    own->dir = xstrdup(dir);
    memcpy(own->name, name, sizeof own->name);
    stage_own(own->local->stage, own->local->path);
}

int session_open_stage(struct own_stage *own, const struct session *session, char **ret_text)
{
    struct stage_config config = {.dir = session->dir};
    _cleanup_(stage_look_done) struct stage_look look = {0};
    memcpy(config.store, own->local->sb.store, sizeof config.store);
    memcpy(config.name, session->name, sizeof config.name);
    int r = session->is_of_other_boot ? -ESTALE : stage_open(&config, &own->local->stage);
    if (r != -ESTALE && r != -ENOENT && stage_look(session->dir, session->name, &look) < 0)
        log_debug("stage: the control file in %s tells nothing", session->dir);
    look.in_use = r == -EBUSY; /* otherwise this process has locked it */
    if (r == -EBUSY && look.owner && *look.owner && is_ours(own->local->path, &look))
        *ret_text = xasprintf("pid %d has the stage of %s in %s still; end it and mount again",
                              (int)look.pid, own->local->path, session->dir);
    else if (r == -EBUSY)
        r = meet_other(own, session, &look, ret_text);
    else if (r == 0)
        r = judge_stage(own, session, &look, ret_text);
    else if (r == -ENOENT && session->names_boot)
        log_warn("the last session's stage in %s is gone, though the machine did not boot since: "
                 "its files were removed there, or %s is a copy of a store that was unmounted "
                 "since; going on from the NVMe horizon",
                 session->dir, own->local->path);
    else if (r == -ENOENT || r == -ESTALE)
        log_warn("the last session ended without its stage (power loss or reboot): going on from "
                 "the NVMe horizon");
    else
        /* it may contain the only copy of acknowledged data */
        *ret_text = explain_unusable(own, session, &look, r);
    if (r == 0 && own->local->stage)
        take_stage(own, session->dir, session->name);
    return r == -ENOENT || r == -ESTALE ? 0 : r;
}

int session_leave_other(const char *store, const uint8_t store_id[16], char **ret_dir)
{
    _cleanup_(session_done) struct session session;
    _cleanup_(stage_look_done) struct stage_look look = {0};
    *ret_dir = NULL;
    TRY(session_read(store, store_id, &session));
    int r = may_have_data(&session) ? stage_look(session.dir, session.name, &look) : -ENOENT;
    if (r == -ENOENT || (r == 0 && is_of_others(store, store_id, &session, &look)))
        return session_end(store);
    *ret_dir = xstrdup(session.dir);
    return -EBUSY;
}

/* --- a new stage ------------------------------------------------------------------------------ */

static int create_once(struct own_stage *own)
{
    _cleanup_free_ char *directory = NULL;
    struct stage_config config = {.size_bytes = own->local->options.stage_bytes,
                                  .epoch = own->local->epoch,
                                  .read_only = own->local->options.remote.read_only};
    TRY(stage_make_directory(own->local->options.stage_dir, &directory));
    if (getrandom(config.name, sizeof config.name, 0) != (ssize_t)sizeof config.name)
        return -EIO;
    /* the mount continues with another stage, which needs another tag; 0 is the tag of a mount's
     * first stage */
    if (own->local->options.adopting) {
        memcpy(&config.handle_tag, config.name, sizeof config.handle_tag);
        config.handle_tag |= 1;
    }
    config.dir = directory;
    stage_sweep(directory, own->local->sb.store, own->local->path);
    stage_report_parted(directory);
    memcpy(config.store, own->local->sb.store, sizeof config.store);
    int r = stage_create(&config, &own->local->stage);
    if (r < 0) {
        stage_leave_directory(directory);
        return r;
    }
    take_stage(own, directory, config.name);
    return 0;
}

void session_drop_stage(struct own_stage *own)
{
    stage_close(own->local->stage, true);
    own->local->stage = NULL;
    stage_leave_directory(own->dir);
}

/* Another mount that ends may remove the directory at that moment, as it is empty. */
int session_new_stage(struct own_stage *own)
{
    int r = -ENOENT;
    for (int i = 0; i < CREATE_TRIES && r == -ENOENT; i++)
        r = create_once(own);
    return r;
}

/* Removed files cannot get their names back, so the data can only be moved to NVMe. */
void commit_watch_stage(struct commit *commit)
{
    if (!stage_is_unlinked(commit->local->stage))
        return;
    if (!atomic_exchange(&commit->own_stage->is_lost, true))
        log_error("the files of the stage in %s were removed: what is written is carried to NVMe "
                  "at once, and what has not come there when the daemon dies is lost; unmount and "
                  "mount again for a new stage",
                  commit->own_stage->dir);
    int r = history_seal_all(commit->history);
    if (r < 0 && r != -EAGAIN)
        log_error("files that are being written could not be sealed: %s", strerror(-r));
    horizon_urge(commit->horizon, clock_monotonic_ns() + LOST_URGE_NS);
}

void session_close_stage(struct own_stage *own, bool is_empty)
{
    stage_close(own->local->stage, is_empty);
    if (is_empty && own->dir)
        stage_leave_directory(own->dir);
}

const char *commit_stage_directory(const struct commit *commit)
{
    return commit->own_stage->dir;
}

/* --- stores with the same id ------------------------------------------------------------------ */

struct twin {
    const struct own_stage *own;
    const char *dir;
    struct stage_look look; /* of another mounted store */
    bool found;
};

static void look_for_twin(const uint8_t name[16], void *arg)
{
    struct twin *twin = arg;
    const struct own_stage *own = twin->own;
    struct stage_look look;
    bool is_ours = memcmp(name, own->name, sizeof own->name) == 0;
    if (is_ours || twin->found || stage_look(twin->dir, name, &look) < 0)
        return;
    twin->found = look.in_use && memcmp(look.store, own->local->sb.store, sizeof look.store) == 0;
    if (twin->found)
        twin->look = look;
    else
        stage_look_done(&look);
}

int session_meet_twin(struct own_stage *own, char **ret_text)
{
    _cleanup_free_ char *own_dir = stage_own_directory(own->local->options.stage_dir);
    const char *const dirs[] = {own->local->options.stage_dir, own_dir, own->dir};
    struct twin twin = {.own = own};
    for (size_t i = 0; i < ARRAY_LEN(dirs) && !twin.found; i++) {
        twin.dir = dirs[i];
        if (dirs[i])
            stage_each(dirs[i], look_for_twin, &twin);
    }
    if (!twin.found)
        return 0;
    bool writes_there = local_has_remote(own->local) && !own->local->options.remote.read_only;
    _cleanup_free_ char *text = xasprintf(
        "%s has the id of %s, which pid %d has mounted: one is a copy of the other%s; to make it a "
        "store of its own, unmount it and run: cairn adopt --new-id %s",
        own->local->path, twin.look.owner && *twin.look.owner ? twin.look.owner : "another store",
        (int)twin.look.pid,
        writes_there ? ", and both would be one writer of the remote"
                     : ", and from now on they differ",
        own->local->path);
    stage_look_done(&twin.look);
    if (writes_there)
        *ret_text = xstrdup(text);
    else
        log_warn("%s", text);
    return writes_there ? -EBUSY : 0;
}
