// SPDX-License-Identifier: Apache-2.0
/* A name that is replaced while a save begins is a name: the file that took it is never opened to
 * be written. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "client/place.h"

static char directory[] = "/tmp/cairn-replaced-XXXXXX", name[64], other[64], by_link[64];
static _Atomic bool ends;

static void *replace(void *ret_failed)
{
    while (!atomic_load(&ends)) {
        int fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || close(fd) < 0 || rename(other, name) < 0)
            *(bool *)ret_failed = true;
    }
    return NULL;
}

static unsigned look(const char *path)
{
    struct place place;
    if (place_find(path, &place) < 0)
        return 1;
    unsigned wrong = place.exists && !S_ISREG(place.st.st_mode);
    place_done(&place);
    return wrong;
}

int main(void)
{
    pthread_t thread;
    static bool failed;
    unsigned wrong = 0;
    if (!mkdtemp(directory))
        return 1;
    (void)snprintf(name, sizeof name, "%s/name", directory);
    (void)snprintf(other, sizeof other, "%s/other", directory);
    (void)snprintf(by_link, sizeof by_link, "%s/link", directory);
    if (symlink("name", by_link) < 0 || pthread_create(&thread, NULL, replace, &failed) != 0)
        return 1;
    for (unsigned i = 0; i < 100000; i++)
        wrong += look(i % 2 ? name : by_link);
    atomic_store(&ends, true);
    (void)pthread_join(thread, NULL);
    (void)unlink(other), (void)unlink(by_link), (void)unlink(name), (void)rmdir(directory);
    (void)printf("%u of 100000 looks found no regular file%s\n", wrong,
                 failed ? "; it could not be replaced" : "");
    return wrong > 0 || failed;
}
