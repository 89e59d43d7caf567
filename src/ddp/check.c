/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check mode; see check.h. Application threads enter with the ddp's mutex held, lanes with a
 * bucket, and the thread that trains with tally_ddp_check.
 */
#include "ddp/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/env.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sheet.h"
#include "base/status.h"
#include "comm/doing.h"
#include "ddp/compare.h"

/* Steps after which a gradient that was always zeros, and a parameter that never changed, are
 * reported. */
#define N_WATCHED 3

/* Observations of one parameter. */
struct watched {
    uint64_t announced; /* the checksum of its gradient when it was announced */
    uint64_t first;     /* the checksum of its data in the first step */
    bool noted;         /* announced was set in this step */
    bool nonzero;       /* a gradient had an element that is not zero */
    int n_ready;        /* steps in which it had a gradient */
};

struct tally__checks {
    int every;
    bool launches;              /* wait has checked the gradients: buckets may be launched */
    unsigned long long n_looks; /* steps so far */
    struct watched *params;
    uint64_t *sums;                /* of the parameters, before buckets were launched */
    struct tally__outcome outcome; /* of the last look; bucket jobs read it */
};

static struct tally__observed ask(const tally_ddp *ddp)
{
    return ddp->observer.ask ? ddp->observer.ask(ddp->observer.user) : (struct tally__observed){0};
}

/* ---- making it ---- */

static int read_every(const tally_ddp *ddp, int *every)
{
    if (ddp->config.check < -1) {
        return tally__fail(TALLY_ARG,
                           "config.check is %d; accepted: -1 (off), 0, or a number of steps",
                           ddp->config.check);
    }
    *every = ddp->config.check;
    if (*every == 0) {
        TRY(tally__env_count(TALLY__ENV_CHECK, every));
    }
    *every = *every > 0 ? *every : 0;
    return TALLY_OK;
}

int tally__checks_make(tally_ddp *ddp)
{
    struct tally__checks *made;
    int every = 0;

    TRY(read_every(ddp, &every));
    if (every == 0) {
        return TALLY_OK;
    }
    made = tally__alloc(sizeof *made, "check mode");
    if (!made) {
        return TALLY_NOMEM;
    }
    ddp->checks = made;
    made->every = every;
    made->params = tally__alloc_array(ddp->n_params, sizeof *made->params, "check mode");
    made->sums = tally__alloc_array(ddp->n_params, sizeof *made->sums, "check mode");
    return made->params && made->sums ? TALLY_OK : TALLY_NOMEM;
}

void tally__checks_free(tally_ddp *ddp)
{
    if (ddp->checks) {
        tally__free(ddp->checks->params);
        tally__free(ddp->checks->sums);
    }
    tally__free(ddp->checks);
    ddp->checks = NULL;
}

int tally__checks_every(const tally_ddp *ddp)
{
    return ddp->checks ? ddp->checks->every : 0;
}

/* ---- gradients ---- */

/* Whether n elements of `element` bytes are all zeros, 0 or -0. */
static bool all_zero(const unsigned char *bytes, size_t n, size_t element)
{
    for (size_t i = 0; i < n; i++, bytes += element) {
        uint64_t bits = 0;

        memcpy(&bits, bytes, element);
        if (bits << (64 - 8 * element + 1) != 0) {
            return false;
        }
    }
    return true;
}

/* Whether the gradient's bytes must not change: an absent view holds zeros, an absent copy does not
 * matter. */
static bool is_held(const tally_ddp *ddp, const struct tally__param *param)
{
    return param->now.state == TALLY__GRAD_READY ||
           (param->now.state == TALLY__GRAD_ABSENT && ddp->views);
}

void tally__checks_note(tally_ddp *ddp, const struct tally__param *param)
{
    struct watched *watched = &ddp->checks->params[param - ddp->params];

    watched->announced = tally__checksum(0, param->grad.array, param->grad.bytes);
    watched->noted = true;
}

/* The first gradient that was written to after its announcement; n counts all of them. */
static const struct tally__param *find_written(const tally_ddp *ddp, size_t *n)
{
    const struct tally__param *first = NULL;

    *n = 0;
    for (size_t k = 0; k < ddp->n_order; k++) {
        const struct tally__param *param = &ddp->params[ddp->order[k]];
        const struct watched *watched = &ddp->checks->params[ddp->order[k]];

        if (is_held(ddp, param) && watched->noted &&
            tally__checksum(0, param->grad.array, param->grad.bytes) != watched->announced) {
            first = first ? first : param;
            (*n)++;
        }
    }
    return first;
}

static void look_at_gradients(tally_ddp *ddp)
{
    size_t n;
    const struct tally__param *written = find_written(ddp, &n);
    char more[48] = "";

    ddp->checks->outcome.status = TALLY_OK;
    if (!written) {
        return;
    }
    if (n > 1) {
        (void)snprintf(more, sizeof more, " and %zu more", n - 1);
    }
    ddp->checks->outcome = tally__outcome_of(tally__fail(
        TALLY_STATE,
        "step %llu: the gradient of parameter %td ('%.100s')%s was written to after it was "
        "announced, before tally_ddp_wait returned: announce a gradient after its last "
        "contribution (a tied weight after its last use)",
        ddp->step + ddp->steps_before + 1, written - ddp->params, written->name, more));
}

