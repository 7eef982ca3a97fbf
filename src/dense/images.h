// SPDX-License-Identifier: Apache-2.0
/* Inside dense/: bf16 chunks sent in the last minutes, as possible images of fp32 twins
 * (codec/twin_find.h). Any thread; but no image is added while a thread searches for images, in the
 * phases of fp32. */
#pragma once

#include "codec/fx.h"
#include "codec/twin_find.h"
#include "format/chunk.h"

struct images;
struct images *images_new(void);
void images_free(struct images *images); /* NULL is fine */
/* Drops images that were not used for long. `now`: monotonic ns. */
void images_tick(struct images *images, int64_t now);

void images_add(struct images *images, const struct chunk_entry *entry,
                const struct fx_guess *guess, const uint8_t *raw);
/* An fp32 chunk of `len` bytes is sent: the index may take as much memory for it as for an
 * image. */
void images_allow(struct images *images, size_t len);
/* As twin_find(); returns 0 if there are no images. */
size_t images_find(const struct images *images, const struct fx_guess *guess, const uint8_t *raw,
                   size_t len, struct twin_images *bytes, struct twin_match ret[CHUNK_REFS_MAX]);
/* Returns the chunk that is the image with this tag. False: it was dropped. */
bool images_name(const struct images *images, uint64_t tag, struct chunk_name *ret);
