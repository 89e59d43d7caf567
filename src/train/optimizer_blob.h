/* SPDX-License-Identifier: Apache-2.0 */
/* What the blobs of an optimizer begin with; optimizer_save.c has their order. */
#ifndef TALLY_TRAIN_OPTIMIZER_BLOB_H
#define TALLY_TRAIN_OPTIMIZER_BLOB_H

#include "state/blob.h"

#define TALLY__OPTIMIZER_MAGIC UINT64_C(0x316d7974706f6c54)
#define TALLY__OPTIMIZER_VERSION 1

#endif
