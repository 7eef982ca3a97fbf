// SPDX-License-Identifier: Apache-2.0
/* Saves whose whole content one call names: zip, safetensors, markers. */
#include "client/client.h"

#include <stdio.h>

#include "base/clock.h"
#include "format/le.h"

/* Sources and bytes of a call, until the save owns them. */
struct named {
    struct source_of *of;
    struct cairn_source *sources;
    size_t count;
};

static int named_sources_new(struct named *named, size_t count)
{
    *named = (struct named){.of = calloc(count + 1, sizeof *named->of),
                            .sources = calloc(count + 1, sizeof *named->sources)};
    return named->of && named->sources ? 0 : -ENOMEM;
}

static void named_sources_done(struct named *named)
{
    free(named->of);
    free(named->sources);
}

/* A save that has all that it gets; it takes the zip's entries over, also where it fails. The call
 * fails only where there is no save: what comes later is the error of the save. */
static int save_whole(struct cairn_lane *lane, const char *path, uint64_t bytes,
                      const struct cairn_save_options *options, const struct zip *zip,
                      const struct named *named, struct cairn_save **ret)
{
    struct cairn_save *save;
    int r = save_new(lane, path, bytes, options, zip, &save);
    if (r < 0) {
        if (zip)
            free(zip->entries);
        return r;
    }
    r = save_add(save, named->of, named->count);
    if (r == 0)
        r = save_close(save, !(save->flags & CAIRN_SAVE_HOLD));
    if (r < 0 && !save_has_failed(save)) { /* bad sources, no memory */
        (void)cairn_save_abort(save);
        cairn_save_free(save);
        return r;
    }
    *ret = save;
    return 0;
}

/* --- zip -------------------------------------------------------------------------------------- */

static int take_zip_options(struct zip *zip, const char *path,
                            const struct cairn_zip_options *given)
{
    struct cairn_zip_options options;
    int r = take_struct(&options, sizeof options, given);
    if (r < 0)
        return r;
    zip->alignment = options.alignment ? options.alignment : ZIP_ALIGNMENT;
    zip->archive = options.archive ? options.archive : zip_archive_of(path, &zip->archive_length);
    if (options.archive)
        zip->archive_length = strlen(options.archive);
    return 0;
}

/* The entries with their names, and the archive's, in one piece of memory that the save frees. */
static int take_entries(struct zip *zip, const struct cairn_zip_record *records, size_t count)
{
    size_t bytes = count * sizeof *zip->entries + zip->archive_length + 1;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(records[i].name) + 1;
    zip->entries = calloc(1, bytes);
    if (!zip->entries)
        return -ENOMEM;
    char *names = (char *)&zip->entries[count];
    zip->archive = memcpy(names, zip->archive, zip->archive_length);
    names += zip->archive_length + 1;
    for (size_t i = 0; i < count; i++) {
        zip->entries[i] = (struct zip_entry){.name = strcpy(names, records[i].name),
                                             .size = records[i].source.length};
        names += strlen(names) + 1;
    }
    zip->count = count;
    return 0;
}

static int name_records(struct named *named, const struct zip *zip,
                        const struct cairn_zip_record *records)
{
    int r = named_sources_new(named, zip->count);
    if (r < 0)
        return r;
    for (size_t i = 0; i < zip->count; i++)
        named->of[i] = (struct source_of){
            .source = &records[i].source, .at = zip->entries[i].data, .entry = i};
    named->count = zip->count;
    return 0;
}

static int check_records(const struct cairn_zip_record *records, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (records[i].name && records[i].source.offset == 0)
            continue;
        cause_note("record %zu has %s", i,
                   records[i].name ? "an offset, which the archive decides" : "no name");
        return -EINVAL;
    }
    if (count == 0)
        cause_note("an archive has one record at least");
    return count == 0 ? -EINVAL : 0;
}

static int save_zip(struct cairn_lane *lane, const char *path,
                    const struct cairn_zip_record *records, size_t count,
                    const struct cairn_zip_options *zip_options,
                    const struct cairn_save_options *options, struct cairn_save **ret)
{
    struct zip zip = {0};
    struct named named = {0};
    int r = check_records(records, count);
    if (r == 0)
        r = take_zip_options(&zip, path, zip_options);
    if (r == 0)
        r = take_entries(&zip, records, count);
    if (r == 0)
        r = zip_plan(&zip);
    if (r == 0)
        r = name_records(&named, &zip, records);
    if (r == 0)
        r = save_whole(lane, path, zip.file_size, options, &zip, &named, ret);
    else
        free(zip.entries);
    named_sources_done(&named);
    return r;
}

