/* SPDX-License-Identifier: Apache-2.0 */
/* The synthetic backward pass. One thread enters; all state is in the object. */
#include "bench/backward.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

/* Elements of a unit: some ten microseconds, so that a backward pass is made of thousands. */
#define UNIT_ELEMENTS ((size_t)16 << 10)
#define MIN_BYTES ((size_t)64 << 20)
#define MAX_BYTES ((size_t)1 << 30)
#define BATCH_UNITS 64
#define CALIBRATION_NS (TALLY__NS_PER_SECOND / 10)

/* Twice the last cache that this CPU uses, where the kernel says how large that is: sysconf may add
 * the caches of all CPUs of a processor, most of which are out of reach here. */
static size_t wanted_bytes(void)
{
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
    char line[32] = "";
    size_t bytes;

    if (file) {
        (void)fgets(line, sizeof line, file); /* such as "32768K" */
        (void)fclose(file);
    }
    bytes = 2 * (strtoul(line, NULL, 10) << 10);

    bytes = bytes > MIN_BYTES ? bytes : MIN_BYTES;
    return bytes < MAX_BYTES ? bytes : MAX_BYTES;
}

int backward_create(struct backward *backward)
{
    size_t n_units = wanted_bytes() / (UNIT_ELEMENTS * sizeof(float));

    *backward = (struct backward){.n = n_units * UNIT_ELEMENTS};
    backward->values =
        tally__alloc_array(backward->n, sizeof *backward->values, "the synthetic backward pass");
    if (!backward->values) {
        return TALLY_NOMEM;
    }
    backward_burn(backward, n_units);
    return TALLY_OK;
}

void backward_free(struct backward *backward)
{
    tally__free(backward->values);
    *backward = (struct backward){0};
}

/* Sixteen operations for each element read and written; the values stay between 0 and 2. */
static void burn_unit(float *values)
{
    for (size_t i = 0; i < UNIT_ELEMENTS; i++) {
        float value = values[i];

        for (int k = 0; k < 8; k++) {
            value = value * 0.75f + 0.5f;
        }
        values[i] = value;
    }
}

void backward_burn(struct backward *backward, uint64_t n_units)
{
    for (uint64_t u = 0; u < n_units; u++) {
        burn_unit(backward->values + backward->next);
        backward->next += UNIT_ELEMENTS;
        backward->next = backward->next < backward->n ? backward->next : 0;
    }
}

double backward_unit_ns(struct backward *backward)
{
    uint64_t start = tally__now_ns();
    uint64_t before = start;
    uint64_t shortest = UINT64_MAX;

    while (before - start < CALIBRATION_NS) {
        uint64_t now;

        backward_burn(backward, BATCH_UNITS);
        now = tally__now_ns();
        shortest = now - before < shortest ? now - before : shortest;
        before = now;
    }
    return (double)shortest / BATCH_UNITS;
}
