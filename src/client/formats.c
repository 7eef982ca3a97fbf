// SPDX-License-Identifier: Apache-2.0
/* Saves whose whole content is named by one call: zip, safetensors, markers. */

#include "base/clock.h"
#include "client/lane.h"
#include "format/le.h"

/* A call that names a whole file. */
struct whole {
    struct cairn_lane *lane;
    const char *path;
    const struct cairn_save_options *options;
    struct cairn_save **ret;
    int64_t begun;
};

/* The sources of a call. */
struct named {
    struct source_of *of;
    size_t count;
};

static int whole_begin(struct whole *whole)
{
    whole->begun = clock_monotonic_ns();
    *whole->ret = NULL;
    return lane_call(whole->lane);
}

static int named_new(struct named *named, size_t count)
{
    *named = (struct named){.of = calloc(count, sizeof *named->of), .count = count};
    return named->of ? 0 : -ENOMEM;
}

/* Makes a save that gets no more sources; once it exists, it owns the zip's entries. The call fails
 * only if no save was made: later errors are errors of the save. */
static int save_whole(const struct whole *whole, uint64_t bytes, struct zip *zip,
                      const struct named *named)
{
    struct cairn_save *save;
    TRY(save_new(whole->lane, whole->path, bytes, whole->options, zip, &save));
    if (zip)
        zip->entries = NULL;
    int r = save_add(save, named->of, named->count);
    if (r == 0)
        r = save_close(save, !(save->flags & CAIRN_SAVE_HOLD));
    if (r < 0 && !save_has_failed(save)) { /* bad sources, no memory */
        (void)cairn_save_abort(save);
        cairn_save_free(save);
        return r;
    }
    *whole->ret = save;
    return 0;
}

/* --- zip -------------------------------------------------------------------------------------- */

static int take_zip_options(struct zip *zip, const char *path,
                            const struct cairn_zip_options *given)
{
    struct cairn_zip_options options;
    TRY(take_struct(&options, sizeof options, given));
    zip->alignment = options.alignment ? options.alignment : ZIP_ALIGNMENT;
    zip->archive = options.archive ? options.archive : zip_archive_of(path, &zip->archive_length);
    if (options.archive)
        zip->archive_length = strlen(options.archive);
    return 0;
}

/* The entries with their names, and the archive's name, in one allocation that the save frees. */
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
    TRY(named_new(named, zip->count));
    for (size_t i = 0; i < zip->count; i++)
        named->of[i] = (struct source_of){
            .source = &records[i].source, .at = zip->entries[i].data, .entry = i};
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

static int plan_zip(struct zip *zip, const struct cairn_zip_record *records, size_t count,
                    struct named *named)
{
    TRY(take_entries(zip, records, count));
    TRY(zip_plan(zip));
    return name_records(named, zip, records);
}

int cairn_save_zip(cairn_lane *lane, const char *path, const struct cairn_zip_record *records,
                   size_t count, const struct cairn_zip_options *zip_options,
                   const struct cairn_save_options *options, cairn_save **ret)
{
    struct whole whole = {.lane = lane, .path = path, .options = options, .ret = ret};
    struct zip zip = {0};
    struct named named = {0};
    int r = whole_begin(&whole);
    if (r == 0)
        r = check_records(records, count);
    if (r == 0)
        r = take_zip_options(&zip, path, zip_options);
    if (r == 0)
        r = plan_zip(&zip, records, count, &named);
    if (r == 0)
        r = save_whole(&whole, zip.file_size, &zip, &named);
    free(zip.entries);
    free(named.of);
    return lane_return(lane, whole.begun, r);
}

/* --- safetensors ------------------------------------------------------------------------------ */

#define LENGTH_BYTES 8u /* before the header */
#define HEADER_ALIGNMENT 8u
#define HEADER_MAX (100ull * 1000 * 1000) /* readers of the format accept at most this */

/* The length, the header and padding, as the first source. */
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

/* The header, followed by the tensors: the file ends with the last source. */
static int name_tensors(struct named *named, const struct cairn_source *header,
                        const struct cairn_source *sources, size_t count, uint64_t *ret_bytes)
{
    uint64_t begin = header->length;
    TRY(named_new(named, count + 1));
    *ret_bytes = begin;
    named->of[0].source = header;
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

static int check_header(const char *header, size_t length)
{
    if (length >= 2 && length <= HEADER_MAX && header[0] == '{')
        return 0;
    cause_note("the header of a safetensors file is a JSON object of at most %llu bytes",
               HEADER_MAX);
    return -EINVAL;
}

int cairn_save_safetensors(cairn_lane *lane, const char *path, const char *header,
                           size_t header_length, const struct cairn_source *sources, size_t count,
                           const struct cairn_save_options *options, cairn_save **ret)
{
    struct whole whole = {.lane = lane, .path = path, .options = options, .ret = ret};
    struct cairn_source first = {.flags = CAIRN_SOURCE_NOW};
    struct named named = {0};
    uint64_t bytes = 0;
    int r = whole_begin(&whole);
    if (r == 0)
        r = check_header(header, header_length);
    _cleanup_free_ uint8_t *text =
        r == 0 ? safetensors_header(header, header_length, &first.length) : NULL;
    first.host = text;
    if (r == 0)
        r = text ? name_tensors(&named, &first, sources, count, &bytes) : -ENOMEM;
    if (r == 0)
        r = save_whole(&whole, bytes, NULL, &named);
    free(named.of);
    return lane_return(lane, whole.begun, r);
}

/* --- marker ----------------------------------------------------------------------------------- */

int cairn_save_marker(cairn_lane *lane, const char *path, const void *data, size_t length,
                      const struct cairn_save_options *options, cairn_save **ret)
{
    struct whole whole = {.lane = lane, .path = path, .options = options, .ret = ret};
    struct cairn_source source = {.length = length, .host = data, .flags = CAIRN_SOURCE_NOW};
    struct named named = {.of = &(struct source_of){.source = &source}, .count = 1};
    int r = whole_begin(&whole);
    return lane_return(lane, whole.begun, r < 0 ? r : save_whole(&whole, length, NULL, &named));
}
