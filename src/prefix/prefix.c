// SPDX-License-Identifier: Apache-2.0
/* The prefix of a remote: its marker (the object `cairn`, with a copy in heads/), and what may be
 * done with a prefix whose marker or heads are missing.
 *
 * A prefix is empty if it has neither marker, heads, runs nor packs. Any other prefix that lacks
 * its marker, or has packs or runs and no head, has lost objects, or the server's listing is not up
 * to date: it is checked again, then refused. With --takeover
 *
 *   the marker is written anew, from its copy or from the superblock of a store of that history;
 *   the newest head is published again, by the store that knows it;
 *   else a new history begins beside the remains: numbers continue above all that were found, and
 *   gc deletes nothing older than the time in the marker (`created`). */
#include "prefix/prefix.h"

#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "commit/journal.h"
#include "prefix/heads.h"

#define MARKER "cairn"
#define MARKER_COPY "heads/cairn"
#define LOOKS 4u
#define LOOK_PAUSE_MS 200
#define LEFT_PER_EPOCH_SHIFT 24       /* more heads than one epoch publishes */
#define CLOCK_STEP_NS (5 * SECOND_NS) /* servers return times in whole seconds */

/* --- the marker ------------------------------------------------------------------------------- */

static int decode_prefix(const void *buf, size_t len, void *arg)
{
    return prefix_info_decode(buf, len, arg);
}

static int read_marker(struct prefix *prefix, const char *object, struct prefix_info *ret)
{
    return prefix_read_object(prefix, object, PREFIX_INFO_LEN, decode_prefix, ret);
}

static void set_prefix(struct prefix *prefix, struct prefix_info *info)
{
    prefix->marker = *info;
    prefix->has_marker = true;
    explicit_bzero(&info->key, sizeof info->key);
}

int prefix_meet(struct prefix *prefix)
{
    struct prefix_info found;
    int r = read_marker(prefix, MARKER, &found);
    if (r == 0)
        set_prefix(prefix, &found);
    return r;
}

int prefix_check_history(struct prefix *prefix, char **ret_text)
{
    const struct superblock *sb = &prefix->local->sb;
    if (memcmp(prefix->marker.history, sb->history, sizeof sb->history) == 0 &&
        memcmp(&prefix->marker.key, &sb->key, sizeof sb->key) == 0)
        return 0;
    *ret_text = xasprintf("%s holds the history of another store, and %s has its own; use an empty "
                          "prefix, or an empty "
                          "STORE to continue what is there",
                          prefix->name, prefix->local->path);
    return -EINVAL;
}

int prefix_check_nodes(const struct prefix *prefix, char **ret_text)
{
    bool has_nodes = prefix->has_marker && prefix->marker.incompat & SUPERBLOCK_INCOMPAT_NODES;
    if (!has_nodes || prefix->options->read_only || prefix->options->nodes)
        return 0;
    *ret_text = xasprintf("several nodes write %s: mount with -o nodes to write there, too, or "
                          "with -o ro to read",
                          prefix->name);
    return -EINVAL;
}

static void describe_own(const struct prefix *prefix, struct prefix_info *ret)
{
    const struct superblock *sb = &prefix->local->sb;
    *ret = (struct prefix_info){
        .version = 1,
        .incompat = sb->incompat & (SUPERBLOCK_INCOMPAT_ENCODINGS | SUPERBLOCK_INCOMPAT_NODES),
        .key = sb->key};
    memcpy(ret->history, sb->history, sizeof sb->history);
    memcpy(ret->key_id, sb->key_id, sizeof sb->key_id);
}

/* --- remains of a prefix --- */

/* `oldest`: by the medium's clock; 0: not known. `epoch`: the newest epoch in ids of packs and
 * runs. */
struct remains {
    uint64_t heads, newest_head;
    uint64_t packs, runs, copies, bytes, epoch;
    int64_t oldest;
    bool has_copy;     /* of the marker */
    uint64_t *counted; /* the counter for the directory that is being listed */
};

static int count_remaining_head(const struct tier_object *object, void *arg)
{
    struct remains *left = arg;
    uint64_t number;
    if (object_number(object->name, "heads", &number)) {
        left->heads++;
        left->newest_head = max_u64(left->newest_head, number);
    }
    left->has_copy = left->has_copy || strcmp(object->name, MARKER_COPY) == 0;
    return 0;
}

