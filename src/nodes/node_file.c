// SPDX-License-Identifier: Apache-2.0
/* STORE/node: the identity of this store in a prefix that several nodes write. */
#include <stdio.h>

#include "base/crc.h"
#include "base/hex.h"
#include "base/io.h"
#include "nodes/node_internal.h"

#define FILE_MAX 65536u
#define LINE_MAX_LEN 64u

bool node_has_epoch(struct node *node, uint64_t epoch)
{
    uint64_t block = node_block_of(epoch);
    LOCK_SCOPE(&node->blocks_lock);
    return vector_search(&node->file.blocks, &block, compare_u64);
}

static char *file_path(const struct node *node)
{
    return xasprintf("%s/node", node->local->path);
}

static void add_line(struct bytes *text, const char *word, uint64_t number)
{
    char line[LINE_MAX_LEN];
    int len = snprintf(line, sizeof line, "%s%016llx\n", word, (unsigned long long)number);
    vector_add_all(text, (const uint8_t *)line, (size_t)len);
}

static void add_text(struct bytes *text, const char *line)
{
    vector_add_all(text, (const uint8_t *)line, strlen(line));
}

/* One line each: the stay, the store, a wanted block, and the reserved blocks; if it replaces
 * another store, a mark until it has; after the end of a generation that generation and, from when
 * it goes back, the epochs that it used; then a checksum. */
int node_file_write(const struct node *node)
{
    const struct node_file *file = &node->file;
    _cleanup_free_ char *path = file_path(node);
    _cleanup_vector_ struct bytes text = {0};
    char id[33], line[LINE_MAX_LEN];
    hex_print(id, node->store, sizeof node->store);
    add_text(&text, "cairn node 1\n");
    add_line(&text, file->leaves ? "leaves " : "stay ", file->stay);
    (void)snprintf(line, sizeof line, "store %s\n", id);
    add_text(&text, line);
    if (file->wanted)
        add_line(&text, "wants ", file->wanted);
    for (size_t i = 0; i < file->blocks.count; i++)
        add_line(&text, "block ", file->blocks.at[i]);
    if (file->replaces)
        add_text(&text, "replaces\n");
    if (file->generation) {
        add_line(&text, "generation ", file->generation);
        add_line(&text, "opens ", (uint64_t)file->opens);
    }
    if (file->generation || file->used)
        add_line(&text, "used ", file->used);
    (void)snprintf(line, sizeof line, "crc32 %08x\n", crc32_of(0, text.at, text.count));
    add_text(&text, line);
    return io_write_file_durable(path, text.at, text.count);
}

static bool parse_line(const char *line, const char *word, uint64_t *ret)
{
    size_t len = strlen(word);
    return strncmp(line, word, len) == 0 && object_digits(line + len, ret);
}

static bool is_block(uint64_t number)
{
    return number > 0 && number % NODE_BLOCK == 0 && number <= EPOCH_MAX;
}

static int parse_block(const char *line, struct node_file *ret)
{
    uint64_t number;
    if (parse_line(line, "wants ", &number) && is_block(number)) {
        ret->wanted = number;
        return 0;
    }
    if (!parse_line(line, "block ", &number) || !is_block(number))
        return -EUCLEAN;
    vector_add(&ret->blocks, number);
    return 0;
}

static int parse_number(const char *line, struct node_file *ret)
{
    uint64_t opens;
    if (parse_line(line, "opens ", &opens) && opens <= INT64_MAX) {
        ret->opens = (int64_t)opens;
        return 0;
    }
    if (strcmp(line, "replaces") == 0) {
        ret->replaces = true;
        return 0;
    }
    if ((parse_line(line, "generation ", &ret->generation) && ret->generation <= GENERATION_MAX) ||
        (parse_line(line, "used ", &ret->used) && ret->used <= EPOCH_MAX))
        return 0;
    return parse_block(line, ret);
}

static int parse_file(char *text, struct node *node)
{
    struct node_file *file = &node->file;
    char *end = strstr(text, "crc32 "), *line;
    if (!end || strtoul(end + 6, NULL, 16) != crc32_of(0, text, (size_t)(end - text)))
        return -EBADMSG;
    *end = '\0';
    line = strsep(&text, "\n");
    if (strcmp(line, "cairn node 1") != 0)
        return -EPROTONOSUPPORT;
    line = strsep(&text, "\n");
    file->leaves = parse_line(line, "leaves ", &file->stay);
    if (!text || (!file->leaves && !parse_line(line, "stay ", &file->stay)))
        return -EUCLEAN;
    line = strsep(&text, "\n");
    if (!text || strlen(line) != 38 || strncmp(line, "store ", 6) != 0 ||
        !hex_read(node->store, line + 6, sizeof node->store))
        return -EUCLEAN;
    while ((line = strsep(&text, "\n")) && *line)
        TRY(parse_number(line, file));
    return file->blocks.count || file->wanted ? 0 : -EUCLEAN;
}

int node_file_read(struct node *node)
{
    _cleanup_free_ char *path = file_path(node);
    _cleanup_free_ char *text = NULL;
    TRY(io_read_file(path, FILE_MAX, &text, NULL));
    return parse_file(text, node);
}
