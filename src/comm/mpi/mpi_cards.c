/* SPDX-License-Identifier: Apache-2.0 */
/* Cards of ranks, and the memory that the ranks of a machine share under MPI. Keeps no state. */
#include "comm/mpi/mpi_cards.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/mpi/mpi_end.h"
#include "comm/shm/shm_domain.h"

#define PAUSE_NS 100000u

int tally__fail_mpi(const struct tally__mpi_api *api)
{
    return tally__fail(TALLY_SYSTEM, "%s: %s", api->name, api->error());
}

int tally__mpi_wait_request(const struct tally__mpi_api *api,
                            const struct tally__settings *settings,
                            struct tally__mpi_handle *request)
{
    uint64_t end_ns =
        tally__now_ns() + (uint64_t)(settings->open_timeout_s * (double)TALLY__NS_PER_SECOND);
    struct tally__mpi_status status = {0};

    for (;;) {
        if (api->test(request, &status) != 0) {
            return tally__fail_mpi(api);
        }
        if (status.is_done) {
            return TALLY_OK;
        }
        if (tally__now_ns() > end_ns) {
            tally__mpi_note_lost();
            return tally__fail(TALLY_TIMEOUT,
                               "not all ranks of MPI have opened the group within %g s",
                               settings->open_timeout_s);
        }
        tally__mpi_unlock();
        tally__sleep_ns(PAUSE_NS);
        tally__mpi_lock();
    }
}

static int gather(const struct tally__mpi_opening *opening, const void *own, size_t bytes,
                  void *all)
{
    const struct tally__mpi_api *api = opening->messenger->api;
    struct tally__mpi_handle request;

    return api->gather(&opening->messenger->comm, own, bytes, all, &request) == 0
               ? tally__mpi_wait_request(api, opening->settings, &request)
               : tally__fail_mpi(api);
}

/* Reads the variables that only backend mpi has. */
static int read_variables(int *shares)
{
    int message;

    TRY(tally__env_count(TALLY__ENV_SHARE, shares));
    return tally__env_count(TALLY__ENV_MESSAGE, &message);
}

/* A rank that cannot open the group says why: the others would wait for it. */
static int greet(struct tally__mpi_opening *opening, int *shares)
{
    struct tally__mpi_hello *own = &opening->hello;

    (void)snprintf(own->version, sizeof own->version, "%s", tally_version());
    own->card_bytes = sizeof(struct tally__mpi_card);
    own->status = read_variables(shares);
    if (own->status != TALLY_OK) {
        (void)snprintf(own->text, sizeof own->text, "%s", tally_last_error());
    }
    return gather(opening, own, sizeof *own, opening->hellos);
}

static int check_hellos(const struct tally__mpi_opening *opening)
{
    struct tally__mpi_hello *first = &opening->hellos[0];

    for (int r = 0; r < opening->n_ranks; r++) {
        struct tally__mpi_hello *hello = &opening->hellos[r];

        hello->version[sizeof hello->version - 1] = '\0';
        hello->text[sizeof hello->text - 1] = '\0';
        if (strcmp(hello->version, first->version) != 0 || hello->card_bytes != first->card_bytes) {
            return tally__fail(TALLY_MISMATCH,
                               "rank 0 uses libtally %s, rank %d libtally %s%s: all ranks need the "
                               "same library",
                               first->version, r, hello->version,
                               hello->card_bytes != first->card_bytes ? ", another build" : "");
        }
    }
    for (int r = 0; r < opening->n_ranks; r++) {
        if (opening->hellos[r].status != TALLY_OK) {
            return tally__fail(opening->hellos[r].status, "rank %d: %s", r,
                               opening->hellos[r].text);
        }
    }
    return TALLY_OK;
}

static void describe(const struct tally__mpi_opening *opening, int shares,
                     struct tally__mpi_card *card)
{
    memset(card, 0, sizeof *card);
    tally__process_describe(&card->process);
    tally__own_cpus(&card->cpus);
    card->lanes = opening->settings->lanes;
    card->shares = shares;
    if (getrandom(card->random, sizeof card->random, 0) != (ssize_t)sizeof card->random) {
        card->shares = 0;
    }
}

static bool is_same_machine(const struct tally__mpi_opening *opening, int a, int b)
{
    return tally__machine_is_same(&opening->cards[a].process.machine,
                                  &opening->cards[b].process.machine);
}

/* Whether two ranks share memory, if they can meet. */
static bool would_share(const struct tally__mpi_opening *opening, int a, int b)
{
    return a == b ||
           (opening->cards[a].shares > 0 && opening->cards[a].shares == opening->cards[b].shares &&
            is_same_machine(opening, a, b));
}

/* Finds the ranks of this machine; all ranks must have the same number of lanes. */
static int find_near(struct tally__mpi_opening *opening)
{
    const struct tally__mpi_card *first = &opening->cards[0];

    for (int r = 0; r < opening->n_ranks; r++) {
        const struct tally__mpi_card *card = &opening->cards[r];

        if (card->lanes != first->lanes) {
            return tally__fail(TALLY_MISMATCH,
                               "rank 0 opens the group with lanes = %d, rank %d with lanes = %d: "
                               "all ranks need the same number",
                               first->lanes, r, card->lanes);
        }
        if (would_share(opening, r, opening->rank)) {
            opening->near[opening->n_near++] = r;
        }
    }
    return TALLY_OK;
}

