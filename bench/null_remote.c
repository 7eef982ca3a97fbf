// SPDX-License-Identifier: Apache-2.0
/* The least that a FUSE daemon can do that brings a file from an S3 server and verifies it:
 * parallel ranged GETs into memory, BLAKE3 of each MiB, the answer straight from there. No names,
 * no places, nothing kept on disk. bench_remote.py compares with it.
 *
 *   null_remote MOUNTPOINT LIST CONNECTIONS
 *
 * One file, "file"; runs until unmounted. LIST has a line for each range, in order: its length, its
 * URL and the headers of the request, with tabs between. */
#define _GNU_SOURCE
#include <blake3.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "null.h"

#define MIB (1ul << 20)
#define HUGE_PAGE (2 * MIB)
#define RANGES_MAX 4096
#define AHEAD_MAX 24 /* ranges that are fetched or wait for the reader */
#define THREADS 4
#define RECEIVE_BUFFER (256l * 1024)

struct range {
    uint64_t offset, length, taken; /* taken: bytes that the reader has */
    char *url;
    struct curl_slist *headers;
    char *bytes;
    size_t have;
    unsigned users; /* answers under way */
    int is_whole;
};

struct waiting {
    fuse_req_t req;
    uint64_t offset;
    size_t size;
    struct waiting *next;
};

static struct range ranges[RANGES_MAX];
static size_t range_count, next_range;
static struct range *again[RANGES_MAX]; /* given up, and asked for once more: the kernel had let go
                                           of what it read ahead */
static size_t again_count;
static unsigned connections, under_way, ahead;
static uint64_t file_size;
static char *spare[RANGES_MAX];
static size_t spares;
static curl_socket_t sockets[64];
static size_t socket_count;
static CURLM *multi;
static volatile int is_over, is_asked;
/* Ranges that came and are to be verified; reads that wait; both under the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static struct range *arrived[RANGES_MAX]; /* a ring */
static size_t arrived_first, arrived_end;
static struct waiting *waiting;

static void fail(const char *what)
{
    fprintf(stderr, "null_remote: %s\n", what);
    exit(1);
}

/* --- the list --------------------------------------------------------------------------------- */

static void read_list(const char *path)
{
    char *line = NULL;
    size_t room = 0;
    FILE *f = fopen(path, "r");
    if (!f)
        fail("no list");
    while (getline(&line, &room, f) > 0 && range_count < RANGES_MAX) {
        struct range *range = &ranges[range_count++];
        char *rest = line, *field;
        line[strcspn(line, "\n")] = '\0';
        range->offset = file_size;
        range->length = strtoull(strsep(&rest, "\t"), NULL, 10);
        range->url = strdup(strsep(&rest, "\t"));
        while ((field = strsep(&rest, "\t")))
            range->headers = curl_slist_append(range->headers, field);
        file_size += range->length;
    }
    free(line);
    fclose(f);
}

/* --- reads ------------------------------------------------------------------------------------ */

static void give_memory(struct range *range)
{
    spare[spares++] = range->bytes;
    range->bytes = NULL;
    ahead--;
    curl_multi_wakeup(multi);
}

/* With the lock, which is left for the answer. False: not all of it has come. */
static int answer_locked(fuse_req_t req, uint64_t offset, size_t size)
{
    struct iovec iov[3];
    struct range *from[3];
    int count = 0;
    size_t done = 0;
    for (size_t i = 0; i < range_count && done < size && count < 3; i++) {
        struct range *range = &ranges[i];
        uint64_t at = offset + done;
        if (at < range->offset || at >= range->offset + range->length)
            continue;
        if (range->is_whole && !range->bytes) {
            range->is_whole = 0;
            range->have = range->taken = 0;
            again[again_count++] = range;
            curl_multi_wakeup(multi);
        }
        if (!range->is_whole) {
            while (count > 0)
                from[--count]->users--;
            return 0;
        }
        size_t len = range->offset + range->length - at < size - done
                         ? range->offset + range->length - at
                         : size - done;
        iov[count] = (struct iovec){range->bytes + (at - range->offset), len};
        range->users++;
        from[count++] = range;
        done += len;
    }
    pthread_mutex_unlock(&lock);
    fuse_reply_iov(req, iov, count);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        from[i]->taken += iov[i].iov_len;
        if (--from[i]->users == 0 && from[i]->taken >= from[i]->length)
            give_memory(from[i]);
    }
    return 1;
}

static void answer_waiting(void)
{
    pthread_mutex_lock(&lock);
    struct waiting *all = waiting;
    waiting = NULL;
    while (all) {
        struct waiting *w = all;
        all = w->next;
        if (answer_locked(w->req, w->offset, w->size)) {
            free(w);
        } else {
            w->next = waiting;
            waiting = w;
        }
    }
    pthread_mutex_unlock(&lock);
}

static void null_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                      struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    uint64_t at = (uint64_t)offset;
    if (at >= file_size) {
        fuse_reply_buf(req, NULL, 0);
        return;
    }
    size = size < file_size - at ? size : file_size - at;
    pthread_mutex_lock(&lock);
    if (!is_asked) {
        is_asked = 1;
        curl_multi_wakeup(multi);
    }
    if (!answer_locked(req, at, size)) {
        struct waiting *w = malloc(sizeof *w);
        *w = (struct waiting){req, at, size, waiting};
        waiting = w;
    }
    pthread_mutex_unlock(&lock);
}

/* --- verifying -------------------------------------------------------------------------------- */

