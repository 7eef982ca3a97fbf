// SPDX-License-Identifier: Apache-2.0
/* The lists of damaged chunks by themselves. */
#include <stdio.h>

#include "../expect.h"
#include "base/cause.h"
#include "commit/commit.h"
#include "objects.h"

TestSuite(commit_damage, .init = objects_setup_with_stage, .fini = objects_teardown,
          .timeout = 120);

Test(commit_damage, damage_on_nvme_is_known_until_it_is_cured_and_bounded)
{
    struct chunk_name name = {{0}};
    for (unsigned i = 0; i < DAMAGE_LOCAL_MAX + 5; i++) {
        name.bytes[0] = (uint8_t)i;
        damage_note_local(o.damage, &name);
        damage_note_local(o.damage, &name);
    }
    expect_u64(o.damage->on_nvme_count, DAMAGE_LOCAL_MAX);
    name.bytes[0] = 3;
    cr_expect(damage_is_known(o.damage, &name));
    damage_cured(o.damage, &name);
    cr_expect_not(damage_is_known(o.damage, &name));
    damage_cured(o.damage, &name);
    expect_u64(atomic_load(&o.damage->healed_total), 1);
    name.bytes[0] = 4;
    cr_expect(damage_is_known(o.damage, &name));
}

static struct {
    unsigned count;
    char path[64], what[128];
} listed;

static void list(const char *path, const char *what, void *arg)
{
    (void)arg;
    listed.count++;
    (void)snprintf(listed.path, sizeof listed.path, "%s", path);
    (void)snprintf(listed.what, sizeof listed.what, "%s", what);
}

Test(commit_damage, what_no_tier_has_is_named_once_by_the_file_until_it_is_read_again)
{
    struct chunk_name name = {{0xab}};
    damage_note(o.damage, ROOT_INO, &name, -EBADMSG);
    damage_note(o.damage, ROOT_INO, &name, -EBADMSG);
    damage_list(o.damage, list, NULL);
    expect_u64(listed.count, 1);
    expect_str(listed.path, "/");
    expect_str(listed.what, "chunk ab00000000000000: damaged");
    cr_expect(damage_is_known(o.damage, &name), "nothing new relies on it");
    damage_note(o.damage, ROOT_INO, &name, -ENODATA);
    listed.count = 0;
    damage_list(o.damage, list, NULL);
    expect_u64(listed.count, 2, "for another reason");
    damage_forget(o.damage, &name);
    listed.count = 0;
    damage_list(o.damage, list, NULL);
    expect_u64(listed.count, 0);
    cr_expect_not(damage_is_known(o.damage, &name));
}
