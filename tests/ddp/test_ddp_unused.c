/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters without a gradient: on some ranks they count as zeros, on all ranks their gradient is
 * left as it was; buckets that no rank has anything for are skipped; and a graph that was said to
 * be static and changes is an error that names the parameter.
 */
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"

#define N 5
#define N_STEPS 12
#define MAX_BYTES 20000 /* of a gradient */

static const struct ddp_spec specs[N] = {
    {"a", TALLY_F32, 0, 1, {50}},  {"b", TALLY_F64, 0, 1, {20}}, {"c", TALLY_F32, 0, 2, {60, 80}},
    {"d", TALLY_BF16, 0, 1, {31}}, {"e", TALLY_F32, 0, 0, {0}},
};

struct mode {
    int copies;
    int find_unused; /* otherwise absent ones are announced as such */
    int skip_unused;
    size_t cap;
};

static size_t bytes_of(const struct ddp_model *model, size_t i)
{
    return model->count[i] * tally_dtype_bytes(model->spec[i].dtype);
}

/*
 * The ranks that have a gradient for parameter i in a step: none, all, or some; every rank knows
 * it.
 */
static unsigned mask_of(unsigned step, size_t i)
{
    unsigned hash = (step * 7u + (unsigned)i * 13u + 5u) * 2654435761u;

    if (step < 3) {
        return step == 0 ? ~0u : step == 1 ? (unsigned)(i % 2) * ~0u : 0;
    }
    return hash >> 28 < 5 ? 0 : hash >> 20;
}

/* ---- any mixture ---- */