/* ---- warnings ---- */

/* In check mode the user has asked for warnings. */
static void warn(const tally_ddp *ddp, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void warn(const tally_ddp *ddp, const char *format, ...)
{
    char text[TALLY__ERROR_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (ddp->checks) {
        tally__log_asked(TALLY_LOG_WARN, text);
    } else {
        tally__log(TALLY_LOG_WARN, "%s", text);
    }
}

static bool is_zero_always(const struct watched *watched, const struct tally__param *param)
{
    (void)param;
    return watched->n_ready >= N_WATCHED && !watched->nonzero;
}

static bool has_not_changed(const struct watched *watched, const struct tally__param *param)
{
    return watched->nonzero && tally__checksum(0, param->data, param->bytes) == watched->first;
}

/* Lists the parameters for which test is true; returns their number. */
static size_t list_params(const tally_ddp *ddp, char *list, size_t room,
                          bool (*test)(const struct watched *, const struct tally__param *))
{
    size_t n = 0;

    list[0] = '\0';
    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];

        if (param->bucket >= 0 && param->n > 0 && test(&ddp->checks->params[i], param)) {
            n++;
            tally__list_add(list, room, "%zu ('%.50s')", i, param->name);
        }
    }
    return n;
}

static void warn_of_zeros(const tally_ddp *ddp)
{
    char list[500];
    size_t n = list_params(ddp, list, sizeof list, is_zero_always);

    if (n > 0) {
        warn(ddp,
             "check: in the first %d steps the gradients of %zu of %zu parameters were all zeros: "
             "%s; if backward writes to other arrays, give these as tally_param.grad, or "
             "write where tally_ddp_grad says",
             N_WATCHED, n, ddp->n_order, list);
    }
}

static void warn_of_still(const tally_ddp *ddp)
{
    char list[500];
    size_t n;

    if (ask(ddp).skipped > 0) {
        return;
    }
    n = list_params(ddp, list, sizeof list, has_not_changed);
    if (n > 0) {
        warn(ddp,
             "check: in the first %d steps %zu of %zu parameters did not change, although their "
             "gradients are not zeros: %s; if the update writes to other arrays, give these as "
             "tally_param.data, or write where tally_ddp_data says",
             N_WATCHED, n, ddp->n_order, list);
    }
}

/* Observes each parameter in the first steps. */
static void watch(tally_ddp *ddp)
{
    struct tally__checks *checks = ddp->checks;

    if (checks->n_looks > N_WATCHED) {
        return;
    }
    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];
        struct watched *watched = &checks->params[i];

        if (param->bucket < 0) {
            continue;
        }
        if (checks->n_looks == 0) {
            watched->first = tally__checksum(0, param->data, param->bytes);
        }
        if (param->now.state == TALLY__GRAD_READY) {
            watched->n_ready++;
            watched->nonzero = watched->nonzero || !all_zero(param->grad.array, param->n,
                                                             tally_dtype_bytes(param->grad.dtype));
        }
    }
    if (checks->n_looks + 1 == N_WATCHED) {
        warn_of_zeros(ddp);
    }
    if (checks->n_looks == N_WATCHED) {
        warn_of_still(ddp);
    }
}

void tally__checks_local(tally_ddp *ddp)
{
    const tally_hook *local = tally__hook_local(ddp->hook);

    if (!local || ask(ddp).averages || ddp->warned_local ||
        ddp->step + ddp->steps_before <= local->private.local_start) {
        return;
    }
    ddp->warned_local = true;
    warn(
        ddp,
        "hook '%s': after %llu steps gradients travel within groups of ranks only, and the ddp has "
        "no averager: the ranks' parameters drift apart; make one with tally_averager_create",
        ddp->hook->table.name, (unsigned long long)local->private.local_start);
}

/* ---- comparing parameters ---- */

/* Whether parameters may differ between ranks, because gradients do not travel to all of them or
 * because the observer says so. */
static bool may_differ(const tally_ddp *ddp)
{
    const tally_hook *local = tally__hook_local(ddp->hook);
    uint64_t step = ddp->step + ddp->steps_before;

    return ddp->hook->private.sends_nothing || (local && step > local->private.local_start) ||
           ask(ddp).may_differ;
}

/* Whether at least some parameters must be equal on all ranks. */
static bool is_comparable(const tally_ddp *ddp)
{
    return !may_differ(ddp) || ask(ddp).equal;
}

/* Takes checksums of the parameters that must be equal on all ranks. */
static void sum_params(const tally_ddp *ddp, uint64_t *sums)
{
    const bool *equal = may_differ(ddp) ? ask(ddp).equal : NULL;

    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];
        bool counts = !(param->flags & TALLY_PARAM_IGNORED) && (!equal || equal[i]);

        sums[i] = counts ? tally__checksum(0, param->data, param->bytes) : 0;
    }
}

