/* SPDX-License-Identifier: Apache-2.0 */
/* Pause between two reads of a word that another thread will write. */
#ifndef TALLY_BASE_RELAX_H
#define TALLY_BASE_RELAX_H

/* Tells the CPU that this is a spin loop. Some tens of cycles. */
void tally__cpu_relax(void);

#endif