int cairn_save_zip(cairn_lane *lane, const char *path, const struct cairn_zip_record *records,
                   size_t count, const struct cairn_zip_options *zip,
                   const struct cairn_save_options *options, cairn_save **ret)
{
    int64_t begun = clock_monotonic_ns();
    *ret = NULL;
    cause_clear();
    int r = lane_check(lane);
    if (r == 0)
        r = save_zip(lane, path, records, count, zip, options, ret);
    return lane_return(lane, begun, r);
}

/* --- safetensors ------------------------------------------------------------------------------ */

#define LENGTH_BYTES 8u /* before the header */
#define HEADER_ALIGNMENT 8u
#define HEADER_MAX (100ull * 1000 * 1000) /* what readers of the format take */

/* The length, the header and blanks, as the first source. */
static uint8_t *safetensors_header(const char *header, size_t length, uint64_t *ret_bytes)
{
    uint64_t padded = align_up(length, HEADER_ALIGNMENT);
    uint8_t *bytes = malloc(LENGTH_BYTES + padded);
    if (!bytes)
        return NULL;
    put_le64(bytes, padded);
    memcpy(bytes + LENGTH_BYTES, header, length);
    memset(bytes + LENGTH_BYTES + length, ' ', padded - length);
    *ret_bytes = LENGTH_BYTES + padded;
    return bytes;
}

/* The file ends where the last source does. */
static int name_tensors(struct named *named, const uint8_t *header, uint64_t begin,
                        const struct cairn_source *sources, size_t count, uint64_t *ret_bytes)
{
    int r = named_sources_new(named, count + 1);
    if (r < 0)
        return r;
    *ret_bytes = begin;
    named->sources[0] =
        (struct cairn_source){.length = begin, .host = header, .flags = CAIRN_SOURCE_NOW};
    named->of[0] = (struct source_of){.source = named->sources};
    named->count = count + 1;
    for (size_t i = 0; i < count; i++) {
        if (sources[i].offset > INT64_MAX / 2 || sources[i].length > INT64_MAX / 2 - begin) {
            cause_note("source %zu ends past the largest size of a file", i);
            return -EFBIG;
        }
        named->of[i + 1] =
            (struct source_of){.source = &sources[i], .at = begin + sources[i].offset};
        *ret_bytes = max_u64(*ret_bytes, begin + sources[i].offset + sources[i].length);
    }
    return 0;
}

static int save_safetensors(struct cairn_lane *lane, const char *path, const char *header,
                            size_t header_length, const struct cairn_source *sources, size_t count,
                            const struct cairn_save_options *options, struct cairn_save **ret)
{
    struct named named = {0};
    uint64_t begin, bytes;
    if (header_length < 2 || header_length > HEADER_MAX || header[0] != '{') {
        cause_note("the header of a safetensors file is a JSON object of at most %llu bytes",
                   HEADER_MAX);
        return -EINVAL;
    }
    _cleanup_free_ uint8_t *first = safetensors_header(header, header_length, &begin);
    int r = first ? name_tensors(&named, first, begin, sources, count, &bytes) : -ENOMEM;
    if (r == 0)
        r = save_whole(lane, path, bytes, options, NULL, &named, ret);
    named_sources_done(&named);
    return r;
}

int cairn_save_safetensors(cairn_lane *lane, const char *path, const char *header,
                           size_t header_length, const struct cairn_source *sources, size_t count,
                           const struct cairn_save_options *options, cairn_save **ret)
{
    int64_t begun = clock_monotonic_ns();
    *ret = NULL;
    cause_clear();
    int r = lane_check(lane);
    if (r == 0)
        r = save_safetensors(lane, path, header, header_length, sources, count, options, ret);
    return lane_return(lane, begun, r);
}

/* --- marker ----------------------------------------------------------------------------------- */

static int save_marker(struct cairn_lane *lane, const char *path, const void *data, size_t length,
                       const struct cairn_save_options *options, struct cairn_save **ret)
{
    struct cairn_source source = {.length = length, .host = data, .flags = CAIRN_SOURCE_NOW};
    struct source_of of = {.source = &source};
    struct named named = {.of = &of, .count = 1};
    return save_whole(lane, path, length, options, NULL, &named, ret);
}

int cairn_save_marker(cairn_lane *lane, const char *path, const void *data, size_t length,
                      const struct cairn_save_options *options, cairn_save **ret)
{
    int64_t begun = clock_monotonic_ns();
    *ret = NULL;
    cause_clear();
    int r = lane_check(lane);
    if (r == 0)
        r = save_marker(lane, path, data, length, options, ret);
    return lane_return(lane, begun, r);
}
