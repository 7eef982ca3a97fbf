// SPDX-License-Identifier: Apache-2.0
#include "helpers.h"
#include "../expect.h"
#include "../named.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"

void open_view_at(const char *path, struct view **ret_view)
{
    struct view_options options = {.cache_bytes = 48 * MIB, .create = true};
    assert_i64(view_open(path, &options, T0, ret_view), 0);
}

void fixture_open(struct fixture *f)
{
    *f = (struct fixture){0};
    strcpy(f->path, "/tmp/cairn-view-XXXXXX");
    cr_assert_not_null(mkdtemp(f->path));
    f->seq = 1ull << SEQ_EPOCH_SHIFT;
    open_view_at(f->path, &f->view);
}

void fixture_reopen(struct fixture *f)
{
    view_close(f->view);
    open_view_at(f->path, &f->view);
}

void fixture_close(struct fixture *f)
{
    view_close(f->view);
    remove_tree(f->path);
    for (size_t i = 0; i < f->batch_count; i++)
        free(f->batches[i].records);
    for (size_t i = 0; i < f->pack_count; i++)
        free(f->packs[i].entries);
    free(f->batches);
    free(f->packs);
    free(f->buf);
}

uint64_t test_number(const char *variable, uint64_t usual)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : usual;
}

struct chunk_name chunk_of(uint32_t id)
{
    struct chunk_name name = {0};
    /* Spread, so that the order of names is not that of ids. */
    uint32_t mixed = id * 2654435761u;
    memcpy(name.bytes, &mixed, sizeof mixed);
    memcpy(name.bytes + 20, &id, sizeof id);
    return name;
}

uint32_t chunk_id(const struct chunk_name *name)
{
    uint32_t id;
    memcpy(&id, name->bytes + 20, sizeof id);
    return id;
}

int64_t time_of(uint64_t seq)
{
    return T0 * 10 + (int64_t)(seq & 0xffffffffff);
}

uint64_t add(struct fixture *f, struct record rec)
{
    rec.seq = ++f->seq;
    rec.time = time_of(rec.seq);
    size_t len = record_encoded_len(&rec);
    if (f->len + len > f->room) {
        f->room = (f->len + len) * 2;
        f->buf = xrealloc(f->buf, f->room);
    }
    record_encode(&rec, f->buf + f->len);
    f->len += len;
    return rec.seq;
}

static int pack_index(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                      void *fn_arg, bool *ret_was_made, void *arg)
{
    const struct fixture *f = arg;
    *ret_was_made = false;
    for (size_t i = 0; i < f->pack_count; i++) {
        const struct test_pack *p = &f->packs[i];
        if (p->pack != pack || p->gone)
            continue;
        for (uint32_t e = 0; e < p->count; e++) {
            int r = fn(&p->entries[e], fn_arg);
            if (r < 0)
                return r;
        }
        return 0;
    }
    return -ENOENT;
}

static struct view_batch batch_of(struct fixture *f, const void *records, size_t len,
                                  uint64_t cut_seq)
{
    struct view_batch batch = {.records = records,
                               .records_len = len,
                               .cut_seq = cut_seq,
                               .pack_index = pack_index,
                               .arg = f};
    memset(batch.chain, (int)(cut_seq & 0xff), sizeof batch.chain);
    return batch;
}

int apply(struct fixture *f)
{
    struct view_batch batch = batch_of(f, f->buf, f->len, f->seq);
    int r = view_apply(f->view, &batch);
    if (r == 0) {
        f->batches = xrealloc(f->batches, (f->batch_count + 1) * sizeof *f->batches);
        f->batches[f->batch_count].records = xmalloc(f->len);
        if (f->len)
            memcpy(f->batches[f->batch_count].records, f->buf, f->len);
        f->batches[f->batch_count].len = f->len;
        f->batches[f->batch_count++].cut_seq = f->seq;
    }
    f->len = 0;
    return r;
}

void apply_ok(struct fixture *f)
{
    assert_i64(apply(f), 0);
}

void apply_bad(struct fixture *f)
{
    _cleanup_free_ char *before = dump(f->view);
    expect_i64(apply(f), -EUCLEAN);
    _cleanup_free_ char *after = dump(f->view);
    expect_str(before, after);
}

struct attrs file_attrs(uint64_t size)
{
    return (struct attrs){.mode = S_IFREG | 0640,
                          .uid = 7,
                          .gid = 8,
                          .size = size,
                          .atime = 11,
                          .mtime = 12,
                          .ctime = 13,
                          .btime = 14};
}

