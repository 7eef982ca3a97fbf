/* The small files of a store that are text: who holds it (lock) and where the last session had its stage (session). */
#include "base/io.h"
#include "daemon/store_folder.h"
#include "fuzz.h"
#include "persist/recover.c"

static char root[128];
static char *lock_path;
static struct store store = {.path = root};

static void leave(void)
{
    _cleanup_free_ char *path = session_path(&store);
    (void)unlink(path);
    (void)unlink(lock_path);
    (void)rmdir(root);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    make_folder(false, root);
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
    _cleanup_free_ char *path = session_path(&store), *dir = NULL;
    pid_t holder;
    put(path, data, size);
    int r = read_session(&store, &dir);
    check(size > 4096 ? r == -EFBIG && !dir : r == 0 && dir && strlen(dir) <= size && !strchr(dir, '\n'));
    check(!session_was_reader(&store) || (r == 0 && size > strlen(READER_MARK)));
    put(lock_path, data, size);
    check(store_lock_holder(root, &holder) == 0);
    return 0;
}
