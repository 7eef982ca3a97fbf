// SPDX-License-Identifier: Apache-2.0
/* Damage of the view, met by a chosen reader: a library for LD_PRELOAD between the daemon and
 * RocksDB.
 *
 * A site is a path of calls that leads to a read of the database. The test maps the same control
 * file and says at which site the damage is met. What is read there is damaged from then on, for
 * every reader, until a new view is made: gets of that key and iterators that come to it fail with
 * what RocksDB says of a block whose checksum is wrong.
 *
 * Environment: VIEW_CONTROL (file of struct control). tests/viewfault.py is the other side. */
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "real.h"

#define EXPORT __attribute__((visibility("default")))
#define SITES_MAX 4096u
#define FRAMES 6u /* of the program, above the call */
#define KEYS_MAX 2u
#define KEY_MAX 600u
#define ITERATORS_MAX 1024u
#define MESSAGE "Corruption: block checksum mismatch (a test)"

struct key {
    uint32_t length;
    uint8_t bytes[KEY_MAX];
};

struct site {
    uint64_t hash; /* 0: none */
    _Atomic uint64_t count;
    uint64_t frames[FRAMES]; /* offsets in the program; 0: none */
};

struct control {
    _Atomic uint64_t armed;  /* hash of the site; 0: none */
    _Atomic uint32_t skip;   /* reads there that go well before */
    _Atomic uint32_t fired;  /* the damage was met */
    _Atomic uint32_t healed; /* a new view is being made since */
    _Atomic uint32_t failed; /* reads that failed */
    _Atomic uint32_t site_count;
    uint32_t key_count;
    struct key keys[KEYS_MAX];
    struct site sites[SITES_MAX];
};

typedef struct rocksdb_t rocksdb_t;
typedef struct rocksdb_iterator_t rocksdb_iterator_t;

static struct control *control;
static uintptr_t program;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Iterators that came to the damage. */
static const rocksdb_iterator_t *stuck[ITERATORS_MAX];

/* Where the program lies: its addresses are told as offsets, which are the same each time. */
static int note_program(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    program = info->dlpi_addr;
    return 1; /* it comes first */
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("VIEW_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *p = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *frames[2];
    if (p == MAP_FAILED || backtrace(frames, 2) < 1) /* it loads a library the first time */
        abort();
    (void)close(fd);
    (void)dl_iterate_phdr(note_program, NULL);
    control = p;
}

static int is_of_program(void *address)
{
    Dl_info info;
    return dladdr(address, &info) && (uintptr_t)info.dli_fbase == program;
}

static struct site *find_site(const uint64_t frames[FRAMES])
{
    uint64_t hash = 1469598103934665603ull;
    for (unsigned i = 0; i < FRAMES; i++)
        hash = (hash ^ frames[i]) * 1099511628211ull;
    hash = hash ? hash : 1;
    for (unsigned i = 0; i < SITES_MAX; i++) {
        struct site *s = &control->sites[(hash + i) % SITES_MAX];
        if (s->hash == hash)
            return s;
        if (s->hash == 0) {
            memcpy(s->frames, frames, sizeof s->frames);
            s->hash = hash;
            atomic_fetch_add(&control->site_count, 1);
            return s;
        }
    }
    return NULL;
}

/* Notes the read; true: it meets the damage first. */
static int meets_damage(void)
{
    void *all[FRAMES + 8];
    uint64_t frames[FRAMES] = {0};
    int count = backtrace(all, FRAMES + 8);
    unsigned n = 0;
    for (int i = 0; i < count && n < FRAMES; i++)
        if (is_of_program(all[i]))
            frames[n++] = (uintptr_t)all[i] - program;
    struct site *site = find_site(frames);
    if (!site)
        return 0;
    atomic_fetch_add(&site->count, 1);
    if (site->hash != atomic_load(&control->armed) || atomic_load(&control->fired))
        return 0;
    if (atomic_load(&control->skip) > 0) {
        atomic_fetch_sub(&control->skip, 1);
        return 0;
    }
    return 1;
}

static void damage_key(const void *bytes, size_t length)
{
    if (control->key_count >= KEYS_MAX || length > KEY_MAX)
        return;
    struct key *k = &control->keys[control->key_count];
    k->length = (uint32_t)length;
    memcpy(k->bytes, bytes, length);
    control->key_count++;
}

static int is_damaged_key(const void *bytes, size_t length)
{
    if (!atomic_load(&control->fired) || atomic_load(&control->healed))
        return 0;
    for (uint32_t i = 0; i < control->key_count; i++)
        if (control->keys[i].length == length && memcmp(control->keys[i].bytes, bytes, length) == 0)
            return 1;
    return 0;
}

EXPORT rocksdb_t *rocksdb_open(const void *options, const char *name, char **error)
{
    REAL(rocksdb_t *, rocksdb_open, const void *, const char *, char **);
    size_t length = strlen(name);
    if (control && atomic_load(&control->fired) && length > 9 &&
        strcmp(name + length - 9, "/view.new") == 0)
        atomic_store(&control->healed, 1);
    return f(options, name, error);
}

EXPORT char *rocksdb_get(rocksdb_t *db, const void *options, const char *key, size_t length,
                         size_t *value_length, char **error)
{
    REAL(char *, rocksdb_get, rocksdb_t *, const void *, const char *, size_t, size_t *, char **);
    int fails = 0;
    if (control) {
        pthread_mutex_lock(&lock);
        if (meets_damage()) {
            damage_key(key, length);
            atomic_store(&control->fired, 1);
        }
        fails = is_damaged_key(key, length);
        pthread_mutex_unlock(&lock);
    }
    if (!fails)
        return f(db, options, key, length, value_length, error);
    atomic_fetch_add(&control->failed, 1);
    *error = strdup(MESSAGE);
    return NULL;
}

/* --- iterators -------------------------------------------------------------------------------- */

static const char *key_of(const rocksdb_iterator_t *iterator, size_t *length)
{
    REAL(const char *, rocksdb_iter_key, const rocksdb_iterator_t *, size_t *);
    return f(iterator, length);
}

static unsigned char is_valid(const rocksdb_iterator_t *iterator)
{
    REAL(unsigned char, rocksdb_iter_valid, const rocksdb_iterator_t *);
    return f(iterator);
}

static void set_stuck(const rocksdb_iterator_t *iterator, int on)
{
    const rocksdb_iterator_t **at = NULL;
    for (unsigned i = 0; i < ITERATORS_MAX; i++) {
        if (stuck[i] == iterator)
            stuck[i] = NULL;
        if (!stuck[i])
            at = &stuck[i];
    }
    if (on && at)
        *at = iterator;
}

static int is_stuck(const rocksdb_iterator_t *iterator)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < ITERATORS_MAX; i++)
        found |= stuck[i] == iterator;
    pthread_mutex_unlock(&lock);
    return found;
}