/* Meets the near ranks in shared memory. Without the lock: it waits for them. */
static int meet(struct tally__mpi_opening *opening)
{
    const uint64_t *random = opening->cards[opening->near[0]].random;
    struct tally__settings settings = *opening->settings;

    settings.world = opening->n_near;
    settings.rank = 0;
    while (opening->near[settings.rank] != opening->rank) {
        settings.rank++;
    }
    (void)snprintf(settings.rendezvous, sizeof settings.rendezvous, "@tally-mpi-%016llx%016llx",
                   (unsigned long long)random[0], (unsigned long long)random[1]);
    return tally__shm_meet(opening->domain, &settings, opening->near);
}

static int make_domain(struct tally__mpi_opening *opening)
{
    int lanes = opening->settings->lanes;

    return tally__shm_make(opening->n_ranks, opening->rank, lanes > 0 ? lanes : 1, &opening->domain,
                           &opening->slots);
}

/* A rank that has not met the others keeps all of them from sharing. */
static void spread_outcomes(const struct tally__mpi_opening *opening)
{
    for (int r = 0; r < opening->n_ranks; r++) {
        for (int s = 0; !opening->outcomes[r] && s < opening->n_ranks; s++) {
            if (would_share(opening, r, s)) {
                opening->outcomes[s] = 0;
            }
        }
    }
}

static int share(struct tally__mpi_opening *opening)
{
    int rc = make_domain(opening);

    if (rc == TALLY_OK && opening->n_near > 1) {
        tally__mpi_unlock();
        rc = meet(opening);
        tally__mpi_lock();
    }
    opening->outcome = rc == TALLY_OK;
    TRY(gather(opening, &opening->outcome, sizeof opening->outcome, opening->outcomes));
    spread_outcomes(opening);
    if (opening->outcomes[opening->rank]) {
        return TALLY_OK;
    }
    if (rc != TALLY_OK) {
        tally__log(TALLY_LOG_WARN, "the ranks of this machine do not share memory: %s",
                   tally_last_error());
    }
    if (opening->domain) {
        opening->domain->ops->destroy(opening->domain);
        opening->domain = NULL;
    }
    return make_domain(opening);
}

/* Counts machines by their first ranks, and the ranks on this one. */
static int count_machines(const struct tally__mpi_opening *opening, int *n_here)
{
    int n = 0;

    *n_here = 1;
    for (int r = 0; r < opening->n_ranks; r++) {
        int first = 0;

        while (first < r && !is_same_machine(opening, first, r)) {
            first++;
        }
        n += first == r;
        *n_here += r != opening->rank && is_same_machine(opening, r, opening->rank);
    }
    return n;
}

/* Whether every rank on this machine has a CPU. */
static bool has_cpus(const struct tally__mpi_opening *opening, int n_here)
{
    struct tally__cpus all = opening->own.cpus;

    for (int r = 0; r < opening->n_ranks; r++) {
        if (is_same_machine(opening, r, opening->rank)) {
            tally__add_cpus(&all, &opening->cards[r].cpus);
        }
    }
    return tally__count_cpus(&all) >= n_here;
}

/* The first rank that shares memory with a rank. */
static int first_near_of(const struct tally__mpi_opening *opening, int rank)
{
    int first = 0;

    if (!opening->outcomes[rank]) {
        return rank;
    }
    while (!would_share(opening, first, rank)) {
        first++;
    }
    return first;
}

static int fill_domain(struct tally__mpi_opening *opening)
{
    struct tally__domain *domain = opening->domain;
    struct tally__messenger *messenger = opening->messenger;
    size_t n = (size_t)opening->n_ranks;
    int n_here;

    domain->first_near = tally__alloc_array(n, sizeof *domain->first_near, "MPI's ranks");
    messenger->processes =
        tally__alloc_array(n, sizeof(struct tally__process *), "peers' processes");
    if (!domain->first_near || !messenger->processes) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < n; r++) {
        domain->first_near[r] = first_near_of(opening, (int)r);
        messenger->processes[r] = tally__process_watch(&opening->cards[r].process);
    }
    domain->name = "mpi";
    domain->medium = messenger->api->name;
    domain->n_machines = count_machines(opening, &n_here);
    domain->spins = has_cpus(opening, n_here);
    messenger->channel_span = (uint32_t)(opening->most_tag / 2 / opening->n_ranks);
    return tally__messenger_begin(messenger, domain);
}

int tally__mpi_make_domain(struct tally__mpi_opening *opening)
{
    size_t n = (size_t)opening->n_ranks;
    int shares;

    opening->hellos = tally__alloc_array(n, sizeof *opening->hellos, "MPI's ranks");
    opening->cards = tally__alloc_array(n, sizeof *opening->cards, "MPI's ranks");
    opening->outcomes = tally__alloc_array(n, sizeof *opening->outcomes, "MPI's ranks");
    opening->near = tally__alloc_array(n, sizeof *opening->near, "MPI's ranks");
    if (!opening->hellos || !opening->cards || !opening->outcomes || !opening->near) {
        return TALLY_NOMEM;
    }
    TRY(greet(opening, &shares));
    TRY(check_hellos(opening));
    describe(opening, shares, &opening->own);
    TRY(gather(opening, &opening->own, sizeof opening->own, opening->cards));
    TRY(find_near(opening));
    TRY(share(opening));
    return fill_domain(opening);
}
