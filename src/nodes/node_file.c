// SPDX-License-Identifier: Apache-2.0
/* STORE/node: what this store is in a prefix that several nodes write. */
#include "base/crc.h"
#include "base/io.h"
#include "nodes/node_internal.h"

#define FILE_MAX 65536u

/* --- STORE/node: what this store is in the prefix ----------------------------------------------
 */

bool node_has_epoch(const struct node *node, uint64_t epoch)
{
    uint64_t block = epoch - epoch % NODE_BLOCK;
    return vector_search(&node->file.blocks, &block, compare_u64);
}

static char *file_path(const struct node *node)
{
    return xasprintf("%s/node", node->local->path);
}

/* A line each: the stay, and the blocks; then a checksum. */
int node_file_write(const struct node *node)
{
    _cleanup_free_ char *path = file_path(node);
    _cleanup_free_ char *text =
        xasprintf("cairn node 1\n%s %016llx\n", node->file.leaves ? "leaves" : "stay",
                  (unsigned long long)node->file.stay);
    for (size_t i = 0; i < node->file.blocks.count; i++) {
        char *longer =
            xasprintf("%sblock %016llx\n", text, (unsigned long long)node->file.blocks.at[i]);
        free(text);
        text = longer;
    }
    _cleanup_free_ char *whole = xasprintf("%scrc32 %08x\n", text, crc32_of(0, text, strlen(text)));
    return io_write_file_durable(path, whole, strlen(whole));
}

static bool parse_line(const char *line, const char *word, uint64_t *ret)
{
    size_t len = strlen(word);
    return strncmp(line, word, len) == 0 && object_digits(line + len, ret);
}

static int parse_file(char *text, struct node_file *ret)
{
    char *end = strstr(text, "crc32 "), *line;
    if (!end || strtoul(end + 6, NULL, 16) != crc32_of(0, text, (size_t)(end - text)))
        return -EBADMSG;
    *end = '\0';
    line = strsep(&text, "\n");
    if (strcmp(line, "cairn node 1") != 0)
        return -EPROTONOSUPPORT;
    line = strsep(&text, "\n");
    ret->leaves = parse_line(line, "leaves ", &ret->stay);
    if (!text || (!ret->leaves && !parse_line(line, "stay ", &ret->stay)))
        return -EUCLEAN;
    while ((line = strsep(&text, "\n")) && *line) {
        uint64_t block;
        if (!parse_line(line, "block ", &block) || block % NODE_BLOCK || block > EPOCH_MAX ||
            block == 0)
            return -EUCLEAN;
        vector_add(&ret->blocks, block);
    }
    return ret->blocks.count ? 0 : -EUCLEAN;
}

int node_file_read(struct node *node)
{
    _cleanup_free_ char *path = file_path(node);
    _cleanup_free_ char *text = NULL;
    TRY(io_read_file(path, FILE_MAX, &text, NULL));
    return parse_file(text, &node->file);
}
