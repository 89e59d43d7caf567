/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as processes on one machine. */
#ifndef TALLY_COMM_SHM_DOMAIN_H
#define TALLY_COMM_SHM_DOMAIN_H

#include "comm/group.h"
#include "comm/group_config.h"

/* Errors: ARG, TIMEOUT, MISMATCH, PEER, SYSTEM, NOMEM. */
int tally__open_shm(const struct tally__settings *settings, tally_group **group);

#endif