static int count_remaining(uint64_t id, const struct tier_object *object, void *arg)
{
    struct remains *left = arg;
    ++*left->counted;
    left->bytes += object->len;
    left->epoch = max_u64(left->epoch, ID_EPOCH(id));
    if (object->modified_ns && (!left->oldest || object->modified_ns < left->oldest))
        left->oldest = object->modified_ns;
    return 0;
}

/* A damaged marker counts as lost if its copy is whole. Otherwise the object may be anything. */
static int meet_damaged_marker(struct prefix *prefix, int error)
{
    struct prefix_info copy = {0};
    bool has_copy = read_marker(prefix, MARKER_COPY, &copy) == 0;
    explicit_bzero(&copy, sizeof copy);
    prefix->beginning.marker_is_damaged = has_copy;
    return has_copy ? -ENOENT : error;
}

/* Counts packs and runs only if marker or heads are missing: there may be many. */
static int look_once(struct prefix *prefix, struct remains *ret)
{
    struct tier *tier = prefix->tier;
    *ret = (struct remains){0};
    int r = prefix->has_marker ? 0 : prefix_meet(prefix);
    prefix->beginning.marker_is_damaged = false;
    if (r == -EUCLEAN || r == -EBADMSG)
        r = meet_damaged_marker(prefix, r);
    if (r == 0 || r == -ENOENT)
        r = tier->ops->list(tier, "heads", NULL, count_remaining_head, ret);
    if (r < 0 || (prefix->has_marker && ret->heads))
        return r;
    const struct {
        const char *directory;
        uint64_t *counted;
    } lists[] = {{"packs", &ret->packs},
                 {run_directories[RUN_FIRST], &ret->runs},
                 {run_directories[RUN_COPY], &ret->copies}};
    for (size_t i = 0; i < ARRAY_LEN(lists) && r == 0; i++) {
        ret->counted = lists[i].counted;
        r = prefix_list(prefix, lists[i].directory, 0, count_remaining, ret);
    }
    return r;
}

/* Nodes that share a prefix store content there before its first head. */
static bool is_incomplete(const struct prefix *prefix, const struct remains *left)
{
    bool has_content = left->packs || left->runs || left->copies;
    if (prefix->has_marker && prefix->marker.incompat & SUPERBLOCK_INCOMPAT_NODES)
        return (left->runs || left->copies) && !left->heads;
    return prefix->has_marker ? has_content && !left->heads
                              : has_content || left->heads || left->has_copy;
}

static char *describe_remains(const struct remains *left)
{
    char date[32] = "an unknown time";
    time_t seconds = (time_t)(left->oldest / SECOND_NS);
    struct tm tm;
    if (left->oldest && gmtime_r(&seconds, &tm))
        (void)strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &tm);
    return xasprintf("%llu heads, %llu packs and %llu runs (%.1f MiB, since %s) are there",
                     (unsigned long long)left->heads, (unsigned long long)left->packs,
                     (unsigned long long)left->runs, (double)left->bytes / MIB, date);
}

/* --- a prefix that lost its heads ------------------------------------------------------------- */

static bool is_run_there(struct prefix *prefix, const struct run_info *run)
{
    char object[OBJECT_NAME_LEN];
    uint64_t len;
    for (int i = 0; i < RUN_PLACES; i++) {
        object_name(run_directories[i], run->id, object);
        if (prefix->tier->ops->stat(prefix->tier, object, &len) == 0 && len == run->length)
            return true;
    }
    return false;
}

bool prefix_has_runs(struct prefix *prefix, const struct head *head)
{
    for (uint32_t i = 0; i < head->run_count; i++)
        if (!is_run_there(prefix, &head->runs[i]))
            return false;
    return true;
}

bool prefix_known_head(struct prefix *prefix, struct head *ret_head)
{
    _cleanup_free_ char *name = local_remote_name(prefix->local);
    return name && strcmp(name, prefix->name) == 0 &&
           local_head_read(prefix->local, ret_head) == 0 && !local_head_is_lost(ret_head);
}

/* Returns whether this store knows the newest head that was lost: unless another writer came after
 * it. */
