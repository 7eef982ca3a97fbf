// SPDX-License-Identifier: Apache-2.0
/* Updates a view from the state of one head to that of a newer one, in one write.
 *
 * Rows of the namespace are stored unchanged. Rows of chunks and remote packs contain data that the
 * view stores under several keys (follow_remote.c). */
#include <sys/stat.h>

#include "base/log.h"
#include "view/follow_remote.h"
#include "view/rows.h"

#define FOLLOW_BYTES_MAX (256 * MIB) /* limit for the rows that differ */

static const char published_types[] = "CDEHIJLNOQX"; /* ascending, as in a run */

struct view_follow {
    struct txn txn;
    bool is_whole;
    struct snap snap;
    struct scan scan; /* is_whole: rows of the view, up to the next row received */
    const char *type; /* of `scan`; at the end of the types no scan is open */
    struct remote_report report;
    struct key last;
    struct piece_list pieces;
    size_t bytes;
    struct row_numbers numbers;
    void (*changed)(uint64_t ino, void *arg);
    void *arg;
};

/* --- rows of the view, for comparison with all rows of a head --------------------------------- */

static void scan_known_type(struct view_follow *f)
{
    if (*f->type)
        scan_type(&f->scan, &f->snap, (enum key_type) * f->type);
}

/* Is there another row in the view? 1, 0 or -errno. */
static int known_valid(struct view_follow *f)
{
    while (*f->type && !scan_valid(&f->scan)) {
        TRY(scan_error(&f->scan));
        scan_close(&f->scan);
        f->type++;
        scan_known_type(f);
    }
    return *f->type != '\0';
}

static int compare_known(const struct view_follow *f, const struct run_row *row)
{
    const struct scan *s = &f->scan;
    int order = memcmp(s->key, row->key, s->key_len < row->key_len ? s->key_len : row->key_len);
    return order ? order : (s->key_len > row->key_len) - (s->key_len < row->key_len);
}

/* --- rows of the namespace -------------------------------------------------------------------- */

static void count_followed_inode(struct view_follow *f, const struct inode_row *row, int sign)
{
    if (row->pub.nlink > 0)
        count_file(&f->txn, row, sign);
}

/* Updates counters and calls the callback. `old` or `row` without a value: the inode did not or
 * does not exist. */
static int note_inode(struct view_follow *f, const struct run_row *row, const struct value *old,
                      const struct inode_row *now)
{
    struct inode_row before;
    uint64_t ino = key_get_u64(row->key, 1);
    if (ino == ROOT_INO && !(row->value && S_ISDIR(now->pub.attrs.mode)))
        return -EUCLEAN;
    if (old->data) {
        TRY(inode_decode(ino, old->data, old->len, &before));
        count_followed_inode(f, &before, -1);
    }
    if (row->value)
        count_followed_inode(f, now, 1);
    if (f->changed)
        f->changed(ino, f->arg);
    return 0;
}

static bool same_followed_value(const struct value *old, const struct run_row *row)
{
    if (!old->data || !row->value)
        return !old->data && !row->value;
    return old->len == row->value_len && memcmp(old->data, row->value, old->len) == 0;
}

static int follow_plain(struct view_follow *f, const struct run_row *row)
{
    struct key key = {0};
    struct inode_row inode;
    _cleanup_value_ struct value old = {0};
    if (row->value)
        TRY(row_check_plain(row, &f->pieces, &inode));
    key_add_bytes(&key, row->key, row->key_len);
    int r = txn_get(&f->txn, &key, &old);
    if (r < 0 && r != -ENOENT)
        return r;
    if (same_followed_value(&old, row))
        return 0;
    r = 0;
    if (key.bytes[0] == KEY_INODE)
        r = key.len == KEY_U64_LEN ? note_inode(f, row, &old, &inode) : -EUCLEAN;
    f->bytes += row->key_len + row->value_len;
    if (r == 0 && row->value)
        txn_put(&f->txn, &key, row->value, row->value_len);
    else if (r == 0)
        txn_delete(&f->txn, &key);
    return r;
}

/* --- rows and the end ------------------------------------------------------------------------- */

static int follow_chunk(struct view_follow *f, const struct run_row *row)
{
    bool differs;
    TRY(report_chunk(&f->report, &f->txn, row, &differs));
    f->bytes += differs ? sizeof(struct chunk_row) : 0;
    return 0;
}

