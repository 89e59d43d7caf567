/* SPDX-License-Identifier: Apache-2.0 */
/* Every optimizer's kernels of an instruction set against the reference, bit for bit: all short
 * lengths, arrays that are out of alignment each in its own way, all kinds of data in all of them.
 * One thread. */
#include "support/optim_tests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/num_check.h"
#include "support/optim_variants.h"

#define MAX_LENGTH 131

/* Guarded arrays with the contents that the case, the variant and the stream have. */
static struct optim_arrays make_arrays(const struct num_case *c, const struct optim_variant *v)
{
    size_t bytes = c->n * sizeof(float);
    struct num_case own = *c;
    struct optim_arrays a = {.n = c->n, .g = num_input_f32(c, c->n, 1)};

    own.shift = (c->shift + 1) % 4;
    a.p = num_output_copy(&own, bytes, sizeof(float), num_input_f32(c, c->n, 2));
    for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
        if ((v->used >> k & 1) != 0) {
            own.shift = (c->shift + 2 + k) % 4;
            a.state[k] = num_output_copy(&own, bytes, sizeof(float), num_input_f32(c, c->n, 3 + k));
        }
    }
    return a;
}

static struct optim_arrays piece_of(const struct optim_arrays *a, size_t first, size_t n)
{
    struct optim_arrays piece = {.n = n, .g = a->g + first, .p = a->p + first};

    for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
        piece.state[k] = a->state[k] ? a->state[k] + first : NULL;
    }
    return piece;
}

static void assert_same(const struct num_case *c, const struct optim_variant *v,
                        const struct optim_arrays *got, const struct optim_arrays *want)
{
    for (size_t i = 0; i < c->n; i++) {
        num_assert(c, num_same_f32(got->p[i], want->p[i]), i, v->name);
        for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
            num_assert(c, !got->state[k] || num_same_f32(got->state[k][i], want->state[k][i]), i,
                       v->name);
        }
    }
}

static void check_case(const struct num_case *c, const struct optim_variant *v)
{
    struct optim_arrays want = make_arrays(c, v);
    struct optim_arrays whole = make_arrays(c, v);
    struct optim_arrays pieces = make_arrays(c, v);
    size_t n;

    /* The first step, and one that finds what the first has left. */
    for (uint64_t t = 1; t <= 2; t++) {
        v->step(tally__isas[0].optim, &want, t);
        v->step(c->isa->optim, &whole, t);
        for (size_t first = 0; first < c->n; first += n) {
            struct optim_arrays piece;

            n = 1 + num_random(t, first) % 40;
            n = n < c->n - first ? n : c->n - first;
            piece = piece_of(&pieces, first, n);
            v->step(c->isa->optim, &piece, t);
        }
        assert_same(c, v, &whole, &want);
        assert_same(c, v, &pieces, &want);
    }
    num_release();
}

static void check_length(const struct tally__isa *isa, size_t n)
{
    for (size_t i = 0; i < optim_n_variants; i++) {
        for (size_t shift = 0; shift < 2; shift++) {
            for (int data = 0; data < NUM_N_DATA; data++) {
                const struct num_case c = {isa, n, shift, (enum num_data)data};

                check_case(&c, &optim_variants[i]);
            }
        }
    }
}

static void short_arrays(void **state)
{
    for (size_t n = 0; n < MAX_LENGTH; n++) {
        check_length((const struct tally__isa *)*state, n);
    }
}

static void long_arrays(void **state)
{
    check_length((const struct tally__isa *)*state, 1000);
    check_length((const struct tally__isa *)*state, 4099);
}

int optim_test_isa(const struct tally__isa *isa)
{
    const struct CMUnitTest tests[] = {
        {"short arrays", short_arrays, NULL, NULL, (void *)(uintptr_t)isa},
        {"long arrays", long_arrays, NULL, NULL, (void *)(uintptr_t)isa},
    };

    return cmocka_run_group_tests_name(isa->name, tests, NULL, NULL);
}
