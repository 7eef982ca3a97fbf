// SPDX-License-Identifier: Apache-2.0
/* The prefix of a remote: its marker, its heads, and the moment at which a store meets it. */
#include "remote/internal.h"

#include <stdio.h>
#include <sys/random.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

#define PREFIX_OBJECT "cairn"
/* We may have to count on from numbers up to this: no head of ours gets there. */
#define NUMBER_MAX (1ull << 62)
#define READ_TRIES 4 /* of a small object that looks damaged: the damage may be of the way here */
#define READ_PAUSE_MS 50
#define HEAD_RETRY_MS 1000
#define HEAD_REFUSED_MS 10000

/* --- heads ------------------------------------------------------------------------------------ */

static void head_object_name(uint64_t number, char buf[32])
{
    object_name("heads", number, buf);
}

static int note_number(const struct tier_object *object, void *arg)
{
    uint64_t *newest = arg;
    uint64_t number;
    if (object_number(object->name, "heads", &number))
        *newest = max_u64(*newest, number);
    return 0;
}

static int read_object_once(struct remote *remote, const char *object, size_t max,
                            int (*decode)(const void *buf, size_t len, void *arg), void *arg)
{
    uint64_t len;
    int r = remote->tier->ops->stat(remote->tier, object, &len);
    if (r < 0)
        return r;
    if (len == 0 || len > max)
        return -EUCLEAN;
    _cleanup_free_ uint8_t *bytes = xmalloc(len);
    r = remote->tier->ops->get_range(remote->tier, object, 0, bytes, len);
    return r < 0 ? r : decode(bytes, len, arg);
}

int remote_read_object(struct remote *remote, const char *object, size_t max,
                       int (*decode)(const void *buf, size_t len, void *arg), void *arg)
{
    int r = 0;
    for (int i = 0; i < READ_TRIES; i++) {
        r = read_object_once(remote, object, max, decode, arg);
        bool looks_damaged = r == -EUCLEAN || r == -EBADMSG || r == -EPROTONOSUPPORT;
        if (!looks_damaged || !remote_pause(remote, READ_PAUSE_MS << i))
            break;
    }
    return r;
}

static int decode_head(const void *buf, size_t len, void *arg)
{
    return head_decode(buf, len, arg);
}

/* Numbers of a later epoch than the head's were never given out: a store that goes on from them
 * would give them out again, or have none left. */
static bool numbers_fit(const struct head *head)
{
    bool fit = head->number < NUMBER_MAX && head->epoch < EPOCH_LAST &&
               head->cut >> SEQ_EPOCH_SHIFT <= head->epoch &&
               ID_EPOCH(head->max_ino) < EPOCH_LAST && ID_EPOCH(head->max_id) <= head->epoch;
    for (uint32_t i = 0; i < head->run_count; i++)
        fit = fit && ID_EPOCH(head->runs[i].id) <= head->epoch;
    return fit;
}

int remote_read_head(struct remote *remote, uint64_t number, struct head *ret_head)
{
    char object[32];
    head_object_name(number, object);
    int r = remote_read_object(remote, object, HEAD_LEN_MAX, decode_head, ret_head);
    if (r == 0 &&
        (ret_head->number != number || !numbers_fit(ret_head) ||
         memcmp(ret_head->history, remote->store->sb.history, sizeof ret_head->history) != 0))
        r = -EUCLEAN;
    if (r < 0)
        *ret_head = (struct head){0};
    return r;
}

int remote_newest_head(struct remote *remote, uint64_t after, struct head *ret_head)
{
    char object[32];
    uint64_t newest = 0;
    head_object_name(after, object);
    int r =
        remote->tier->ops->list(remote->tier, "heads", after ? object : NULL, note_number, &newest);
    if (r < 0)
        return r;
    r = newest > after ? remote_read_head(remote, newest, ret_head) : -ENOENT;
    head_object_name(newest, object);
    if (r == -EUCLEAN || r == -EBADMSG)
        log_error("remote: %s: its newest head, %s, is damaged", remote->name, object);
    return r;
}

/* Our head was created. A store that was paused for longer than the grace may have been replaced by
 * heads of which the first, with this number, were deleted since; those before it went first.
 * -ESTALE: so it is, and *head is the newest. */
