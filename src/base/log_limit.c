// SPDX-License-Identifier: Apache-2.0
#include "base/log_limit.h"

#include <pthread.h>
#include <stdio.h>

#define WAYS 4u
#define SETS 32u

/* Counts the lines of one text, or of one kind. */
struct entry {
    uint64_t key; /* 0: free */
    int64_t began;
    unsigned written;
    struct log_left left;
};

/* Not a mutex of base/lock.h: lines are logged with locks of any rank held, and this lock is inside
 * all of them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Kinds are as many as calls in the source; texts may be unlimited in number and must not evict
 * kinds. */
static struct entry kinds[SETS][WAYS], texts[SETS][WAYS];

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull;
    return hash ? hash : 1;
}

static bool is_over(const struct entry *e, int64_t now)
{
    return now - e->began >= LOG_WINDOW_NS;
}

/* Finds the key's entry, or evicts one for it: a free one, else the one that began first. */
static struct entry *limit_entry_locked(struct entry table[SETS][WAYS], uint64_t key)
{
    struct entry *set = table[key % SETS], *victim = set;
    for (unsigned i = 0; i < WAYS; i++)
        if (set[i].key == key)
            return &set[i];
    for (unsigned i = 1; i < WAYS && victim->key; i++)
        if (!set[i].key || set[i].began < victim->began)
            victim = &set[i];
    return victim;
}

static void log_limit_take_locked(struct entry *e, struct log_left *ret)
{
    e->left.count += e->left.count ? ret->count : 0;
    if (e->left.count)
        *ret = e->left;
    *e = (struct entry){0};
}

/* Returns the entry for a line at `now`, and reports how many lines an expired entry had left
 * out. */
static struct entry *current_locked(struct entry table[SETS][WAYS], uint64_t key, int64_t now,
                                    struct log_left *ret_left)
{
    struct entry *e = limit_entry_locked(table, key);
    if (e->key != key || is_over(e, now))
        log_limit_take_locked(e, ret_left);
    if (!e->key)
        *e = (struct entry){.key = key, .began = now};
    return e;
}

static void leave_out_locked(struct entry *e, enum log_level level, const char *text)
{
    if (e->left.count == 0)
        (void)snprintf(e->left.sample, sizeof e->left.sample, "%s", text);
    e->left.level = level;
    e->left.count++;
}

bool log_limit_admits(const char *kind, enum log_level level, const char *text, int64_t now,
                      struct log_left *ret_left)
{
    ret_left->count = 0;
    (void)pthread_mutex_lock(&lock);
    struct entry *same_text = current_locked(texts, hash_text(text), now, ret_left);
    bool admitted = same_text->written < LOG_SAME_TEXT;
    if (!admitted) {
        leave_out_locked(same_text, level, text);
    } else {
        same_text->written++;
        struct entry *same_kind = current_locked(kinds, hash_text(kind), now, ret_left);
        admitted = same_kind->written < LOG_SAME_KIND;
        if (admitted)
            same_kind->written++;
        else
            leave_out_locked(same_kind, level, text);
    }
    (void)pthread_mutex_unlock(&lock);
    return admitted;
}

static void take_over_locked(struct entry table[SETS][WAYS], int64_t now, struct log_left *ret_left)
{
    struct entry *entries = &table[0][0];
    for (unsigned i = 0; i < SETS * WAYS && ret_left->count == 0; i++)
        if (entries[i].left.count && is_over(&entries[i], now))
            log_limit_take_locked(&entries[i], ret_left);
}

bool log_limit_take(int64_t now, struct log_left *ret_left)
{
    ret_left->count = 0;
    (void)pthread_mutex_lock(&lock);
    take_over_locked(kinds, now, ret_left);
    take_over_locked(texts, now, ret_left);
    (void)pthread_mutex_unlock(&lock);
    return ret_left->count > 0;
}
