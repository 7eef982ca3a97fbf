// SPDX-License-Identifier: Apache-2.0
#include "commit/feed_log.h"

#include "base/lock.h"
#include "format/record.h"

struct feed_log {
    struct cairn_mutex lock; /* a leaf */
    struct bytes records;    /* encoded, ascending */
    uint64_t newest;         /* number of the last operation added so far */
};

struct feed_log *feed_log_new(void)
{
    struct feed_log *log = xcalloc(1, sizeof *log);
    mutex_init(&log->lock, LOCK_LEAF);
    return log;
}

void feed_log_free(struct feed_log *log)
{
    if (!log)
        return;
    vector_free(&log->records);
    mutex_done(&log->lock);
    free(log);
}

/* Converts the record to its form in a feed. False: it is not part of a feed. Content is published
 * by runs. */
static bool make_fed(struct record *rec)
{
    switch (rec->type) {
    case REC_SEAL:
        *rec = (struct record){.type = REC_VERSION,
                               .flags = rec->flags & RECORD_BIRTH,
                               .writer = rec->writer,
                               .seq = rec->seq,
                               .time = rec->time,
                               .ino = rec->ino,
                               .version = rec->version,
                               .attrs = rec->attrs,
                               .parent = rec->parent,
                               .cookie = rec->cookie,
                               .name = rec->name,
                               .name_len = rec->name_len};
        return true;
    case REC_EXTENTS:
    case REC_PACK:
    case REC_DROP:
        return false;
    default:
        return !(rec->flags & RECORD_TAKEN);
    }
}

int feed_log_add(struct feed_log *log, const void *records, size_t len)
{
    LOCK_SCOPE(&log->lock);
    size_t used;
    for (size_t at = 0; at < len; at += used) {
        struct record rec;
        TRY(record_decode((const uint8_t *)records + at, len - at, &rec, &used));
        if (rec.seq <= log->newest || !make_fed(&rec))
            continue;
        record_encode(&rec, bytes_extend(&log->records, record_encoded_len(&rec)));
        log->newest = rec.seq;
    }
    return 0;
}

/* Offset of the first record after `cut`; *ret_count: the number of records before it. */
static size_t end_of(const struct feed_log *log, uint64_t cut, uint32_t *ret_count)
{
    struct record rec;
    size_t at = 0, used;
    for (*ret_count = 0; at < log->records.count; at += used, ++*ret_count) {
        /* cannot fail: it was encoded here */
        check(record_decode(log->records.at + at, log->records.count - at, &rec, &used) == 0);
        if (rec.seq > cut)
            break;
    }
    return at;
}

void feed_log_forget(struct feed_log *log, uint64_t cut)
{
    LOCK_SCOPE(&log->lock);
    uint32_t count;
    size_t end = end_of(log, cut, &count);
    if (end == 0) /* the buffer may be NULL */
        return;
    log->records.count -= end;
    memmove(log->records.at, log->records.at + end, log->records.count);
}

uint32_t feed_log_up_to(struct feed_log *log, uint64_t cut, struct bytes *ret)
{
    LOCK_SCOPE(&log->lock);
    uint32_t count;
    size_t end = end_of(log, cut, &count);
    vector_add_all(ret, log->records.at, end);
    return count;
}
