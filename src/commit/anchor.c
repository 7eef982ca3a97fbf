// SPDX-License-Identifier: Apache-2.0
/* The anchor: the head with which a store's journal begins, in STORE/head; STORE/remote, the name
 * of the remote that the head is from; and the mark STORE/unlisted. */
#include <unistd.h>

#include "base/io.h"
#include "commit/journal_internal.h"
#include "commit/local.h"

void journal_set_anchor(struct journal *journal, const struct head *head)
{
    journal->anchor = (struct anchor){.exists = true,
                                      .number = local_head_is_lost(head) ? 0 : head->number,
                                      .epoch = head->epoch,
                                      .cut = head->cut,
                                      .time = head->time};
    memcpy(journal->anchor.chain, head->chain, CHAIN_LEN);
}

void journal_forget_anchor(struct journal *journal)
{
    journal->anchor = (struct anchor){0};
}

const struct anchor *journal_anchor(const struct journal *journal)
{
    return &journal->anchor;
}

int local_head_read(const struct local *local, struct head *ret_head)
{
    _cleanup_free_ char *path = xasprintf("%s/head", local->path);
    _cleanup_free_ char *bytes = NULL;
    size_t len;
    TRY(io_read_file(path, HEAD_LEN_MAX, &bytes, &len));
    return head_decode(bytes, len, ret_head);
}

int local_head_write(const struct local *local, const struct head *head)
{
    _cleanup_free_ char *path = xasprintf("%s/head", local->path);
    _cleanup_free_ uint8_t *bytes = xmalloc(HEAD_LEN_MAX);
    return io_write_file_durable(path, bytes, head_encode(head, bytes));
}

/* A lost head has the nonce 0, which no head in a remote has. */
bool local_head_is_lost(const struct head *head)
{
    static const uint8_t none[sizeof head->nonce];
    return memcmp(head->nonce, none, sizeof none) == 0;
}

char *local_remote_name(const struct local *local)
{
    _cleanup_free_ char *path = xasprintf("%s/remote", local->path);
    char *name = NULL;
    return io_read_file(path, 4096, &name, NULL) < 0 ? NULL : name;
}

int local_remote_name_write(const struct local *local, const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/remote", local->path);
    return io_write_file_durable(path, name, strlen(name));
}

static char *unlisted_path(const struct local *local)
{
    return xasprintf("%s/unlisted", local->path);
}

int local_ask_listing(const struct local *local)
{
    _cleanup_free_ char *path = unlisted_path(local);
    return io_write_file_durable(path, "", 0);
}

bool local_listing_is_asked(const struct local *local)
{
    _cleanup_free_ char *path = unlisted_path(local);
    return access(path, F_OK) == 0;
}

int local_end_listing(const struct local *local)
{
    _cleanup_free_ char *path = unlisted_path(local);
    return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}