void add_make(struct fixture *f, uint64_t ino, uint64_t parent, const char *name,
              struct attrs attrs, const char *target)
{
    add(f, (struct record){.type = REC_MAKE,
                           .ino = ino,
                           .parent = parent,
                           .cookie = f->seq + 1,
                           NAMED(name),
                           .attrs = attrs,
                           .value = target,
                           .value_len = target ? (uint32_t)strlen(target) : 0});
}

void add_dir(struct fixture *f, uint64_t ino, uint64_t parent, const char *name)
{
    add_make(f, ino, parent, name, (struct attrs){.mode = S_IFDIR | 0755, .mtime = 5}, NULL);
}

void add_xattr(struct fixture *f, uint64_t ino, const char *name, const char *value)
{
    add(f, (struct record){.type = REC_SETXATTR, .ino = ino, NAMED(name), VALUED(value)});
}

void add_file(struct fixture *f, uint64_t ino, uint64_t parent, const char *name, uint64_t size)
{
    add(f, (struct record){.type = REC_SEAL,
                           .flags = RECORD_BIRTH,
                           .ino = ino,
                           .version = 1,
                           .parent = parent,
                           .cookie = f->seq + 1,
                           NAMED(name),
                           .attrs = file_attrs(size)});
}

void add_link(struct fixture *f, uint64_t ino, uint64_t parent, const char *name)
{
    add(f, (struct record){
               .type = REC_LINK, .ino = ino, .parent = parent, .cookie = f->seq + 1, NAMED(name)});
}

void add_unlink(struct fixture *f, uint64_t ino, uint64_t parent, const char *name, uint32_t flags)
{
    add(f, (struct record){
               .type = REC_UNLINK, .flags = flags, .ino = ino, .parent = parent, NAMED(name)});
}

void add_rename(struct fixture *f, uint64_t ino, uint64_t parent, const char *name,
                uint64_t parent2, const char *name2, uint64_t ino2, uint32_t flags)
{
    f->seq++; /* an exchange uses two */
    add_rename_at(f, ino, parent, name, parent2, name2, ino2, flags, f->seq,
                  flags & RECORD_EXCHANGE ? f->seq + 1 : 0);
}

void add_rename_at(struct fixture *f, uint64_t ino, uint64_t parent, const char *name,
                   uint64_t parent2, const char *name2, uint64_t ino2, uint32_t flags,
                   uint64_t cookie, uint64_t cookie2)
{
    add(f, (struct record){.type = REC_RENAME,
                           .flags = flags,
                           .ino = ino,
                           .ino2 = ino2,
                           .parent = parent,
                           .parent2 = parent2,
                           .cookie = cookie,
                           .cookie2 = cookie2,
                           NAMED(name),
                           NAMED2(name2)});
}

void add_seal(struct fixture *f, uint64_t ino, uint64_t version, uint64_t keep, uint64_t size,
              const struct extent *extents, uint32_t count)
{
    add(f, (struct record){.type = REC_SEAL,
                           .ino = ino,
                           .version = version,
                           .keep = keep,
                           .attrs = file_attrs(size),
                           .extents = extents,
                           .extent_count = count});
}

void add_seal_inline(struct fixture *f, uint64_t ino, uint64_t version, uint64_t keep,
                     uint64_t size, uint64_t offset, const char *text)
{
    struct extent e = {.offset = offset, .length = strlen(text), .kind = EXTENT_INLINE};
    add(f, (struct record){.type = REC_SEAL,
                           .ino = ino,
                           .version = version,
                           .keep = keep,
                           .attrs = file_attrs(size),
                           .extents = &e,
                           .extent_count = 1,
                           VALUED(text)});
}

struct extent chunk_extent(uint64_t offset, uint64_t length, uint32_t id, uint32_t chunk_offset)
{
    return (struct extent){.offset = offset,
                           .length = length,
                           .kind = EXTENT_CHUNK,
                           .chunk = chunk_of(id),
                           .chunk_offset = chunk_offset};
}

struct extent hole_extent(uint64_t offset, uint64_t length)
{
    return (struct extent){.offset = offset, .length = length, .kind = EXTENT_HOLE};
}

void add_pack(struct fixture *f, uint64_t pack, const uint32_t *ids, uint32_t count)
{
    struct test_pack p = {
        .pack = pack, .count = count, .entries = xcalloc(count, sizeof *p.entries)};
    uint64_t offset = 64;
    for (uint32_t i = 0; i < count; i++) {
        p.entries[i] = (struct chunk_entry){.name = chunk_of(ids[i]),
                                            .pack = pack,
                                            .offset = offset,
                                            .stored_len = 1000 + ids[i],
                                            .raw_len = CHUNK_SIZE_MAX,
                                            .encoding = ENCODING_LZ4};
        offset += 1000 + ids[i];
    }
    f->packs = xrealloc(f->packs, (f->pack_count + 1) * sizeof *f->packs);
    f->packs[f->pack_count++] = p;
    add(f, (struct record){
               .type = REC_PACK, .pack = pack, .length = align_up(offset, 4096), .count = count});
}