static int follow_run_row(struct view_follow *f, const struct run_row *row)
{
    switch (*(const uint8_t *)row->key) {
    case KEY_CHUNK:
        return follow_chunk(f, row);
    case KEY_REMOTE_PACK:
        return report_pack(&f->report, row);
    default:
        return is_published_type(*(const uint8_t *)row->key) ? follow_plain(f, row) : -EUCLEAN;
    }
}

/* Removes a row of the view that the head lacks. */
static int take_absent(struct view_follow *f)
{
    uint8_t bytes[RUN_KEY_MAX];
    struct run_row row = {.key = bytes, .key_len = f->scan.key_len};
    check(row.key_len <= sizeof bytes);
    memcpy(bytes, f->scan.key, row.key_len);
    return follow_run_row(f, &row);
}

/* Removes all rows of the view before `row` (NULL: all remaining). 1: the view has an equal row. */
static int take_absent_up_to(struct view_follow *f, const struct run_row *row)
{
    int r;
    while ((r = known_valid(f)) > 0) {
        int order = row ? compare_known(f, row) : -1;
        if (order > 0)
            return 0;
        if (order == 0) {
            bool same = f->scan.value_len == row->value_len &&
                        memcmp(f->scan.value, row->value, row->value_len) == 0;
            bool plain = is_published_type(*(const uint8_t *)row->key);
            scan_next(&f->scan);
            return same && plain;
        }
        r = take_absent(f);
        if (r < 0)
            return r;
        scan_next(&f->scan);
    }
    return r;
}

int view_follow_row(struct view_follow *f, const struct run_row *row)
{
    int r = 0;
    if (!row_comes_next(&f->last, row) || (f->is_whole && !row->value) ||
        (row->value && row->value_len == 0))
        r = -EUCLEAN;
    else if (f->is_whole)
        r = take_absent_up_to(f, row);
    if (r == 0)
        r = follow_run_row(f, row);
    if (r == 0 && row->value)
        row_numbers_note(&f->numbers, row);
    if (r == -EUCLEAN)
        log_error("view: a row of type 0x%02x from the remote makes no sense",
                  row->key_len ? *(const uint8_t *)row->key : 0);
    if (r >= 0 && f->bytes > FOLLOW_BYTES_MAX)
        r = -EFBIG;
    return r < 0 ? r : 0;
}

int view_follow_end(struct view_follow *f, const struct view_state *state,
                    const struct view_head *head)
{
    struct txn *txn = &f->txn;
    TRY(f->is_whole ? take_absent_up_to(f, NULL) : 0);
    TRY(row_numbers_check(&f->numbers, state, head));
    TRY(report_apply(&f->report, txn, &f->snap, f->is_whole));
    if (txn->state.files != state->files || txn->state.logical_bytes != state->logical_bytes) {
        log_error("view: the rows from the remote do not lead to the state that it names");
        return -EUCLEAN;
    }
    pack_account_store(txn);
    txn->state.applied_seq = state->applied_seq;
    memcpy(txn->state.chain, state->chain, sizeof txn->state.chain);
    txn->state.max_ino = max_u64(txn->state.max_ino, state->max_ino);
    txn->remote.pub.is_whole = false;
    txn->remote.pub.head = head->number;
    txn->remote.pub.cut = state->applied_seq;
    return txn_commit(txn);
}

int view_follow_begin(struct view *view, bool is_whole, void (*changed)(uint64_t ino, void *arg),
                      void *arg, struct view_follow **ret)
{
    struct view_follow *f = xcalloc(1, sizeof *f);
    f->is_whole = is_whole;
    f->changed = changed;
    f->arg = arg;
    f->type = is_whole ? published_types : published_types + sizeof published_types - 1;
    txn_begin(&f->txn, view);
    f->txn.remote.pub.tracks = true;
    f->txn.is_following = true;
    snap_begin(&f->snap, view);
    scan_known_type(f);
    *ret = f;
    return 0;
}

void view_follow_done(struct view_follow *f)
{
    if (!f)
        return;
    report_done(&f->report);
    if (*f->type)
        scan_close(&f->scan);
    snap_end(&f->snap);
    txn_end(&f->txn);
    vector_free(&f->pieces);
    free(f);
}

int view_has_own_changes(struct view *view, bool *ret)
{
    int r;
    _cleanup_scan_ struct scan scan;
    scan_view_type(&scan, view, KEY_TOUCHED);
    *ret = false;
    /* marks of chunks do not count: an adoption leaves them for chunks that a head calls missing */
    while (!*ret && (r = scan_step(&scan)) > 0)
        *ret = scan.key_len > 1 && scan.key[1] != KEY_CHUNK;
    return *ret ? 0 : r;
}
