// SPDX-License-Identifier: Apache-2.0
#include "objects.h"

#include <stdio.h>
#include <sys/stat.h>

#include "../../remove_tree.h"
#include "../expect.h"
#include "base/log.h"
#include "codec/hash.h"
#include "overlay/ns.h"
#include "stage/stage.h"

struct objects o;

static uint64_t give_packs(void *arg)
{
    (void)arg;
    return o.used;
}

static uint64_t give_journal(void *arg)
{
    (void)arg;
    return o.journal->bytes;
}

static uint64_t give_staged(void *arg)
{
    (void)arg;
    return o.staged;
}

static bool give_carried(void *arg, int64_t before)
{
    (void)arg;
    (void)before;
    return o.is_carried;
}

static bool give_may_free(void *arg)
{
    (void)arg;
    return o.may_free;
}

static const struct room_sources sources = {.packs = give_packs,
                                            .journal = give_journal,
                                            .staged = give_staged,
                                            .is_carried = give_carried,
                                            .may_free = give_may_free};

static void make_stage(void)
{
    strcpy(o.stage_dir, "/dev/shm/cairn-objects-XXXXXX");
    cr_assert_not_null(mkdtemp(o.stage_dir));
    struct stage_config config = {.dir = o.stage_dir, .size_bytes = 32 * MIB, .epoch = 1};
    memset(config.name, 0xcd, sizeof config.name);
    assert_i64(stage_create(&config, &o.local.stage), 0);
    _cleanup_free_ char *path = xasprintf("%s/view", o.path);
    struct view_options options = {.cache_bytes = 4 * MIB, .create = true};
    assert_i64(view_open(path, &options, 1, &o.local.view), 0);
    o.local.ns = ns_new(o.local.view);
}

static void make(bool with_stage)
{
    o = (struct objects){.is_carried = true};
    log_set_level(LOG_LEVEL_ERROR);
    strcpy(o.path, "/tmp/cairn-objects-XXXXXX");
    cr_assert_not_null(mkdtemp(o.path));
    o.local = (struct local){.path = o.path, .epoch = 1};
    o.local.sb.writer = 1;
    memset(&o.local.sb.key, 0x5a, sizeof o.local.sb.key);
    assert_i64(nvme_tier_open(o.path, &o.local.tier), 0);
    if (with_stage)
        make_stage();
    o.priority = priority_new();
    o.change = change_new();
    o.damage = damage_new(&o.local);
    o.horizon = horizon_new(0, 0, o.priority);
    o.journal = journal_new(&o.local);
    o.room = room_new(&o.local, o.horizon, &sources, NULL);
    o.packs = packs_new(&o.local, o.room, o.horizon, o.damage);
    o.history = history_new(&o.local, o.horizon, o.packs, o.change);
}

void objects_setup(void)
{
    make(false);
}

void objects_setup_with_stage(void)
{
    make(true);
}

void objects_teardown(void)
{
    room_stop(o.room);
    packs_stop(o.packs);
    history_free(o.history);
    packs_free(o.packs);
    room_free(o.room);
    free(o.journal);
    horizon_free(o.horizon);
    damage_free(o.damage);
    change_free(o.change);
    priority_free(o.priority);
    if (o.local.ns)
        ns_free(o.local.ns);
    if (o.local.view)
        view_close(o.local.view);
    if (o.local.stage)
        stage_close(o.local.stage, true);
    o.local.tier->ops->close(o.local.tier);
    remove_tree(o.path);
    if (o.stage_dir[0])
        remove_tree(o.stage_dir);
}

static int fail_once(const char *op, const char *object, void *arg)
{
    const char **failing = arg;
    (void)object;
    if (!*failing || strcmp(op, *failing) != 0)
        return 0;
    *failing = NULL;
    return -EIO;
}

void objects_fail(const char **op)
{
    o.local.tier = fault_tier_new(o.local.tier, fail_once, op);
}

void objects_chunk(unsigned number, uint8_t *bytes, size_t len, struct chunk_entry *ret)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)((i + number) * 0x9e3779b1u >> 11);
    struct iovec iov = {bytes, len};
    *ret = (struct chunk_entry){.name = hash_chunk(&o.local.sb.key, &iov, 1),
                                .stored_len = (uint32_t)len,
                                .raw_len = (uint32_t)len,
                                .encoding = ENCODING_RAW};
}