void rest_on(struct fixture *f, uint32_t i, uint32_t base, uint8_t depth)
{
    struct chunk_entry *e = &f->packs[f->pack_count - 1].entries[i];
    e->encoding = ENCODING_TWIN;
    e->depth = max_u64(e->depth, depth);
    e->refs[e->ref_count++] = (struct chunk_ref){.name = chunk_of(base), .length = 100};
}

void add_drop(struct fixture *f, uint64_t pack)
{
    add(f, (struct record){.type = REC_DROP, .pack = pack});
}

struct view_inode inode_of(struct fixture *f, uint64_t ino)
{
    struct view_inode inode = {0};
    assert_i64(view_inode(f->view, ino, &inode), 0, "inode %" PRIu64, ino);
    return inode;
}

uint64_t lookup(struct fixture *f, uint64_t parent, const char *name)
{
    struct view_entry entry;
    int r = view_lookup(f->view, parent, name, strlen(name), &entry);
    cr_assert(r == 0 || r == -ENOENT);
    return r == 0 ? entry.ino : 0;
}

uint64_t refs_of(struct fixture *f, uint32_t id)
{
    struct chunk_name name = chunk_of(id);
    struct chunk_entry entry;
    uint64_t refs;
    int r = view_chunk(f->view, &name, &entry, &refs);
    cr_assert(r == 0 || r == -ENOENT);
    return r == 0 ? refs : UINT64_MAX;
}

static int print_extent(const struct view_extent *part, void *arg)
{
    FILE *out = arg;
    const struct extent *e = &part->extent;
    if (ftell(out) > 0)
        fprintf(out, " ");
    if (e->kind == EXTENT_CHUNK)
        fprintf(out, "C%u+%u", chunk_id(&e->chunk), e->chunk_offset);
    else
        fprintf(out, "%s", e->kind == EXTENT_INLINE ? "I" : ".");
    fprintf(out, "@%" PRIu64 ":%" PRIu64, e->offset, e->length);
    if (e->kind == EXTENT_INLINE)
        fprintf(out, "=%.*s", (int)e->length, (const char *)part->bytes);
    return 0;
}

static char *range_in(struct view *view, uint64_t ino, uint64_t offset, uint64_t length)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    assert_i64(view_extents(view, ino, offset, length, print_extent, out), 0);
    fclose(out);
    return text;
}

static char *content_in(struct view *view, uint64_t ino)
{
    return range_in(view, ino, 0, INT64_MAX);
}

char *content_of(struct fixture *f, uint64_t ino)
{
    return content_in(f->view, ino);
}

void expect_content(struct fixture *f, uint64_t ino, const char *expected)
{
    expect_range(f, ino, 0, INT64_MAX, expected);
}

void expect_range(struct fixture *f, uint64_t ino, uint64_t offset, uint64_t length,
                  const char *expected)
{
    _cleanup_free_ char *text = range_in(f->view, ino, offset, length);
    expect_str(text, expected, "is \"%s\", expected \"%s\"", text, expected);
}

static void print_line(const char *line, void *arg)
{
    (void)arg;
    log_error("difference: %s", line);
}

void expect_check_ok(struct view *view)
{
    assert_i64(view_check(view, print_line, NULL), 0);
}

int check_count(struct view *view)
{
    return view_check(view, NULL, NULL);
}

struct dumper {
    FILE *out;
    struct view *view;
    uint64_t ino;
    bool shared;
};

static int dump_xattr(const char *name, size_t len, void *arg)
{
    struct dumper *d = arg;
    char value[300];
    ssize_t n = view_getxattr(d->view, d->ino, name, len, value, sizeof value);
    cr_assert_geq(n, 0);
    fprintf(d->out, "    xattr %.*s=%.*s\n", (int)len, name, (int)n, value);
    return 0;
}

static void dump_inode(struct dumper *d, uint64_t ino)
{
    struct view_inode i;
    assert_i64(view_inode(d->view, ino, &i), 0);
    const struct attrs *a = &i.attrs;
    fprintf(d->out, "  inode %" PRIu64 " mode %o uid %u gid %u rdev %u size %" PRIu64, ino, a->mode,
            a->uid, a->gid, a->rdev, a->size);
    fprintf(d->out, " times %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, a->atime, a->mtime,
            a->ctime, a->btime);
    fprintf(d->out, " nlink %u version %" PRIu64 " parent %" PRIu64 " blocks %" PRIu64 "\n",
            i.nlink, i.version, i.parent, i.blocks_bytes);
    d->ino = ino;
    assert_i64(view_listxattr(d->view, ino, dump_xattr, d), 0);
    char target[300];
    ssize_t n = S_ISLNK(a->mode) ? view_readlink(d->view, ino, target, sizeof target) : 0;
    cr_assert_geq(n, 0);
    fprintf(d->out, "    %.*s\n", (int)n, target);
    if (!S_ISREG(a->mode))
        return;
    _cleanup_free_ char *content = content_in(d->view, ino);
    fprintf(d->out, "    %s\n", content);
}