static uint64_t sum_of(const void *sums, size_t i)
{
    return ((const uint64_t *)sums)[i];
}

/* Fails on all ranks; names the parameter and the ranks whose values differ from rank 0's. */
static int report(tally_lane *lane, const tally_ddp *ddp, uint64_t own, size_t i)
{
    int size = tally_group_size(ddp->group);
    int32_t *differs = tally__alloc_array((size_t)size, sizeof *differs, "ranks that differ");
    uint64_t zero = own;
    struct tally__rank_list list = {0};
    int rc;

    if (!differs) {
        return TALLY_NOMEM;
    }
    rc = tally_lane_broadcast(lane, &zero, sizeof zero, 0);
    differs[tally_group_rank(ddp->group)] = own != zero;
    if (rc == TALLY_OK) {
        rc = tally_lane_all_reduce(lane, differs, (size_t)size, TALLY_I32, TALLY_SUM);
    }
    for (int r = 0; rc == TALLY_OK && r < size; r++) {
        if (differs[r] != 0) {
            tally__rank_list_add(&list, ddp->group, r);
        }
    }
    if (rc == TALLY_OK) {
        rc = tally__fail(TALLY_MISMATCH,
                         "after %llu steps parameter %zu ('%.100s') is not the same on all ranks: "
                         "%s differ%s from %s; see docs/when-ranks-disagree.md",
                         ddp->step + ddp->steps_before, i, ddp->params[i].name, list.text,
                         list.n == 1 ? "s" : "", tally__rank_text(ddp->group, 0).text);
    }
    tally__free(differs);
    return rc;
}

static int compare(tally_lane *lane, const tally_ddp *ddp, const uint64_t *sums)
{
    const struct tally__digests digests = {ddp->n_params, sums, sum_of};
    size_t first;

    TRY(tally__find_difference(lane, &digests, &first));
    return first == TALLY__NO_DIFFERENCE ? TALLY_OK : report(lane, ddp, sums[first], first);
}

/* ---- steps ---- */

/* Whether this step compares parameters, and some must be equal. The same answer on all ranks. */
static bool is_due(const tally_ddp *ddp)
{
    uint64_t step = ddp->step + ddp->steps_before;

    return step % (uint64_t)ddp->checks->every == 0 && is_comparable(ddp);
}

bool tally__checks_hold(const tally_ddp *ddp)
{
    return ddp->checks && !ddp->checks->launches;
}

void tally__checks_look(tally_ddp *ddp)
{
    if (ddp->checks->launches) {
        return;
    }
    look_at_gradients(ddp);
    watch(ddp);
    /* Now: once buckets are launched, lanes may update parameters. */
    if (is_due(ddp)) {
        sum_params(ddp, ddp->checks->sums);
    }
    ddp->checks->n_looks++;
    ddp->checks->launches = true;
}

void tally__checks_reset(tally_ddp *ddp)
{
    ddp->checks->launches = false;
    ddp->checks->outcome.status = TALLY_OK;
    for (size_t i = 0; i < ddp->n_params; i++) {
        ddp->checks->params[i].noted = false;
    }
}

int tally__checks_bucket(tally_lane *lane, struct tally__bucket *bucket)
{
    const tally_ddp *ddp = bucket->ddp;
    uint64_t before = lane->job.bytes_sent;

    TRY(tally__agree_status(lane, &ddp->checks->outcome));
    /* A rank without input keeps old parameters until tally_ddp_join returns. */
    if (bucket == ddp->buckets.bucket && is_due(ddp) &&
        !(ddp->config.join && ddp->presence.n_active < tally_group_size(ddp->group))) {
        TRY(compare(lane, ddp, ddp->checks->sums));
        bucket->now.aside_bytes += lane->job.bytes_sent - before;
    }
    return TALLY_OK;
}

/* ---- on demand ---- */

struct demand {
    tally_ddp *ddp;
    uint64_t *sums;
};

static int check_job(tally_lane *lane, void *user)
{
    const struct demand *demand = user;

    return compare(lane, demand->ddp, demand->sums);
}

int tally_ddp_check(tally_ddp *ddp)
{
    struct demand demand = {.ddp = ddp};
    int rc;

    TRY(tally__check_between_steps(ddp, "tally_ddp_check"));
    if (!is_comparable(ddp)) {
        return tally__stats_note(
            ddp, tally__fail(TALLY_STATE,
                             "tally_ddp_check: with %s ranks may have different parameters until "
                             "the next averaging of all ranks; call it after that",
                             ask(ddp).averages ? "an averager" : ddp->hook->table.name));
    }
    demand.sums = tally__alloc_array(ddp->n_params, sizeof *demand.sums, "checksums");
    if (demand.sums) {
        sum_params(ddp, demand.sums);
    }
    rc = tally__ddp_agree(ddp, demand.sums ? TALLY_OK : TALLY_NOMEM, check_job, &demand);
    tally__free(demand.sums);
    return tally__stats_note(ddp, rc);
}
