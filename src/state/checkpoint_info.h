/* SPDX-License-Identifier: Apache-2.0 */
/* The public description of a checkpoint, for the calls that load and inspect one. */
#ifndef TALLY_STATE_CHECKPOINT_INFO_H
#define TALLY_STATE_CHECKPOINT_INFO_H

#include "state/container.h"
#include "tally.h"

#define TALLY__INFO TALLY__SIZED(tally_checkpoint_info, skipped)

/* Describes a checkpoint that was found; manifest is NULL if there is none. */
void tally__info_fill(const struct tally__found *found, const struct tally__manifest *manifest,
                      tally_checkpoint_info *info);

#endif