static int check_newest(struct remote *remote, struct head *head)
{
    char before[32];
    uint64_t len, number = head->number;
    head_object_name(number - 1, before);
    int r = number > 1 ? remote->tier->ops->stat(remote->tier, before, &len) : 0;
    if (r != -ENOENT)
        return r;
    struct head *newest = xmalloc(sizeof *newest);
    r = remote_newest_head(remote, number, newest);
    if (r == 0)
        *head = *newest;
    free(newest);
    return r == 0 ? -ESTALE : r == -ENOENT ? 0 : r;
}

/* Whose is the head that is there under our number? 0: ours. -ESTALE: another's, and *head is
 * theirs. */
static int settle_head(struct remote *remote, struct head *head)
{
    struct head *there = xmalloc(sizeof *there);
    int r = remote_read_head(remote, head->number, there);
    if (r == 0 && !remote_is_own_try(remote, there)) {
        *head = *there;
        r = -ESTALE;
    }
    free(there);
    return r == -EUCLEAN ? -ESTALE : r;
}

/* One try. Where the answer was lost, or was no answer to what happened, the nonce tells. */
static int try_head(struct remote *remote, struct head *head, const void *bytes, size_t len)
{
    char object[32];
    head_object_name(head->number, object);
    /* The objects it names are there before it, after a power loss of the medium too. */
    int r = remote->tier->ops->sync(remote->tier);
    if (r == 0)
        r = remote->tier->ops->put_new(remote->tier, object, bytes, len);
    if (r == -EEXIST)
        r = settle_head(remote, head);
    else if (r < 0 && r != -ECANCELED && !tier_error_is_transient(r) &&
             settle_head(remote, head) == 0)
        r = 0;
    if (r == 0)
        r = remote->tier->ops->sync(remote->tier);
    return r == 0 ? check_newest(remote, head) : r;
}

bool remote_is_own_try(const struct remote *remote, const struct head *head)
{
    return remote->tried.number == head->number &&
           memcmp(remote->tried.nonce, head->nonce, sizeof head->nonce) == 0;
}

int remote_put_head(struct remote *remote, struct head *head)
{
    _cleanup_free_ uint8_t *bytes = xcalloc(1, align_up(HEAD_LEN_MAX, 4096));
    if (getrandom(head->nonce, sizeof head->nonce, 0) != (ssize_t)sizeof head->nonce)
        return -EIO;
    remote->tried.number = head->number;
    memcpy(remote->tried.nonce, head->nonce, sizeof head->nonce);
    head->published = clock_realtime_ns();
    size_t len = head_encode(head, bytes);
    for (;;) {
        int r = try_head(remote, head, bytes, len);
        if (r == 0)
            remote_works(remote);
        if (r == 0 || r == -ESTALE)
            return r;
        remote_error(remote, r, "publishing head %llu failed (%s)",
                     (unsigned long long)head->number, strerror(-r));
        /* The head may be there, or come to be there: another head under its number would find it
         * taken and have no owner. A mount does not wait for it: the uploader goes on. */
        bool goes_on = r != -ECANCELED && remote->uploader_started;
        if (!goes_on ||
            !remote_pause(remote, tier_error_is_transient(r) ? HEAD_RETRY_MS : HEAD_REFUSED_MS))
            return r;
    }
}

void remote_head_published(struct remote *remote, const struct head *head)
{
    remote->head = *head;
    /* A head without a state only names the prefix's holder: the journal still begins where
     * it did. */
    bool is_anchor = head->run_count > 0 || !journal_anchor(remote->store)->exists;
    int r = is_anchor ? local_head_write(remote->store, head) : 0;
    if (r < 0)
        log_warn("%s/head cannot be written: %s; the next mount reads it from the remote",
                 remote->store->path, strerror(-r));
    LOCK_SCOPE(&remote->shared.lock);
    remote->shared.head_number = head->number;
    remote->shared.files = head->files;
    remote->shared.logical_bytes = head->logical_bytes;
}

int remote_note_head(struct remote *remote)
{
    struct view *view = remote->store->view;
    struct view_remote known = view_remote(view);
    struct head *head = xmalloc(sizeof *head);
    int r = local_head_read(remote->store, head);
    if (r == 0 && head->run_count > 0 && !local_head_is_lost(head) && known.cut == head->cut &&
        known.head < head->number)
        r = view_note_head(view, head->number);
    free(head);
    return r == -ENOENT ? 0 : r;
}