static void hash_range(const struct range *range)
{
    static const uint8_t key[BLAKE3_KEY_LEN] = {1};
    uint8_t out[BLAKE3_OUT_LEN];
    for (size_t at = 0; at < range->length; at += MIB) {
        blake3_hasher h;
        blake3_hasher_init_keyed(&h, key);
        blake3_hasher_update(&h, range->bytes + at,
                             range->length - at < MIB ? range->length - at : MIB);
        blake3_hasher_finalize(&h, out, sizeof out);
    }
}

static void *verify(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (arrived_first == arrived_end)
            pthread_cond_wait(&came, &lock);
        struct range *range = arrived[arrived_first++ % RANGES_MAX];
        pthread_mutex_unlock(&lock);
        hash_range(range);
        pthread_mutex_lock(&lock);
        range->is_whole = 1;
        pthread_mutex_unlock(&lock);
        answer_waiting();
    }
    return NULL;
}

/* --- fetching --------------------------------------------------------------------------------- */

static curl_socket_t on_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)arg;
    (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0 && socket_count < sizeof sockets / sizeof *sockets)
        sockets[socket_count++] = fd;
    return fd;
}

/* As the mount: a server may wait for an acknowledgement. */
static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
    int on = 1;
    (void)arg;
    for (size_t i = 0; i < socket_count && (*line == '\r' || *line == '\n'); i++)
        setsockopt(sockets[i], IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
    return size * count;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct range *range = arg;
    if (size * count > range->length - range->have)
        return 0;
    memcpy(range->bytes + range->have, data, size * count);
    range->have += size * count;
    return size * count;
}

static void *take_memory(void)
{
    void *p = NULL;
    if (spares > 0)
        return spare[--spares];
    if (posix_memalign(&p, HUGE_PAGE, 8 * MIB) != 0)
        fail("no memory");
    madvise(p, 8 * MIB, MADV_HUGEPAGE);
    return p;
}

static void begin(struct range *range, CURL *easy)
{
    curl_easy_setopt(easy, CURLOPT_URL, range->url);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, range->headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, range);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, RECEIVE_BUFFER);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, range);
    curl_easy_setopt(easy, CURLOPT_FAILONERROR, 1l);
    curl_multi_add_handle(multi, easy);
}

static void begin_more(CURL **easy, size_t *easy_count)
{
    pthread_mutex_lock(&lock);
    for (;;) {
        bool is_next = is_asked && next_range < range_count && ahead < AHEAD_MAX;
        if (under_way >= connections || (again_count == 0 && !is_next))
            break;
        struct range *range = again_count ? again[--again_count] : &ranges[next_range++];
        range->bytes = take_memory();
        under_way++;
        ahead++;
        begin(range, *easy_count > 0 ? easy[--*easy_count] : curl_easy_init());
    }
    pthread_mutex_unlock(&lock);
}

static void reap(CURL **easy, size_t *easy_count)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(multi, &left))) {
        struct range *range;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&range);
        if (message->data.result != CURLE_OK || range->have != range->length)
            fail(curl_easy_strerror(message->data.result));
        curl_multi_remove_handle(multi, message->easy_handle);
        easy[(*easy_count)++] = message->easy_handle;
        under_way--;
        pthread_mutex_lock(&lock);
        arrived[arrived_end++ % RANGES_MAX] = range;
        pthread_cond_signal(&came);
        pthread_mutex_unlock(&lock);
    }
}

static void *fetch(void *arg)
{
    CURL *easy[64];
    size_t easy_count = 0;
    (void)arg;
    while (!is_over) {
        int running;
        begin_more(easy, &easy_count);
        curl_multi_perform(multi, &running);
        reap(easy, &easy_count);
        begin_more(easy, &easy_count);
        curl_multi_poll(multi, NULL, 0, 1000, NULL);
    }
    return NULL;
}

/* --- the file --------------------------------------------------------------------------------- */

static off_t size_of(fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID ? 0 : (off_t)file_size;
}

static void null_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    (void)parent;
    if (strcmp(name, "file") == 0)
        reply_entry(req, (struct fuse_entry_param){.ino = FILE_INO, .entry_timeout = 60});
    else
        fuse_reply_err(req, ENOENT);
}

static void null_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fi->keep_cache = 1;
    fuse_reply_open(req, fi);
}

static void null_init(void *userdata, struct fuse_conn_info *conn)
{
    (void)userdata;
    conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
    conn->max_background = 64;
    conn->congestion_threshold = 48;
    conn->max_readahead = 8 * MIB;
}

static void *serve(void *arg)
{
    struct fuse_session *session = arg;
    struct fuse_buf buf = {.mem = malloc(MIB + 65536), .size = MIB + 65536};
    while (serve_one(session, &buf))
        ;
    is_over = 1;
    curl_multi_wakeup(multi);
    return NULL;
}

int main(int argc, char **argv)
{
    static const struct fuse_lowlevel_ops ops = {.init = null_init,
                                                 .lookup = null_lookup,
                                                 .getattr = null_getattr,
                                                 .open = null_open,
                                                 .read = null_read};
    char *arguments[] = {argv[0], NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, arguments);
    pthread_t server, thread;
    if (argc != 4)
        fail("usage: null_remote MOUNTPOINT LIST CONNECTIONS");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    multi = curl_multi_init();
    read_list(argv[2]);
    connections = (unsigned)atoi(argv[3]);
    struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, NULL);
    if (!session || connections == 0 || connections > 32 ||
        fuse_session_mount(session, argv[1]) != 0)
        fail("cannot mount");
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, verify, NULL) != 0)
            fail("no thread");
    if (pthread_create(&server, NULL, serve, session) != 0)
        fail("no thread");
    fetch(NULL);
    fuse_session_unmount(session);
    return 0;
}