static bool may_publish_again(struct prefix *prefix, const struct remains *left,
                              struct head *ret_head)
{
    return prefix_known_head(prefix, ret_head) && ret_head->run_count > 0 &&
           left->epoch <= ret_head->epoch && prefix_has_runs(prefix, ret_head);
}

/* Without its marker a prefix is ours if its newest head is. */
static bool is_own_history(struct prefix *prefix, const struct remains *left)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    return left->heads ? head_read(prefix, left->newest_head, head) == 0
                       : may_publish_again(prefix, left, head);
}

/* Restores the content of the lost marker. `has_store`: the superblock was read. */
static int restore_marker(struct prefix *prefix, const struct remains *left, bool has_store)
{
    struct prefix_info info;
    int r = read_marker(prefix, MARKER_COPY, &info);
    if (r == -ENOENT && has_store && is_own_history(prefix, left)) {
        describe_own(prefix, &info);
        info.created = left->oldest;
        r = 0;
    }
    if (r < 0)
        return r;
    set_prefix(prefix, &info);
    prefix->beginning.marker_is_lost = true;
    return 0;
}

static const char *describe_marker(const struct prefix *prefix)
{
    return prefix->beginning.marker_is_damaged ? "has a damaged marker, the object 'cairn'"
                                               : "has lost its marker, the object 'cairn'";
}

/* Returns a text about the lost objects, the remains, and the effect of --takeover. */
static char *explain_remains(struct prefix *prefix, const struct remains *left, bool has_marker,
                             bool has_store)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    _cleanup_free_ char *what = describe_remains(left);
    bool knows_head = !left->heads && has_store && may_publish_again(prefix, left, head);
    const char *lost = has_marker ? "has lost every head" : describe_marker(prefix);
    const char *takeover =
        left->heads && prefix->beginning.marker_is_lost
            ? "write the marker anew, and go on from the newest head"
        : knows_head ? "publish the newest head again, which this store knows"
        : left->heads
            ? "begin anew beside them; a STORE that published there has the key of the chunks and "
              "writes the marker anew instead"
            : "begin anew beside them; a STORE that published there publishes its newest head "
              "again "
              "instead";
    return xasprintf("%s %s: %s. Nothing was changed. Restore the objects from a copy or "
                     "an older version, or mount with --takeover to %s (nothing is deleted)",
                     prefix->name, lost, what, takeover);
}

static int take_remains(struct prefix *prefix, const struct remains *left, bool has_store)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    check(prefix->options->takeover && !prefix->local->options.adopting);
    bool goes_on = left->heads && prefix->has_marker;
    if (!left->heads && has_store && prefix->has_marker && may_publish_again(prefix, left, known)) {
        prefix->head = *known;
        goes_on = true;
    }
    prefix->beginning.epoch = left->epoch;
    if (goes_on)
        return 0;
    prefix->beginning.is_anew = true;
    prefix->beginning.number = max_u64(left->newest_head, left->epoch << LEFT_PER_EPOCH_SHIFT);
    return 0;
}

static int judge_remains(struct prefix *prefix, const struct remains *left, bool has_store,
                         char **ret_text)
{
    bool has_marker = prefix->has_marker;
    int r = has_marker ? 0 : restore_marker(prefix, left, has_store);
    if (r < 0 && r != -ENOENT)
        return r;
    if (prefix->options->read_only && left->heads && prefix->has_marker) {
        log_warn("%s %s: it is read by the copy of that", prefix->name, describe_marker(prefix));
        return 0;
    }
    if (prefix->options->takeover && !prefix->options->read_only)
        return take_remains(prefix, left, has_store);
    *ret_text = explain_remains(prefix, left, has_marker, has_store);
    if (!has_marker)
        prefix->has_marker = false; /* the object is searched again */
    return -EBUSY;
}

int prefix_look(struct prefix *prefix, bool has_store, char **ret_text)
{
    struct remains left;
    prefix->has_marker = prefix->has_marker && !prefix->beginning.marker_is_lost;
    prefix->beginning.is_anew = prefix->beginning.marker_is_lost = false;
    prefix->beginning.number = prefix->beginning.epoch = 0;
    for (unsigned i = 0;; i++) {
        TRY(look_once(prefix, &left));
        if (!is_incomplete(prefix, &left))
            break;
        if (i == LOOKS || !prefix_pause(prefix, LOOK_PAUSE_MS << i))
            return judge_remains(prefix, &left, has_store, ret_text);
    }
    return prefix->has_marker ? 0 : has_store ? place_check(prefix, ret_text) : 0;
}

