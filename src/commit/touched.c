// SPDX-License-Identifier: Apache-2.0
#include "commit/touched.h"

#include <uthash.h>

#include "base/lock.h"
#include "base/vector.h"
#include "codec/hash.h"

struct touch {
    UT_hash_handle hh;
    uint64_t key, seq;
};

struct touched {
    struct cairn_mutex lock; /* a leaf */
    struct touch *all;
    VECTOR(uint64_t) seqs; /* of the operations, ascending */
    uint64_t merged, floor;
};

struct touched *touched_new(uint64_t floor)
{
    struct touched *touched = xcalloc(1, sizeof *touched);
    touched->floor = floor;
    mutex_init(&touched->lock, LOCK_LEAF);
    return touched;
}

static void remove_up_to(struct touched *touched, uint64_t seq)
{
    struct touch *touch, *next;
    size_t end = 0;
    while (end < touched->seqs.count && touched->seqs.at[end] <= seq)
        end++;
    touched->seqs.count -= end;
    if (end)
        memmove(touched->seqs.at, touched->seqs.at + end,
                touched->seqs.count * sizeof *touched->seqs.at);
    HASH_ITER(hh, touched->all, touch, next)
    if (touch->seq <= seq) {
        HASH_DEL(touched->all, touch);
        free(touch);
    }
}

void touched_free(struct touched *touched)
{
    if (!touched)
        return;
    remove_up_to(touched, UINT64_MAX);
    vector_free(&touched->seqs);
    mutex_done(&touched->lock);
    free(touched);
}

/* The key is a hash for a name, with the highest bit set, and the number, below 2^48, for an
 * inode. */
static uint64_t key_of_name(uint64_t dir, const char *name, size_t name_len)
{
    const struct iovec iov[] = {{&dir, sizeof dir}, {(void *)(uintptr_t)name, name_len}};
    uint8_t hash[HASH_LEN];
    uint64_t key;
    hash_parts(iov, 2, hash);
    memcpy(&key, hash, sizeof key);
    return key | 1ull << 63;
}

static void add_locked(struct touched *touched, uint64_t key, uint64_t seq)
{
    check_held(&touched->lock);
    struct touch *touch;
    HASH_FIND(hh, touched->all, &key, sizeof key, touch);
    if (!touch) {
        touch = xmalloc(sizeof *touch);
        touch->key = key;
        HASH_ADD(hh, touched->all, key, sizeof touch->key, touch);
    }
    touch->seq = seq;
}

void touched_add(struct touched *touched, const struct record *rec)
{
    if (rec->flags & RECORD_TAKEN)
        return;
    LOCK_SCOPE(&touched->lock);
    vector_add(&touched->seqs, rec->seq);
    add_locked(touched, rec->ino, rec->seq);
    if (rec->ino2)
        add_locked(touched, rec->ino2, rec->seq);
    bool is_xattr = rec->type == REC_SETXATTR || rec->type == REC_REMOVEXATTR;
    if (rec->name_len && !is_xattr)
        add_locked(touched, key_of_name(rec->parent, rec->name, rec->name_len), rec->seq);
    if (rec->name2_len)
        add_locked(touched, key_of_name(rec->parent2, rec->name2, rec->name2_len), rec->seq);
}

void touched_forget(struct touched *touched, uint64_t seq)
{
    LOCK_SCOPE(&touched->lock);
    touched->merged = max_u64(touched->merged, seq);
    remove_up_to(touched, seq);
}

void touched_merged(struct touched *touched, uint64_t seq)
{
    LOCK_SCOPE(&touched->lock);
    touched->merged = max_u64(touched->merged, seq);
}

/* The first operation after `merged`; 0: none. */
static uint64_t first_left_locked(struct touched *touched)
{
    check_held(&touched->lock);
    size_t low = 0, high = touched->seqs.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (touched->seqs.at[middle] <= touched->merged)
            low = middle + 1;
        else
            high = middle;
    }
    return low < touched->seqs.count ? touched->seqs.at[low] : 0;
}

uint64_t touched_merged_up_to(struct touched *touched)
{
    LOCK_SCOPE(&touched->lock);
    if (touched->merged < touched->floor)
        return touched->merged;
    uint64_t left = first_left_locked(touched);
    return left ? left - 1 : UINT64_MAX;
}

/* 0: not changed. */
static uint64_t last_locked(struct touched *touched, uint64_t key)
{
    check_held(&touched->lock);
    struct touch *touch;
    HASH_FIND(hh, touched->all, &key, sizeof key, touch);
    return touch ? touch->seq : 0;
}

static bool has(struct touched *touched, uint64_t key)
{
    LOCK_SCOPE(&touched->lock);
    return last_locked(touched, key) > 0;
}

bool touched_has_name(struct touched *touched, uint64_t dir, const char *name, size_t name_len)
{
    return has(touched, key_of_name(dir, name, name_len));
}

bool touched_has_inode(struct touched *touched, uint64_t ino)
{
    return has(touched, ino);
}

uint64_t touched_last(struct touched *touched, uint64_t ino)
{
    LOCK_SCOPE(&touched->lock);
    uint64_t seq =
        max_u64(last_locked(touched, ino), touched->merged < touched->floor ? touched->floor : 0);
    return seq > touched->merged ? seq : 0;
}

size_t touched_count(struct touched *touched)
{
    LOCK_SCOPE(&touched->lock);
    return touched->seqs.count;
}
