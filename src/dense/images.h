// SPDX-License-Identifier: Apache-2.0
/* Inside storing by means of others: bf16 chunks that were sent in the last minutes, as images that
 * fp32 chunks are found to be twins of (codec/twin_find.h). Any thread; but while one looks for
 * images, which the phases of fp32 do, none is added. */
#pragma once

#include "codec/fx.h"
#include "codec/twin_find.h"
#include "format/chunk.h"

struct images;
struct images *images_new(void);
void images_free(struct images *images); /* NULL is fine */
/* Those that were not used for long are forgotten. `now`: monotonic ns. */
void images_tick(struct images *images, int64_t now);

void images_add(struct images *images, const struct chunk_entry *entry,
                const struct fx_guess *guess, const uint8_t *raw);
/* An fp32 chunk of `len` bytes is sent: the index may take memory for it as for an image. */
void images_allow(struct images *images, size_t len);
/* As twin_find(); 0, too, where there are no images. */
size_t images_find(const struct images *images, const struct fx_guess *guess, const uint8_t *raw,
                   size_t len, struct twin_images *bytes, struct twin_match ret[CHUNK_REFS_MAX]);
/* The chunk that is the image with this tag. False: it was forgotten. */
bool images_name(const struct images *images, uint64_t tag, struct chunk_name *ret);
