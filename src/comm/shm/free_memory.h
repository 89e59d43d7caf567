/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory the machine can still give. */
#ifndef TALLY_COMM_FREE_MEMORY_H
#define TALLY_COMM_FREE_MEMORY_H

#include <stdint.h>

/* Bytes that can be had without ending anybody: free, reclaimable, and swap. UINT64_MAX when the
 * system does not say. A system call or three: not for hot paths. */
uint64_t tally__free_memory(void);

#endif
