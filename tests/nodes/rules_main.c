// SPDX-License-Identifier: Apache-2.0
/* Merges operations of several nodes and prints the union (tests/nodes/test_rules.py).
 *
 *   nodes-rules DIRECTORY    an empty one, for the view
 *
 * A line of the standard input is an operation: its word, epoch, flags, ino, ino2, version, parent,
 * name, parent2, name2. Prints a line for each name: parent, name, ino; then for each file: "file",
 * ino, version. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "nodes/merge.h"

#define T0 1000000000ll

static const struct {
    const char *word;
    uint16_t type;
    uint32_t flags, mode;
} WORDS[] = {
    {"mkdir", REC_MAKE, 0, S_IFDIR | 0755},
    {"create", REC_VERSION, RECORD_BIRTH, S_IFREG | 0644},
    {"write", REC_VERSION, 0, S_IFREG | 0644},
    {"link", REC_LINK, 0, 0},
    {"unlink", REC_UNLINK, 0, 0},
    {"rename", REC_RENAME, 0, 0},
    {"reap", REC_REAP, 0, 0},
};

static void fail_if(bool wrong, const char *what)
{
    if (wrong) {
        (void)fprintf(stderr, "nodes-rules: %s\n", what);
        exit(2);
    }
}

static void merge_line(struct merge *merge, const char *line, uint64_t number)
{
    char word[16], name[64], name2[64];
    unsigned long long epoch, ino, ino2, version, parent, parent2;
    unsigned flags;
    size_t at = 0;
    fail_if(sscanf(line, "%15s %llu %u %llu %llu %llu %llu %63s %llu %63s", word, &epoch, &flags,
                   &ino, &ino2, &version, &parent, name, &parent2, name2) != 10,
            "a line cannot be parsed");
    while (at < ARRAY_LEN(WORDS) && strcmp(WORDS[at].word, word) != 0)
        at++;
    fail_if(at == ARRAY_LEN(WORDS), "there is no such operation");
    struct record rec = {.type = WORDS[at].type,
                         .flags = WORDS[at].flags | flags,
                         .seq = (epoch << SEQ_EPOCH_SHIFT) + number,
                         .time = T0 + (int64_t)number,
                         .ino = ino,
                         .ino2 = ino2,
                         .version = version,
                         .parent = parent,
                         .parent2 = parent2,
                         .attrs = {.mode = WORDS[at].mode},
                         .name = name,
                         .name_len = (uint16_t)(strcmp(name, "-") == 0 ? 0 : strlen(name))};
    rec.cookie = rec.seq;
    if (rec.type == REC_RENAME) {
        rec.name2 = name2;
        rec.name2_len = (uint16_t)strlen(name2);
    }
    const struct merge_op op = {
        .rec = &rec, .owns = ino >> 24 == epoch, .owns2 = ino2 >> 24 == epoch};
    fail_if(merge_record(merge, &op) < 0, "an operation cannot be merged");
}

struct printing {
    struct view *view;
    uint64_t dir;
};

static int print_entry(const struct view_entry *entry, const char *name, size_t name_len,
                       void *arg);

static void print_directory(struct view *view, uint64_t dir)
{
    struct printing printing = {view, dir};
    fail_if(view_readdir(view, dir, 0, print_entry, &printing) < 0, "a directory cannot be read");
}

static int print_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    const struct printing *printing = arg;
    printf("%llu %.*s %llu\n", (unsigned long long)printing->dir, (int)name_len, name,
           (unsigned long long)entry->ino);
    if (S_ISDIR(entry->type))
        print_directory(printing->view, entry->ino);
    return 0;
}

static void print_files(struct view *view, const uint64_t *inos, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct view_inode inode;
        if (view_inode(view, inos[i], &inode) == 0)
            printf("file %llu %llu\n", (unsigned long long)inos[i],
                   (unsigned long long)inode.version);
    }
}

int main(int count, char **arguments)
{
    enum { FILES_MAX = 10000 };
    static uint64_t files[FILES_MAX];
    struct view_options options = {.cache_bytes = 8 * MIB, .create = true};
    struct view *view;
    char line[512];
    size_t file_count = 0;
    uint64_t number = 0;
    fail_if(count != 2, "usage: nodes-rules DIRECTORY");
    fail_if(view_open(arguments[1], &options, T0, &view) < 0, "the view cannot be made");
    struct merge *merge = merge_new(view);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long ino;
        merge_line(merge, line, ++number);
        if (sscanf(line, "create %*u %*u %llu", &ino) == 1 && file_count < FILES_MAX)
            files[file_count++] = ino;
    }
    print_directory(view, ROOT_INO);
    print_files(view, files, file_count);
    struct merge_counts counts = merge_counts(merge);
    printf("counts %llu %llu %llu %llu\n", (unsigned long long)counts.joined,
           (unsigned long long)counts.revived, (unsigned long long)counts.renamed,
           (unsigned long long)counts.impossible);
    merge_free(merge);
    view_close(view);
    return 0;
}