/* --- meeting it ------------------------------------------------------------------------------- */

static int decode_prefix(const void *buf, size_t len, void *arg)
{
    return prefix_info_decode(buf, len, arg);
}

int remote_meet(struct remote *remote)
{
    struct prefix_info found;
    int r = remote_read_object(remote, PREFIX_OBJECT, PREFIX_INFO_LEN, decode_prefix, &found);
    if (r < 0)
        return r;
    remote->prefix = found;
    remote->has_prefix = true;
    explicit_bzero(&found.key, sizeof found.key);
    return 0;
}

static int check_history(struct remote *remote, char **ret_text)
{
    const struct superblock *sb = &remote->store->sb;
    if (memcmp(remote->prefix.history, sb->history, sizeof sb->history) == 0 &&
        memcmp(&remote->prefix.key, &sb->key, sizeof sb->key) == 0)
        return 0;
    *ret_text = xasprintf("%s holds the history of another store, and %s has its own; use an empty "
                          "prefix, or an empty "
                          "STORE to continue what is there",
                          remote->name, remote->store->path);
    return -EINVAL;
}

/* Exclusive creation is what keeps two writers apart: a bucket that only pretends is found out
 * before it matters. */
static int probe_exclusive(struct remote *remote, char **ret_text)
{
    char object[OBJECT_NAME_LEN];
    uint64_t nonce;
    uint8_t *bytes = aligned_alloc(4096, 4096);
    check(bytes != NULL);
    memset(bytes, 'p', 4096);
    if (getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        nonce = (uint64_t)clock_realtime_ns();
    object_name("probe", nonce, object);
    int r = remote->tier->ops->put_new(remote->tier, object, bytes, 64);
    int again =
        r == 0 || r == -EEXIST ? remote->tier->ops->put_new(remote->tier, object, bytes, 64) : r;
    if (remote->tier->ops->remove(remote->tier, object) < 0)
        log_warn("remote: the probe %s could not be removed", object);
    free(bytes);
    if (again == -EEXIST)
        return 0;
    if (again < 0)
        return again;
    *ret_text = xasprintf(
        "%s cannot create objects exclusively (If-None-Match: *), so two writers could not be kept "
        "apart; use another bucket, or mount with -o unfenced and see to it yourself",
        remote->name);
    return -EOPNOTSUPP;
}

static void sign_head(struct remote *remote, struct head *head)
{
    const struct store *store = remote->store;
    head->number++;
    head->epoch = store->epoch;
    head->writer = store->sb.writer;
    memcpy(head->store, store->sb.store, sizeof head->store);
    memcpy(head->history, store->sb.history, sizeof head->history);
    (void)snprintf(head->holder, sizeof head->holder, "%s", remote->holder);
}

/* A living holder is mostly met by the second node of a job, or is a mount that was forgotten. */
char *remote_explain_holder(const struct remote *remote, const char *what, const char *holder)
{
    return xasprintf("%s %s by %s, and has one writer at a time: give each node that writes a "
                     "prefix of its own, and mount with -o ro to "
                     "read what is published; to go on from here instead, unmount it there "
                     "(--takeover does not ask it: what it has not "
                     "published stays there)",
                     remote->name, what, holder);
}

#define TAKEOVER_TRIES 50
typedef int may_fn(struct remote *remote, char **ret_text);

/* Takes the prefix from another writer by creating the next head, with the state that is there:
 * from then on that is what we begin with, and the other is fenced. A live one may publish in
 * between: then its newer state is taken, if that may be. The state stays the other's, by name,
 * until it is ours (remote_claim()): a store that dies before must not take it for what it
 * published itself. */
static int take_over(struct remote *remote, may_fn *may, char **ret_text)
{
    struct head *head = xmalloc(sizeof *head);
    int r = remote->options.unfenced ? 0 : probe_exclusive(remote, ret_text);
    for (int i = 0; r == 0; i++) {
        *head = remote->head;
        sign_head(remote, head);
        memcpy(head->store, remote->head.store, sizeof head->store);
        head->epoch = remote->head.epoch + 1;
        r = remote_put_head(remote, head);
        if (r == 0) {
            remote->head = *head;
            break;
        }
        if (r != -ESTALE)
            break;
        if (!remote->options.takeover || i == TAKEOVER_TRIES) {
            *ret_text = remote_explain_holder(remote, "was taken just now", head->holder);
            r = -EBUSY;
            break;
        }
        remote->head = *head;
        r = may(remote, ret_text);
    }
    free(head);
    return r;
}

/* A head that we do not know may be of a store that took the prefix over, also where it has our
 * name: it has that until it is claimed. */
static bool is_as_we_left_it(const struct remote *remote)
{
    struct head *known = xmalloc(sizeof *known);
    bool is_known = !remote->was_theirs && remote->head.number > 0 &&
                    local_head_read(remote->store, known) == 0 &&
                    memcmp(known->nonce, remote->head.nonce, sizeof known->nonce) == 0;
    free(known);
    return is_known;
}

static int attach_online(struct remote *remote, may_fn *may, char **ret_text)
{
    int r = remote->has_prefix ? 0 : remote_meet(remote);
    if (r == -ENOENT) {
        r = place_check(remote, ret_text);
        remote->is_attached = r == 0;
        return r;
    }
    if (r == 0 && (r = check_history(remote, ret_text)) < 0)
        return r;
    if (r == 0)
        r = store_allow_encodings(remote->store,
                                  remote->prefix.incompat); /* what is fetched is kept */
    if (r == 0) {
        r = remote_newest_head(remote, 0, &remote->head);
        r = r == -ENOENT ? 0 : r;
    }
    if (r == 0 && !remote->options.read_only)
        r = may(remote, ret_text);
    const uint8_t *own = remote->store->sb.store;
    remote->was_theirs =
        remote->head.number > 0 && memcmp(remote->head.store, own, sizeof remote->head.store) != 0;
    if (r == 0 && !remote->options.read_only && !is_as_we_left_it(remote))
        r = lease_await(remote, ret_text);
    if (r == 0 && remote->was_theirs && !remote->options.read_only)
        r = take_over(remote, may, ret_text);
    remote->is_attached = r == 0;
    return r;
}

int remote_attach(struct remote *remote, may_fn *may, char **ret_text)
{
    remote->head = (struct head){0};
    int r = attach_online(remote, may, ret_text);
    /* For a writer the remote works when the first head was stored: a filesystem may allow reads
     * and refuse writes. */
    if (r == 0 && remote->options.read_only)
        remote_works(remote);
    if (r == 0)
        return 0;
    if (r == -ECANCELED && !*ret_text)
        *ret_text = xasprintf("given up while waiting for %s", remote->name);
    if (*ret_text)
        return r;
    _cleanup_free_ char *newer =
        xasprintf("it was written by a newer version of CairnFS: %s", cause_text());
    const char *what = r == -EPROTONOSUPPORT            ? newer
                       : r != -EUCLEAN && r != -EBADMSG ? strerror(-r)
                       : remote->has_prefix
                           ? "its newest head is damaged"
                           : "its object 'cairn' is damaged, or it is no CairnFS prefix";
    remote_error(remote, r, "%s cannot be used now (%s)", remote->name, what);
    return 0;
}

/* --- holding it ------------------------------------------------------------------------------- */

/* Our chunks may come there: an older version must not take them for damage. */
static uint64_t encodings_to_announce(const struct remote *remote)
{
    return remote->store->sb.incompat & SUPERBLOCK_INCOMPAT_ENCODINGS & ~remote->prefix.incompat;
}

/* The object is there. Its writer holds the prefix, and keeps what the writer before announced
 * since the object was read. */
static int announce_encodings(struct remote *remote)
{
    int r = remote_meet(remote);
    if (r < 0 || !encodings_to_announce(remote))
        return r;
    struct prefix_info info = remote->prefix;
    uint8_t *bytes = aligned_alloc(4096, 4096);
    check(bytes != NULL);
    memset(bytes, 0, 4096);
    info.incompat |= encodings_to_announce(remote);
    prefix_info_encode(&info, bytes);
    r = remote->tier->ops->put(remote->tier, PREFIX_OBJECT, bytes, PREFIX_INFO_LEN);
    free(bytes);
    return r < 0 ? r : remote_meet(remote);
}

static int put_prefix(struct remote *remote)
{
    const struct superblock *sb = &remote->store->sb;
    struct prefix_info info = {.version = 1,
                               .incompat = sb->incompat & SUPERBLOCK_INCOMPAT_ENCODINGS,
                               .created = clock_realtime_ns(),
                               .key = sb->key};
    uint8_t *bytes = aligned_alloc(4096, 4096);
    check(bytes != NULL);
    memset(bytes, 0, 4096);
    memcpy(info.history, sb->history, sizeof info.history);
    memcpy(info.key_id, sb->key_id, sizeof info.key_id);
    prefix_info_encode(&info, bytes);
    int r = remote->tier->ops->put_new(remote->tier, PREFIX_OBJECT, bytes, PREFIX_INFO_LEN);
    free(bytes);
    if (r == 0 || r == -EEXIST)
        r = remote_meet(remote);
    return r;
}

static int add_live(const struct view_pack *pack, void *arg)
{
    *(uint64_t *)arg += pack->live_count;
    return 0;
}

/* The journal may begin with the head of a remote that is gone: it goes on to, but nothing is
 * published there. */
static int keep_anchor_alone(struct store *store)
{
    struct head *head = xmalloc(sizeof *head);
    int r = local_head_read(store, head);
    if (r == 0) {
        memset(head->nonce, 0, sizeof head->nonce);
        r = local_head_write(store, head);
    }
    free(head);
    return r == -ENOENT ? 0 : r;
}

/* The prefix holds nothing, but the view believes in what it once held: it was emptied, or is
 * another; or what should be mounted there is not. So nothing is forgotten that lies
 * nowhere else. */
static int forget_lost(struct remote *remote, char **ret_text)
{
    struct store *store = remote->store;
    uint64_t local = 0;
    if (remote->head.run_count > 0 || view_remote(store->view).cut == 0)
        return 0;
    int r = view_packs(store->view, add_live, &local);
    uint64_t all = view_state(store->view).chunks;
    if (r == 0 && all > local && !remote->options.takeover) {
        *ret_text = xasprintf("%s is empty, but %llu chunks of %s lie only in the remote where it "
                              "published before; mount it "
                              "with that, or give them up with --takeover",
                              remote->name, (unsigned long long)(all - local), store->path);
        return -ESTALE;
    }
    if (r == 0)
        r = keep_anchor_alone(store);
    if (r < 0)
        return r;
    log_warn("%s is empty, and this store had published before: all of it is stored again",
             remote->name);
    atomic_store(&store->published_seq, 0);
    return view_forget_remote(store->view);
}

static int remember_name(struct remote *remote)
{
    _cleanup_free_ char *known = local_remote_name(remote->store);
    int r = place_remember(remote);
    if (r < 0 || (known && strcmp(known, remote->name) == 0))
        return r;
    return local_remote_name_write(remote->store, remote->name);
}

int remote_prepare(struct remote *remote, char **ret_text)
{
    if (remote->options.read_only || !remote->is_attached || remote->is_prepared)
        return 0;
    if (!remote->has_prefix)
        place_report_new(remote);
    int r = remote->has_prefix ? 0 : put_prefix(remote);
    if (r == 0)
        r = check_history(remote, ret_text);
    if (r == 0 && encodings_to_announce(remote))
        r = announce_encodings(remote);
    if (r == 0 && !remote->options.unfenced)
        r = probe_exclusive(remote, ret_text);
    remote->is_prepared = r == 0;
    return r;
}

int remote_claim(struct remote *remote, char **ret_text)
{
    if (remote->options.read_only || !remote->is_attached)
        return 0;
    int r = forget_lost(remote, ret_text);
    if (r == 0)
        r = remote_prepare(remote, ret_text);
    if (r == 0)
        r = lease_renew(remote);
    if (r == 0)
        r = remember_name(remote);
    if (r < 0)
        return r;
    /* Also where the newest head is ours, or there is none: it tells our epoch, which a store that
     * takes over must exceed. Ids of packs and runs hold the epoch, so no two writers ever use the
     * same. */
    struct head *head = xmalloc(sizeof *head);
    *head = remote->head;
    sign_head(remote, head);
    r = remote_put_head(remote, head);
    if (r == -ESTALE) {
        *ret_text = remote_explain_holder(remote, "was taken just now", head->holder);
        r = -EBUSY;
    } else if (r == 0) {
        remote_head_published(remote, head);
    }
    free(head);
    return r;
}

uint64_t remote_epoch(const struct remote *remote)
{
    return remote ? remote->head.epoch : 0;
}