/* It was moved, by a seek to a key (NULL: by a step). */
static void moved(const rocksdb_iterator_t *iterator, const void *key, size_t length)
{
    if (!control)
        return;
    pthread_mutex_lock(&lock);
    int valid = is_valid(iterator), on = 0;
    size_t found_length = 0;
    const char *found = valid ? key_of(iterator, &found_length) : NULL;
    if (meets_damage()) {
        if (key)
            damage_key(key, length);
        if (found)
            damage_key(found, found_length);
        atomic_store(&control->fired, 1);
    }
    on = (key && is_damaged_key(key, length)) || (found && is_damaged_key(found, found_length));
    set_stuck(iterator, on);
    if (on)
        atomic_fetch_add(&control->failed, 1);
    pthread_mutex_unlock(&lock);
}

EXPORT void rocksdb_iter_seek(rocksdb_iterator_t *iterator, const char *key, size_t length)
{
    REAL(void, rocksdb_iter_seek, rocksdb_iterator_t *, const char *, size_t);
    f(iterator, key, length);
    moved(iterator, key, length);
}

EXPORT void rocksdb_iter_next(rocksdb_iterator_t *iterator)
{
    REAL(void, rocksdb_iter_next, rocksdb_iterator_t *);
    f(iterator);
    moved(iterator, NULL, 0);
}

EXPORT unsigned char rocksdb_iter_valid(const rocksdb_iterator_t *iterator)
{
    return is_valid(iterator) && !(control && is_stuck(iterator));
}

EXPORT void rocksdb_iter_get_error(const rocksdb_iterator_t *iterator, char **error)
{
    REAL(void, rocksdb_iter_get_error, const rocksdb_iterator_t *, char **);
    if (control && is_stuck(iterator))
        *error = strdup(MESSAGE);
    else
        f(iterator, error);
}

EXPORT void rocksdb_iter_destroy(rocksdb_iterator_t *iterator)
{
    REAL(void, rocksdb_iter_destroy, rocksdb_iterator_t *);
    pthread_mutex_lock(&lock);
    set_stuck(iterator, 0);
    pthread_mutex_unlock(&lock);
    f(iterator);
}