static int dump_entry(const struct view_entry *entry, const char *name, size_t len, void *arg)
{
    struct dumper *d = arg;
    fprintf(d->out, " \"%.*s\" cookie %" PRIu64 " type %o\n", (int)len, name, entry->cookie,
            entry->type);
    dump_inode(d, entry->ino);
    if (S_ISDIR(entry->type)) {
        fprintf(d->out, "{\n");
        assert_i64(view_readdir(d->view, entry->ino, 0, dump_entry, d), 0);
        fprintf(d->out, "}\n");
    }
    return 0;
}

static int dump_orphan(uint64_t ino, void *arg)
{
    struct dumper *d = arg;
    fprintf(d->out, "orphan\n");
    dump_inode(d, ino);
    return 0;
}

static int dump_chunk(const struct view_local_chunk *chunk, void *arg)
{
    struct dumper *d = arg;
    const struct chunk_entry *e = &chunk->entry;
    if (chunk->refs == 0 && d->shared)
        return 0;
    fprintf(d->out, "chunk %u refs %" PRIu64, chunk_id(&e->name), chunk->refs);
    if (e->pack && !d->shared)
        fprintf(d->out, " at %" PRIu64 " %" PRIu64 " %u %u", e->pack, e->offset, e->stored_len,
                e->raw_len);
    for (size_t i = 0; i < e->ref_count && !d->shared; i++)
        fprintf(d->out, " on %u", chunk_id(&e->refs[i].name));
    if (!d->shared)
        fprintf(d->out, " under %u", chunk->dependents);
    fprintf(d->out, "\n");
    return 0;
}

static int dump_pack(const struct view_pack *p, void *arg)
{
    struct dumper *d = arg;
    fprintf(d->out, "pack %" PRIu64 " %" PRIu64 " %u %" PRIu64 " %u\n", p->pack, p->length,
            p->count, p->live_bytes, p->live_count);
    return 0;
}

static char *dump_as(struct view *view, bool shared)
{
    char *text = NULL;
    size_t len;
    struct dumper d = {.out = open_memstream(&text, &len), .view = view, .shared = shared};
    struct view_state s = view_state(view);
    fprintf(d.out, "seq %" PRIu64 " chain %u ino %" PRIu64 " files %" PRIu64 " bytes %" PRIu64,
            s.applied_seq, s.chain[31], s.max_ino, s.files, s.logical_bytes);
    fprintf(d.out, " chunks %" PRIu64, s.chunks);
    if (!shared)
        fprintf(d.out, " stored %" PRIu64 " packs %" PRIu64 " %" PRIu64 "\n", s.stored_bytes,
                s.packs, s.pack_bytes);
    dump_inode(&d, ROOT_INO);
    assert_i64(view_readdir(view, ROOT_INO, 0, dump_entry, &d), 0);
    assert_i64(view_orphans(view, dump_orphan, &d), 0);
    assert_i64(view_chunks(view, dump_chunk, &d), 0);
    if (!shared)
        assert_i64(view_packs(view, dump_pack, &d), 0);
    fclose(d.out);
    return text;
}

char *dump(struct view *view)
{
    return dump_as(view, false);
}

char *dump_shared(struct view *view)
{
    return dump_as(view, true);
}

void apply_bytes(struct fixture *f, struct view *view, const void *records, size_t len,
                 uint64_t cut_seq)
{
    struct view_batch batch = batch_of(f, records, len, cut_seq);
    assert_i64(view_apply(view, &batch), 0);
}

void apply_again(struct fixture *f, struct view *view, size_t i)
{
    apply_bytes(f, view, f->batches[i].records, f->batches[i].len, f->batches[i].cut_seq);
}

void expect_replay_same(struct fixture *f)
{
    _cleanup_free_ char *path = xasprintf("%s.again", f->path);
    struct view *again;
    open_view_at(path, &again);
    for (size_t i = 0; i < f->batch_count; i++)
        apply_again(f, again, i);
    expect_check_ok(again);
    _cleanup_free_ char *first = dump(f->view), *second = dump(again);
    expect_str(first, second);
    view_close(again);
    remove_tree(path);
}