/* --- a prefix that lost its newest heads ------------------------------------------------------ */

static int note_newest_epoch(uint64_t id, const struct tier_object *object, void *arg)
{
    uint64_t *epoch = arg;
    (void)object;
    *epoch = max_u64(*epoch, ID_EPOCH(id));
    return 0;
}

/* A writer creates a head before its first run, so a newer epoch of a run shows that a head is
 * missing. */
int prefix_check_newest(struct prefix *prefix, char **ret_text)
{
    uint64_t epoch = 0;
    if (prefix->beginning.is_anew || prefix->head.number == 0)
        return 0;
    int r = prefix_list(prefix, run_directories[RUN_FIRST], 0, note_newest_epoch, &epoch);
    if (r < 0 || epoch <= prefix->head.epoch)
        return r;
    if (!prefix->options->rollback) {
        *ret_text = xasprintf(
            "%s has lost its newest heads: head %llu is the newest, but runs of a later writer are "
            "there. Nothing was changed. Restore the objects below heads/ from a copy or an older "
            "version, or mount with --rollback to go on from head %llu, and give up what came "
            "later",
            prefix->name, (unsigned long long)prefix->head.number,
            (unsigned long long)prefix->head.number);
        return -EBUSY;
    }
    prefix->beginning.epoch = epoch;
    return heads_give_up(prefix, &(struct head_given_up){.cut = prefix->head.cut,
                                                         .epoch = epoch,
                                                         .first = prefix->head.number + 1,
                                                         .last = prefix->head.number});
}

/* --- holding the prefix ----------------------------------------------------------------------- */

/* Returns the encodings that chunks of this store may have: an older version must not take such
 * chunks for damage. */
static uint64_t encodings_to_announce(const struct prefix *prefix)
{
    return prefix->local->sb.incompat & SUPERBLOCK_INCOMPAT_ENCODINGS & ~prefix->marker.incompat;
}

static int put_marker(struct prefix *prefix, const char *object, const struct prefix_info *info,
                      bool is_new)
{
    uint8_t bytes[PREFIX_INFO_LEN];
    prefix_info_encode(info, bytes);
    int r = prefix_put_object(prefix, object, bytes, sizeof bytes, is_new);
    explicit_bzero(bytes, sizeof bytes);
    return r;
}

/* The marker exists. This writer holds the prefix, and keeps the encodings that the writer before
 * it announced since the marker was read. */
static int announce_encodings(struct prefix *prefix)
{
    int r = prefix_meet(prefix);
    if (r < 0 || !encodings_to_announce(prefix))
        return r;
    struct prefix_info info = prefix->marker;
    info.incompat |= encodings_to_announce(prefix);
    r = put_marker(prefix, MARKER, &info, false);
    return r < 0 ? r : prefix_meet(prefix);
}

static bool is_of_history(const struct prefix_info *a, const struct prefix_info *b)
{
    return memcmp(a->history, b->history, sizeof a->history) == 0 &&
           memcmp(&a->key, &b->key, sizeof a->key) == 0;
}

static bool is_same_marker(const struct prefix_info *a, const struct prefix_info *b)
{
    return a->created == b->created && a->incompat == b->incompat && is_of_history(a, b);
}

/* A marker that was not found before, but exists now, shows that the prefix was not in the assumed
 * state: all of it is checked again (-EAGAIN). Unless it is our own marker: then the answer to a
 * first attempt was lost. */
static int make_marker(struct prefix *prefix)
{
    struct prefix_info info, found = {0};
    check(!prefix->options->read_only);
    bool exists = prefix->beginning.marker_is_damaged ||
                  (prefix->has_marker && !prefix->beginning.marker_is_lost);
    if (prefix->has_marker)
        info = prefix->marker;
    else
        describe_own(prefix, &info);
    int r = 0;
    if (!prefix->has_marker || prefix->beginning.is_anew) {
        r = prefix->tier->ops->now(prefix->tier, &info.created);
        info.created -= CLOCK_STEP_NS;
    }
    if (r == 0)
        r = put_marker(prefix, MARKER, &info, !exists);
    if (r == 0 || r == -EEXIST) {
        int met = read_marker(prefix, MARKER, &found);
        r = met < 0 ? met : is_same_marker(&info, &found) ? 0 : -EAGAIN;
    }
    explicit_bzero(&found, sizeof found);
    if (r == 0)
        set_prefix(prefix, &info);
    else if (r == -EAGAIN)
        prefix->has_marker = false;
    prefix->beginning.marker_is_lost = prefix->beginning.marker_is_lost && r < 0;
    return r;
}

