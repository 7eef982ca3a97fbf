// SPDX-License-Identifier: Apache-2.0
/* Layouts of zip archives: names, sizes and alignments of a caller. */
#include "client/zip.h"

#include "fuzz.h"

#define ENTRIES_MAX 64

static void check_layout(const struct zip *zip)
{
    uint64_t at = 0;
    for (size_t i = 0; i < zip->count; i++) {
        const struct zip_entry *entry = &zip->entries[i];
        check(entry->start == at && entry->data > at && entry->data % zip->alignment == 0);
        uint8_t *header = xmalloc(entry->data - entry->start), descriptor[ZIP_DESCRIPTOR_MAX];
        zip_header(zip, entry, header);
        size_t length = zip_descriptor(entry, descriptor);
        check((length == 0) == (entry->size == 0));
        at = entry->data + entry->size + length;
        free(header);
    }
    check(zip->directory == at);
    uint8_t *end = xmalloc(zip->file_size - zip->directory);
    zip_end(zip, end);
    free(end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct zip_entry entries[ENTRIES_MAX];
    struct zip zip = {
        .archive = "a", .archive_length = 1, .alignment = input_u16(&in) + 1u, .entries = entries};
    char *names[ENTRIES_MAX];
    while (in.left > 0 && zip.count < ENTRIES_MAX) {
        uint64_t length = (uint64_t)input_u16(&in) << input_u8(&in) % 50;
        size_t name = input_u16(&in) % 300;
        name = name < in.left ? name : in.left;
        names[zip.count] = text_copy(input_bytes(&in, name), name);
        entries[zip.count] = (struct zip_entry){.name = names[zip.count], .size = length, .crc = 7};
        zip.count++;
    }
    if (zip_plan(&zip) == 0)
        check_layout(&zip);
    for (size_t i = 0; i < zip.count; i++)
        free(names[i]);
    return 0;
}
