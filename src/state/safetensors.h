/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a safetensors file: eight bytes with the length of what follows, then JSON with name,
 * dtype, shape and place of every tensor, padded with blanks to a multiple of eight. Behind it lie
 * the tensors, row-major and little-endian, without gaps.
 */
#ifndef TALLY_STATE_SAFETENSORS_H
#define TALLY_STATE_SAFETENSORS_H

#include "state/growing_text.h"
#include "state/manifest.h"

/* The entry of a file that is no tensor. */
#define TALLY__METADATA_NAME "__metadata__"

/* Writes the head of a file with these tensors, in this order. */
void tally__safetensors_head(struct tally__growing *to, const struct tally__part *tensors, size_t n,
                             uint64_t step);

/* Writes a text as a JSON string, whatever its bytes are. */
void tally__json_string(struct tally__growing *to, const char *text);

#endif
