/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as processes whose memory near ranks map: all ranks of backend shm, and the ranks of each
 * machine under MPI. */
#ifndef TALLY_COMM_SHM_DOMAIN_H
#define TALLY_COMM_SHM_DOMAIN_H

#include "comm/group.h"
#include "comm/group_config.h"

/* Errors: ARG, TIMEOUT, MISMATCH, PEER, SYSTEM, NOMEM. */
int tally__open_shm(const struct tally__settings *settings, tally_group **group);

/* Makes a domain with the memory of this rank, and its slots. Errors: NOMEM, SYSTEM. */
int tally__shm_make(int n_ranks, int rank, int n_slots, struct tally__domain **domain,
                    struct tally__slot **slots);

/*
 * Maps the memory of the near ranks. The settings are those of the rendezvous: their rank and world
 * count near ranks, and near[i] is the domain's rank of the i-th. On failure the domain is to be
 * destroyed. Errors: as tally__open_shm.
 */
int tally__shm_meet(struct tally__domain *domain, const struct tally__settings *settings,
                    const int *near);

/* Whether this process has limited address space: a domain with such a rank is tight. */
bool tally__shm_is_limited(const struct tally__domain *domain);

#endif