static int step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned s,
                const struct mode *mode)
{
    unsigned everybody = (1u << tally_group_size(group)) - 1;
    int rank = tally_group_rank(group);
    unsigned char before[N][MAX_BYTES];

    for (size_t i = 0; i < N; i++) {
        CHECK(group, bytes_of(model, i) <= MAX_BYTES);
        memcpy(before[i], tally_ddp_grad(ddp, (int)i), bytes_of(model, i));
    }
    for (size_t i = N; i-- > 0;) {
        if (mask_of(s, i) >> rank & 1) {
            ddp_fill_grad(model, ddp, i, s, rank);
            CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
        } else if (!mode->find_unused) {
            CHECK_OK(group, tally_ddp_grad_absent(ddp, (int)i));
        }
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    for (size_t i = 0; i < N; i++) {
        unsigned ranks = mask_of(s, i) & everybody;
        int unused = 7;

        CHECK_OK(group, tally_ddp_is_unused(ddp, (int)i, &unused));
        CHECK(group, unused == (ranks == 0));
        if (ranks == 0) {
            CHECK(group, memcmp(before[i], tally_ddp_grad(ddp, (int)i), bytes_of(model, i)) == 0);
        } else {
            CHECK(group, ddp_wrong(model, ddp, i,
                                   ((struct ddp_mean){s, tally_group_size(group), ranks,
                                                      tally_group_size(group)})) == 0);
        }
    }
    return 0;
}

static int check_stats(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                       unsigned s, const struct mode *mode)
{
    unsigned everybody = (1u << tally_group_size(group)) - 1;
    tally_ddp_stats stats = {.size = sizeof stats};
    size_t unused_bytes = 0;
    size_t n_used = 0;

    for (size_t i = 0; i < N; i++) {
        bool used = (mask_of(s, i) & everybody) != 0;

        unused_bytes += used ? 0 : bytes_of(model, i);
        n_used += used;
    }
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK(group, stats.unused_bytes == unused_bytes);
    CHECK(group, !mode->find_unused || !stats.rebuilt);
    if (mode->cap == 1) {
        CHECK(group, stats.n_buckets == N);
        CHECK(group, stats.n_reduced == (mode->skip_unused ? n_used : N));
    }
    return 0;
}

static int mixture_body(tally_group *group, void *user)
{
    (void)user;
    for (int m = 0; m < 16; m++) {
        const struct mode mode = {m & 1, m >> 1 & 1, m >> 2 & 1, m & 8 ? 1 : 0};
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.find_unused = mode.find_unused;
        config.skip_unused = mode.skip_unused;
        config.bucket_cap_bytes = mode.cap;
        CHECK(group, ddp_model_make(&model, specs, N, mode.copies) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, N, &config, &ddp));
        for (unsigned s = 0; s < N_STEPS; s++) {
            /* The masks say of some steps that a rank announces nothing: that is for find_unused.
             */
            CHECK_OK(group, step(group, ddp, &model, s, &mode));
            CHECK_OK(group, check_stats(group, ddp, &model, s, &mode));
            ranks_note(group, 0, ddp_hash_grads(&model, ddp));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- a static graph ---- */

/* Parameter a is announced once, b twice, c never, d on rank 0 only, e three times. */
static int n_announcements(int i, int rank)
{
    static const int n[N] = {1, 2, 0, 1, 3};

    return i == 3 && rank > 0 ? 0 : n[i];
}

static unsigned ranks_of(size_t i)
{
    return i == 2 ? 0 : i == 3 ? 1 : ~0u;
}

static int announce(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned s,
                    int apart_from)
{
    int rank = tally_group_rank(group);

    for (int i = N - 1; i >= 0; i--) {
        if (n_announcements(i, rank) > 0) {
            ddp_fill_grad(model, ddp, (size_t)i, s, rank);
        }
        for (int k = 0; k < n_announcements(i, rank); k++) {
            /* Every use but the last is told before the gradient is whole: it must not travel. */
            if (i != apart_from || k > 0) {
                CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
            }
        }
    }
    return 0;
}

static int check_static(tally_group *group, const tally_ddp *ddp, const struct ddp_model *model,
                        unsigned s)
{
    const unsigned char *untouched = tally_ddp_grad(ddp, 2);
    int world = tally_group_size(group);

    for (size_t i = 0; i < N; i++) {
        int unused = 7;

        CHECK_OK(group, tally_ddp_is_unused(ddp, (int)i, &unused));
        CHECK(group, unused == (i == 2));
        CHECK(group, i == 2 || ddp_wrong(model, ddp, i,
                                         ((struct ddp_mean){s, world, ranks_of(i), world})) == 0);
    }
    for (size_t b = 0; b < bytes_of(model, 2); b++) {
        CHECK(group, untouched[b] == 0x55);
    }
    return 0;
}

/* The graph changes on this rank only; the others wait for its missing gradient. */
static int change(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned s)
{
    if (tally_group_rank(group) == 0) {
        /* Less than in the first step. */
        CHECK_OK(group, announce(group, ddp, model, s, 1));
        CHECK_STATUS(group, tally_ddp_grad_absent(ddp, 0), TALLY_STATE);
        CHECK_TEXT(group, tally_last_error(), "'a'");
        CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_STATE);
        CHECK_TEXT(group, tally_last_error(), "graph has changed");
        CHECK_TEXT(group, tally_last_error(), "'b'");
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 1));
        /* More. */
        CHECK_STATUS(group, tally_ddp_grad_ready(ddp, 1), TALLY_STATE);
        CHECK_TEXT(group, tally_last_error(), "graph has changed");
        CHECK_TEXT(group, tally_last_error(), "'b'");
        CHECK_STATUS(group, tally_ddp_grad_ready(ddp, 2), TALLY_STATE);
        CHECK_TEXT(group, tally_last_error(), "'c'");
    } else {
        CHECK_OK(group, announce(group, ddp, model, s, -1));
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

/* Not announced at all, though it was in the first step: with find_unused too that is a change. */
static int leave_out(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned s)
{
    int rank = tally_group_rank(group);

    ddp_fill_grad(model, ddp, 0, s, rank);
    CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
    CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "graph has changed");
    CHECK_TEXT(group, tally_last_error(), "'b'");
    CHECK_TEXT(group, tally_last_error(), "'e'");
    for (int i = 1; i < N; i++) {
        for (int k = 0; k < n_announcements(i, rank); k++) {
            ddp_fill_grad(model, ddp, (size_t)i, s, rank);
            CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
        }
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

static int static_body(tally_group *group, void *user)
{
    (void)user;
    for (int m = 0; m < 8; m++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.static_graph = 1;
        config.find_unused = m >> 1 & 1;
        config.bucket_cap_bytes = m & 4 ? 1 : 0;
        CHECK(group, ddp_model_make(&model, specs, N, m & 1) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, N, &config, &ddp));
        memset(tally_ddp_grad(ddp, 2), 0x55, bytes_of(&model, 2));
        for (unsigned s = 0; s < 8; s++) {
            if (s == 3) {
                CHECK_OK(group, change(group, ddp, &model, s));
            } else if (s == 5) {
                CHECK_OK(group, leave_out(group, ddp, &model, s));
            } else {
                CHECK_OK(group, announce(group, ddp, &model, s, -1));
                CHECK_OK(group, tally_ddp_wait(ddp));
            }
            CHECK_OK(group, check_static(group, ddp, &model, s));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

int main(void)
{
    int n_failures = ddp_run_seven("mixture", mixture_body, NULL, 1);

    n_failures += ddp_run("mixture", mixture_body, NULL, 3);
    n_failures += ddp_run("static graph", static_body, NULL, 1);
    n_failures += ddp_run("static graph", static_body, NULL, 3);
    return n_failures != 0;
}
