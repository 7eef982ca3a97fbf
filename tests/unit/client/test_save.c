// SPDX-License-Identifier: Apache-2.0
/* The state of saves, by the calls of <cairn/cairn.h>. */
#include <cairn/cairn.h>
#include <malloc.h>

#include "../expect.h"
#include "base/base.h"

static cairn_save *begin(cairn_lane *lane, const char *path, const struct cairn_source *source)
{
    cairn_save *save;
    assert_i64(cairn_save_begin(lane, path, source->length, NULL, &save), 0);
    assert_i64(cairn_save_put(save, source, 1), 0);
    return save;
}

/* The report may hold the last reference. */
Test(save, error_is_told_of_one_that_was_freed)
{
    char directory[] = "/tmp/cairn-save-XXXXXX", path[64], text[256];
    const struct cairn_source source = {.length = 4, .host = "text"};
    cairn_lane *lane;
    (void)mallopt(M_PERTURB, 0xa5); /* freed memory changes at once */
    cr_assert(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/file", directory);
    assert_i64(cairn_lane_open(NULL, &lane), 0);
    cairn_save *failed = begin(lane, path, &source), *whole = begin(lane, path, &source);
    assert_i64(cairn_save_fail(failed, -EXDEV, "for a reason"), 0);
    cairn_save_free(failed);
    assert_i64(cairn_save_commit(whole), 0);
    assert_i64(cairn_save_wait(whole, CAIRN_PUBLISHED, -1), 0); /* the other one is gone by then */
    assert_i64(cairn_lane_take_error(lane, text, sizeof text), -EXDEV);
    cr_assert(strstr(text, "for a reason"), "%s", text);
    assert_str(cairn_error(), text);
    assert_i64(cairn_lane_take_error(lane, text, sizeof text), 0);
    cairn_save_free(whole);
    assert_i64(cairn_lane_close(lane), 0);
    cr_assert(unlink(path) == 0 && rmdir(directory) == 0);
}
