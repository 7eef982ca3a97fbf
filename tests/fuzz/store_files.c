// SPDX-License-Identifier: Apache-2.0
/* The small files of a store that are text: the daemon that holds it (lock) and where the last
 * session had its stage (session). */
#include "base/io.h"
#include "daemon/store_directory.h"
#include "fuzz.h"
#include "commit/session.c"

static char root[128];
static char *lock_path;

static void leave(void)
{
    _cleanup_free_ char *path = session_path(root);
    (void)unlink(path);
    (void)unlink(lock_path);
    (void)rmdir(root);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    make_directory(false, root);
    lock_path = xasprintf("%s/lock", root);
    (void)atexit(leave);
    return 0;
}

static void put(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "we");
    check(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_free_ char *path = session_path(root);
    static const uint8_t id[16];
    struct session session;
    pid_t holder;
    put(path, data, size);
    int r = session_read(root, id, &session);
    check(size > SESSION_LEN_MAX
              ? r == -EFBIG && !session.dir
              : r == 0 && session.dir && strlen(session.dir) <= size && !strchr(session.dir, '\n'));
    check(!session.is_reader || size > strlen(READER_LINE));
    session_done(&session);
    put(lock_path, data, size);
    check(store_directory_lock_holder(root, &holder) == 0);
    return 0;
}
