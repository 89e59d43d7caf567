/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a plan of the hook auto: what is read is written to a text that is read to the same
 * choices again; what is not read is answered with one line; nothing leaks. One thread.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "hook/auto.h"
#include "support/counting_memory.h"

#define N_PARAMS 2
#define ROOM 1000

/* A ddp of one rank and its hook, made once. */
static struct tally__auto *hook_auto(void)
{
    static float data[2][8];
    static const size_t shapes[2] = {4, 8};
    static tally_ddp *ddp;
    static tally_hook *hook;
    tally_param params[N_PARAMS];
    tally_group_config config;
    tally_group *group;

    if (!hook) {
        for (int i = 0; i < N_PARAMS; i++) {
            params[i] = (tally_param){.size = sizeof params[i],
                                      .name = i ? "weight" : "bias",
                                      .n_dims = 1,
                                      .shape = &shapes[i],
                                      .dtype = TALLY_F32,
                                      .data = data[i]};
        }
        tally_group_config_init(&config, sizeof config);
        config.backend = "self";
        FUZZ_CHECK(tally_group_open(&config, &group) == TALLY_OK);
        FUZZ_CHECK(tally_ddp_create(group, params, N_PARAMS, NULL, &ddp) == TALLY_OK);
        FUZZ_CHECK(tally_hook_parse("auto:plan=fuzz", &hook) == TALLY_OK);
        ((struct tally__auto *)hook->state)->n_params = N_PARAMS;
        ((struct tally__auto *)hook->state)->ddp = ddp;
    }
    return hook->state;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    struct tally__auto *self = hook_auto();
    size_t live = counting_memory_live();
    unsigned char choice[N_PARAMS];
    unsigned char again[N_PARAMS];
    size_t cap_bytes;
    size_t cap_again;
    char text[ROOM];

    if (tally__plan_read(self, self->ddp, (const char *)data, n, choice, &cap_bytes) == TALLY_OK) {
        size_t length;

        self->settled = choice;
        self->laid_cap = cap_bytes;
        length = tally__plan_write(self, text, sizeof text);
        self->settled = NULL;
        FUZZ_CHECK(length < sizeof text);
        FUZZ_CHECK(tally__plan_read(self, self->ddp, text, length, again, &cap_again) == TALLY_OK);
        FUZZ_CHECK(cap_again == cap_bytes);
        FUZZ_CHECK(memcmp(choice, again, sizeof choice) == 0);
        FUZZ_CHECK(choice[0] < self->n && choice[1] < self->n);
    } else {
        FUZZ_CHECK(tally_last_error()[0] != '\0' && !strchr(tally_last_error(), '\n'));
    }
    FUZZ_CHECK(counting_memory_live() == live);
    return 0;
}