/* The copy contains a key, possibly the only one for remains of another history: it gets another
 * name. */
static int set_foreign_copy_aside(struct prefix *prefix, const struct prefix_info *copy)
{
    char id[2 * sizeof copy->history + 1];
    hex_print(id, copy->history, sizeof copy->history);
    _cleanup_free_ char *object = xasprintf("%s.%s", MARKER_COPY, id);
    int r = put_marker(prefix, object, copy, true);
    if (r < 0 && r != -EEXIST)
        return r;
    log_warn("remote: %s, the copy of the marker, was of another history or key: it is %s now, and "
             "the copy is made anew",
             MARKER_COPY, object);
    return 0;
}

/* Writes the copy of the marker, from which a lost marker can be restored. */
static int keep_copy(struct prefix *prefix)
{
    struct prefix_info copy = {0};
    const struct prefix_info *ours = &prefix->marker;
    check(prefix->has_marker);
    int r = read_marker(prefix, MARKER_COPY, &copy);
    bool is_there = r == 0, is_same = is_there && is_same_marker(&copy, ours);
    bool is_damaged = r == -EUCLEAN || r == -EBADMSG;
    if (is_there && !is_of_history(&copy, ours))
        r = set_foreign_copy_aside(prefix, &copy);
    else if (is_damaged)
        log_warn("remote: %s, the copy of the marker, is damaged: it is made anew", MARKER_COPY);
    explicit_bzero(&copy, sizeof copy);
    if (is_same || (r < 0 && r != -ENOENT && !is_damaged))
        return r;
    return put_marker(prefix, MARKER_COPY, ours, false);
}

/* Two writers are kept apart by exclusive creation: a bucket that only pretends to support it is
 * detected before it does harm. */
int prefix_probe_exclusive(struct prefix *prefix, char **ret_text)
{
    char object[OBJECT_NAME_LEN];
    uint64_t nonce;
    char bytes[64];
    memset(bytes, 'p', sizeof bytes);
    if (getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        nonce = (uint64_t)clock_realtime_ns();
    object_name("probe", nonce, object);
    int r = prefix_put_object(prefix, object, bytes, sizeof bytes, true);
    int again =
        r == 0 || r == -EEXIST ? prefix_put_object(prefix, object, bytes, sizeof bytes, true) : r;
    bool is_denied = r == -EACCES || r == -EPERM || r == -EROFS; /* no object was created */
    if (!is_denied && prefix->tier->ops->remove(prefix->tier, object) < 0)
        log_warn("remote: the probe %s could not be removed", object);
    if (again == -EEXIST)
        return 0;
    if (again < 0)
        return again;
    *ret_text = xasprintf(
        "%s cannot create objects exclusively (If-None-Match: *), so two writers could not be kept "
        "apart; use another bucket, or mount with -o unfenced and see to it yourself",
        prefix->name);
    return -EOPNOTSUPP;
}

int prefix_prepare(struct prefix *prefix, char **ret_text)
{
    if (prefix->options->read_only || prefix->is_prepared)
        return 0;
    if (!prefix->has_marker && !prefix->beginning.is_anew)
        place_report_new(prefix);
    bool makes =
        !prefix->has_marker || prefix->beginning.marker_is_lost || prefix->beginning.is_anew;
    int r = makes ? make_marker(prefix) : 0;
    if (r == 0)
        r = prefix_check_history(prefix, ret_text);
    if (r == 0 && encodings_to_announce(prefix))
        r = announce_encodings(prefix);
    if (r == 0)
        r = keep_copy(prefix);
    if (r == 0 && !prefix->options->unfenced)
        r = prefix_probe_exclusive(prefix, ret_text);
    prefix->is_prepared = r == 0;
    return r;
}
