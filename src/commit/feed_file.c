// SPDX-License-Identifier: Apache-2.0
/* The feeds in STORE/feeds, named by a head of several nodes. */
#include <dirent.h>
#include <sys/stat.h>

#include "base/io.h"
#include "commit/run_lists.h"

static char *feed_path(const struct local *local, const struct head_writer *writer)
{
    char name[FEED_NAME_LEN];
    feed_name(writer->feed_round, writer->epoch, name);
    return xasprintf("%s/%s", local->path, name);
}

/* Rows are in the order of epochs. */
bool head_reads_writer(const struct head *head, uint32_t i)
{
    check(i < head->writer_count);
    for (uint32_t later = i + 1; later < head->writer_count; later++)
        if (head->writers[later].node == head->writers[i].node && head->writers[later].feed_round)
            return false;
    return head->writers[i].feed_round > 0;
}

int feed_decode_named(const struct head *head, uint32_t i, const void *bytes, size_t len,
                      struct feed *ret_feed)
{
    const struct head_writer *writer = &head->writers[i];
    const struct iovec iov = {(void *)bytes, len};
    uint8_t hash[HASH_LEN];
    hash_parts(&iov, 1, hash);
    if (memcmp(hash, writer->feed_hash, sizeof hash) != 0)
        return -EBADMSG;
    TRY(feed_decode(bytes, len, ret_feed));
    bool is_named = memcmp(ret_feed->history, head->history, sizeof head->history) == 0 &&
                    ret_feed->epoch == writer->epoch && ret_feed->node == writer->node;
    return is_named ? 0 : -EUCLEAN;
}

int feed_keep(const struct local *local, const struct head_writer *writer, const void *bytes,
              size_t len)
{
    _cleanup_free_ char *directory = xasprintf("%s/feeds", local->path);
    _cleanup_free_ char *path = feed_path(local, writer);
    if (mkdir(directory, 0700) == 0)
        TRY(io_fsync_dir(local->path));
    else if (errno != EEXIST)
        return -errno;
    return io_write_file_durable(path, bytes, len);
}

int feed_look(const struct local *local, const struct head *head, uint32_t i, struct feed *ret_feed)
{
    _cleanup_free_ char *path = feed_path(local, &head->writers[i]);
    _cleanup_free_ char *bytes = NULL;
    size_t len;
    int r = io_read_file(path, FEED_LEN_MAX, &bytes, &len);
    if (r == 0)
        r = feed_decode_named(head, i, bytes, len, ret_feed);
    ret_feed->records = NULL;
    ret_feed->records_len = ret_feed->record_count = 0;
    return r;
}

static bool names_feed(const struct head *head, uint64_t round, uint64_t epoch)
{
    const struct head_writer *writer = head_writer_of(head, epoch);
    return writer && writer->feed_round == round;
}

/* Other files there must not be removed, except those that a crash left half written. */
static bool is_needless(const struct head *head, const char *file)
{
    uint64_t round, epoch;
    _cleanup_free_ char *name = xasprintf("feeds/%s", file);
    char *end = strstr(name, ".new");
    bool is_unfinished = end && end[strlen(".new")] == '\0';
    if (is_unfinished)
        *end = '\0';
    return feed_numbers(name, &round, &epoch) && (is_unfinished || !names_feed(head, round, epoch));
}

void feeds_tidy(const struct local *local, const struct head *head)
{
    _cleanup_free_ char *directory = xasprintf("%s/feeds", local->path);
    DIR *dir = opendir(directory);
    struct dirent *entry;
    if (!dir)
        return;
    while ((entry = readdir(dir)))
        if (is_needless(head, entry->d_name))
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    (void)closedir(dir);
}
