// SPDX-License-Identifier: Apache-2.0
/* Reads the status of a store that is not mounted, without recovering it. */
#include "base/log.h"
#include "store/internal.h"
#include "view/remote.h"

static int open_to_peek(const char *path, struct store **ret)
{
    struct store_options options = {.path = path, .writeback_threads = 1};
    _cleanup_free_ char *text = NULL;
    int r = store_open_medium(&options, false, ret, &text);
    if (text)
        log_error("%s", text);
    return r;
}

int store_peek(const char *path, struct store_status *ret)
{
    struct store *store;
    *ret = (struct store_status){0};
    TRY(open_to_peek(path, &store));
    memcpy(ret->store_id, store->local.sb.store, sizeof ret->store_id);
    ret->view = view_state(store->local.view);
    ret->staged_in = session_staged(store->local.path, store->local.sb.store, &ret->staged_bytes);
    struct journal_found found = journal_found(store->commit.journal);
    ret->nvme.horizon_seq = ret->newest_seq = found.cut_seq;
    ret->used_bytes = ret->view.pack_bytes + found.bytes;
    store_discard(store);
    return 0;
}

int store_peek_unpublished(const char *path, struct remote_unpublished *ret)
{
    struct store *store;
    TRY(open_to_peek(path, &store));
    struct view_remote remote = view_remote(store->local.view);
    int r = remote_unpublished(store, ret);
    /* Chunks that were damaged before they were uploaded, or lost in the remote since: no file
     * needs to have changed. */
    ret->inodes = max_u64(ret->inodes, remote.pending_chunks > 0);
    ret->bytes = max_u64(ret->bytes, remote.pending_bytes);
    store_discard(store);
    return r;
}

/* *ret_session must be freed with session_done(), also on failure. */
static int read_session_at(const char *path, struct session *ret_session)
{
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", path);
    struct superblock sb;
    *ret_session = (struct session){0};
    int r = superblock_read(superblock, &sb);
    if (r == 0)
        r = session_read(path, sb.store, ret_session);
    explicit_bzero(&sb.key, sizeof sb.key);
    return r;
}

int store_open_session(const char *path, char **ret_stage)
{
    struct session session;
    int r = read_session_at(path, &session);
    *ret_stage = r == 0 && session.exists && !session.is_reader
                     ? stage_ctl_path(session.dir, session.name)
                     : NULL;
    session_done(&session);
    return r;
}

uint64_t store_left_stage_bytes(const char *path, const char *stage_dir)
{
    struct session left;
    bool is_there = read_session_at(path, &left) == 0 && left.exists && !left.is_of_other_boot &&
                    strncmp(left.dir, stage_dir, strlen(stage_dir)) == 0;
    uint64_t bytes = is_there ? stage_files_bytes(left.dir, left.name) : 0;
    session_done(&left);
    return bytes;
}
