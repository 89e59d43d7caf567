/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread does between two looks at a word that another one will write. */
#ifndef TALLY_BASE_RELAX_H
#define TALLY_BASE_RELAX_H

/* Tells the CPU that this is a waiting loop. Some tens of cycles. */
void tally__cpu_relax(void);

#endif
