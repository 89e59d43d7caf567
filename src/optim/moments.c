/* SPDX-License-Identifier: Apache-2.0 */
/* The moments of a parameter: their memory, and a step in parts. Lanes and application threads
 * enter, one at a time for each parameter. */
#include "optim/moments.h"

#include <assert.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/status.h"

/* Elements per part where the gradient is also scaled or zeroed: with the parameter and three
 * states they fill 320 KiB. */
#define PART ((size_t)16384)

int tally__moments_cover(struct tally__moments *moments, int n_states, size_t first, size_t n)
{
    assert(n_states >= 0 && n_states <= TALLY_MAX_STATES);
    *moments = (struct tally__moments){.first = first, .n = n, .n_states = n_states};
    for (int k = 0; k < n_states; k++) {
        moments->state[k] =
            tally__alloc_array(n, sizeof *moments->state[k], "an optimizer's state");
        if (!moments->state[k]) {
            tally__moments_clear(moments);
            return TALLY_NOMEM;
        }
    }
    return TALLY_OK;
}

void tally__moments_clear(struct tally__moments *moments)
{
    for (int k = 0; k < moments->n_states; k++) {
        tally__free(moments->state[k]);
    }
    *moments = (struct tally__moments){.n = 0};
}

static void scale(size_t n, float *x, float factor)
{
    tally__fpenv saved = tally__fpenv_enter();

    for (size_t i = 0; i < n; i++) {
        x[i] *= factor;
    }
    tally__fpenv_leave(saved);
}

/* Describes n elements from at on, counted from the first covered element. */
static int step_part(const struct tally__moments *moments, const struct tally__rule *rule,
                     const tally_step_param *param, size_t at, size_t n)
{
    float *state[TALLY_MAX_STATES];
    tally_step_param part = *param;

    assert(at + n <= moments->n && moments->n_states <= TALLY_MAX_STATES);
    for (int k = 0; k < moments->n_states; k++) {
        state[k] = moments->state[k] + at;
    }
    part.size = sizeof part;
    part.first = moments->first + at;
    part.n = n;
    part.data = param->data + at;
    part.gradient = param->gradient + at;
    part.state = state;
    part.step = moments->step + 1;
    return rule->table.step_param(rule->user, &part);
}

static int step_parts(const struct tally__moments *moments, const struct tally__rule *rule,
                      const tally_step_param *param, float factor, bool release)
{
    bool in_parts = rule->table.elementwise && (factor != 1.0f || release);
    size_t most = in_parts && moments->n > PART ? PART : moments->n;

    for (size_t at = 0; at < moments->n; at += most) {
        size_t n = moments->n - at < most ? moments->n - at : most;
        float *gradient = (float *)param->gradient + at;

        if (factor != 1.0f) {
            scale(n, gradient, factor);
        }
        TRY(step_part(moments, rule, param, at, n));
        if (release) {
            memset(gradient, 0, n * sizeof *gradient);
        }
    }
    return TALLY_OK;
}

int tally__moments_step(struct tally__moments *moments, const struct tally__rule *rule,
                        const tally_step_param *param, float factor, bool release)
{
    struct tally__aside aside;
    int rc;

    tally__put_aside(&aside);
    rc = step_parts(moments, rule, param, factor, release);
    if (!tally__take_back(&aside, rc)) {
        (void)tally__fail(rc, "optimizer '%s': step_param failed for parameter '%s': %s",
                          rule->name, param->name ? param->name : "", tally_status_text(rc));
    }
    moments->step += rc == TALLY_OK;
    return rc;
}
