// SPDX-License-Identifier: Apache-2.0
#include "shop.h"

#include <ftw.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/log.h"

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void shop_make(struct shop *shop)
{
    *shop = (struct shop){0};
    log_set_level(LOG_LEVEL_ERROR);
    strcpy(shop->path, "/tmp/cairn-store-XXXXXX");
    strcpy(shop->stage_dir, "/dev/shm/cairn-store-XXXXXX");
    cr_assert_not_null(mkdtemp(shop->path));
    cr_assert_not_null(mkdtemp(shop->stage_dir));
    shop->options = (struct store_options){.path = shop->path,
                                           .stage_dir = shop->stage_dir,
                                           .stage_bytes = 64 * MIB,
                                           .cap_bytes = 600 * MIB,
                                           .writeback_threads = 2};
}

void shop_remove(struct shop *shop)
{
    if (shop->store)
        shop_close(shop);
    (void)nftw(shop->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    (void)nftw(shop->stage_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(shop->text);
}

int shop_open_only(struct shop *shop)
{
    free(shop->text);
    shop->text = NULL;
    int r = store_open(&shop->options, &shop->store, &shop->text);
    if (r < 0)
        shop->store = NULL;
    return r;
}

static void no_room(void *arg)
{
    (void)arg;
}

void shop_start(struct shop *shop)
{
    cr_assert_eq(store_start(shop->store, no_room, NULL), 0);
}

void shop_open(struct shop *shop)
{
    int r = shop_open_only(shop);
    cr_assert_eq(r, 0, "%s: %s", strerror(-r), shop->text ? shop->text : "");
    shop_start(shop);
}

void shop_close(struct shop *shop)
{
    store_close(shop->store);
    shop->store = NULL;
}

void shop_die_after(struct shop *shop, void (*work)(struct shop *shop))
{
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        shop_open(shop);
        work(shop);
        _exit(0);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
}

void shop_lose_power(struct shop *shop)
{
    (void)nftw(shop->stage_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    cr_assert_eq(mkdir(shop->stage_dir, 0700), 0);
}

static void report(const char *line, bool is_problem, void *arg)
{
    (void)arg;
    if (is_problem)
        log_error("fsck: %s", line);
}

int shop_fsck(struct shop *shop)
{
    return store_fsck(shop->path, report, NULL);
}

void shop_delete(struct shop *shop, const char *name)
{
    char *path = xasprintf("%s/%s", shop->path, name);
    cr_assert_eq(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(path);
}

/* --- files ---------------------------------------------------------------------------------------------------------- */

void shop_commit(struct shop *shop, struct record rec)
{
    struct ns_inode inode;
    struct ns *ns = store_ns(shop->store);
    bool makes = rec.type == REC_NASCENT || rec.type == REC_MAKE;
    const uint64_t inos[] = {makes ? 0 : rec.ino, rec.parent, rec.parent2, rec.ino2};
    for (size_t i = 0; i < ARRAY_LEN(inos); i++)
        if (inos[i])
            cr_assert_eq(ns_hold(ns, inos[i], &inode), 0);
    int r;
    while ((r = store_commit(shop->store, &rec)) == -EAGAIN)
        (void)usleep(1000);
    cr_assert_eq(r, 0);
    for (size_t i = 0; i < ARRAY_LEN(inos); i++)
        if (inos[i])
            ns_drop(ns, inos[i]);
}

uint64_t shop_create(struct shop *shop, const char *name)
{
    struct ns_inode inode;
    struct record rec = {.type = REC_NASCENT,
                         .ino = store_new_ino(shop->store),
                         .parent = ROOT_INO,
                         .name = name,
                         .name_len = (uint16_t)strlen(name),
                         .attrs = {.mode = S_IFREG | 0600, .mtime = 5, .ctime = 5, .btime = 5}};
    shop_commit(shop, rec);
    cr_assert_eq(ns_hold(store_ns(shop->store), rec.ino, &inode), 0);
    return rec.ino;
}

void shop_drop(struct shop *shop, uint64_t ino)
{
    ns_drop(store_ns(shop->store), ino);
}

uint64_t shop_lookup(struct shop *shop, const char *name)
{
    struct view_entry entry;
    int r = ns_lookup(store_ns(shop->store), ROOT_INO, name, strlen(name), &entry);
    cr_assert(r == 0 || r == -ENOENT);
    return r == 0 ? entry.ino : 0;
}

static int try_write(struct shop *shop, uint64_t ino, uint64_t offset, const void *data, uint32_t length)
{
    int r = store_admit(shop->store, length);
    if (r < 0)
        return r;
    struct stage_write w = {.ino = ino, .offset = offset, .length = length, .slab = SLAB_NONE, .data = data};
    return store_write(shop->store, &w);
}

void shop_write(struct shop *shop, uint64_t ino, uint64_t offset, const void *data, size_t length)
{
    for (size_t done = 0; done < length;) {
        uint32_t n = (uint32_t)min_u64(length - done, SLAB_PAYLOAD / 2);
        int r = try_write(shop, ino, offset + done, (const uint8_t *)data + done, n);
        store_note_waiting(shop->store, r == -EAGAIN);
        cr_assert(r == 0 || r == -EAGAIN, "%s", strerror(-r));
        if (r == 0)
            done += n;
        else
            (void)usleep(2000);
    }
}

/* The same bytes for the same number and offset, whatever the write that brought them. */
static void make_fill(uint8_t *buf, uint64_t offset, unsigned number, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        uint64_t z = ((offset + i) / 8 + 1) * 0x9e3779b97f4a7c15 + number * 0xd1342543de82ef95ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        buf[i] = (uint8_t)(z >> ((offset + i) % 8 * 8));
    }
}

void shop_fill(struct shop *shop, uint64_t ino, uint64_t offset, unsigned number, size_t length)
{
    uint8_t *data = xmalloc(length + 1);
    make_fill(data, offset, number, length);
    shop_write(shop, ino, offset, data, length);
    free(data);
}

int shop_try_fill(struct shop *shop, uint64_t ino, uint64_t offset, unsigned number, uint32_t length)
{
    uint8_t *data = xmalloc(length);
    make_fill(data, offset, number, length);
    int r = try_write(shop, ino, offset, data, length);
    free(data);
    return r;
}

void shop_seal(struct shop *shop, uint64_t ino)
{
    int r;
    while ((r = store_seal(shop->store, ino)) == -EAGAIN)
        (void)usleep(1000);
    cr_assert_eq(r, 0);
}

void shop_put(struct shop *shop, const char *name, unsigned number, size_t length)
{
    uint64_t ino = shop_create(shop, name);
    shop_fill(shop, ino, 0, number, length);
    shop_seal(shop, ino);
    shop_drop(shop, ino);
}

void shop_unlink(struct shop *shop, const char *name, uint32_t flags)
{
    struct record rec = {.type = REC_UNLINK,
                         .flags = flags,
                         .ino = shop_lookup(shop, name),
                         .parent = ROOT_INO,
                         .name = name,
                         .name_len = (uint16_t)strlen(name)};
    shop_commit(shop, rec);
}

static void post(int result, void *arg)
{
    if (result == 0)
        sem_post(arg);
}

void shop_wait(struct shop *shop)
{
    sem_t done;
    uint64_t ticket;
    sem_init(&done, 0, 0);
    store_wait(shop->store, store_newest(shop->store), post, &done, &ticket);
    cr_assert_eq(sem_wait(&done), 0);
    sem_destroy(&done);
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

static void read_part(struct shop *shop, uint64_t ino, const struct stage_part *part, uint8_t *to)
{
    size_t good;
    int r = 0;
    memset(to, 0, part->length);
    if (part->kind == PART_MEMORY)
        memcpy(to, part->memory, part->length);
    else if (part->kind == PART_CHUNK)
        r = store_read_chunk(shop->store, ino, &part->name, part->chunk_offset, to, part->length,
                             STORE_REACH_FAR);
    else if (part->kind == PART_BELOW)
        r = store_read_below(shop->store, ino, part->offset, to, part->length, STORE_REACH_FAR, &good);
    cr_assert_eq(r, 0, "%s", strerror(-r));
}

void shop_read(struct shop *shop, uint64_t ino, uint64_t offset, void *buf, size_t length)
{
    struct stage *stage = store_stage(shop->store);
    struct stage_part parts[16];
    for (size_t done = 0; done < length;) {
        size_t count = stage_read(stage, ino, offset + done, length - done, parts, ARRAY_LEN(parts));
        for (size_t i = 0; i < count; i++) {
            read_part(shop, ino, &parts[i], (uint8_t *)buf + done);
            done += parts[i].length;
        }
        stage_unpin_parts(stage, parts, count);
    }
}

uint64_t shop_size(struct shop *shop, uint64_t ino)
{
    struct stage_file_state state;
    struct ns_inode inode;
    if (stage_file_state(store_stage(shop->store), ino, &state) && state.has_draft)
        return state.draft_size;
    cr_assert_eq(ns_inode(store_ns(shop->store), ino, &inode), 0);
    return inode.attrs.size;
}

void shop_expect_fill(struct shop *shop, uint64_t ino, uint64_t offset, unsigned number, size_t length)
{
    uint8_t *is = xmalloc(length + 1), *expected = xmalloc(length + 1);
    make_fill(expected, offset, number, length);
    shop_read(shop, ino, offset, is, length);
    size_t i = 0;
    while (i < length && is[i] == expected[i])
        i++;
    cr_assert_eq(i, length, "inode %llx, fill %u, byte %zu of %zu is %u", (unsigned long long)ino, number, i, length, is[i]);
    free(is);
    free(expected);
}

void shop_expect(struct shop *shop, const char *name, unsigned number, size_t length)
{
    uint64_t ino = shop_lookup(shop, name);
    cr_assert_neq(ino, 0, "%s is missing", name);
    cr_assert_eq(shop_size(shop, ino), length, "%s has %llu bytes", name,
                 (unsigned long long)shop_size(shop, ino));
    shop_expect_fill(shop, ino, 0, number, length);
}
