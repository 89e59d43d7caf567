/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every hook leaves the same bits with all kinds of ranks and all ways of their bytes: threads,
 * processes, and under mpirun processes of MPI. Every hook of the list is here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/hook_states.h"
#include "support/oracle.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])
#define N_STEPS 3

static const char *const texts[] = {
    "allreduce",
    "noop",
    "auto:error=0", /* with more, its choice depends on times */
    "fp16",
    "fp16:saturate=1",
    "fp16:accumulate=wire",
    "bf16",
    "bf16:accumulate=wire",
    "int8",
    "int8:block=64,exempt=none,feedback=0",
    "bf16(int8)",
    "quantize_per_tensor",
    "quantize_per_tensor:exchange=gather",
    "quantize_per_tensor:scope=bucket",
    "quantize_per_channel",
    "quantize_per_channel:exchange=gather,block=100",
    "powersgd:start=0",
    "powersgd:rank=3,start=1",
    "fp16(powersgd:rank=2,start=0)",
    "batched_powersgd:start=0",
    "hosts:size=3(int8)",
    "hosts:size=2(powersgd:start=0)",
    "postlocal:start=1,group=2(bf16)",
};

/* Around hosts, and inside it. */
static const char *const wrappers[] = {"fp16", "fp16:saturate=1", "fp16:accumulate=wire", "bf16",
                                       "bf16:accumulate=wire"};
static const char *const hosts[] = {"hosts", "hosts:size=2", "hosts:size=3"};
static const char *const inners[] = {"int8", "powersgd:start=0"};

#define N_TEXTS (N_OF(texts) + N_OF(hosts) * (1 + 2 * N_OF(wrappers) + N_OF(inners)))
#define TEXT_BYTES 96

/* Text i: those above, then hosts alone, wrapped, around a wrapper, and between the two. */
static void text_at(size_t i, char *text)
{
    const char *host;

    if (i < N_OF(texts)) {
        (void)snprintf(text, TEXT_BYTES, "%s", texts[i]);
        return;
    }
    host = hosts[(i - N_OF(texts)) % N_OF(hosts)];
    i = (i - N_OF(texts)) / N_OF(hosts);
    if (i < N_OF(wrappers)) {
        (void)snprintf(text, TEXT_BYTES, "%s(%s)", wrappers[i], host);
    } else if (i < 2 * N_OF(wrappers)) {
        (void)snprintf(text, TEXT_BYTES, "%s(%s)", host, wrappers[i - N_OF(wrappers)]);
    } else if (i < 2 * N_OF(wrappers) + N_OF(inners)) {
        (void)snprintf(text, TEXT_BYTES, "bf16(%s(%s))", host, inners[i - 2 * N_OF(wrappers)]);
    } else {
        (void)snprintf(text, TEXT_BYTES, "%s", host);
    }
}

/* On several machines hosts finds the host of each rank itself; on one machine the text says it. */
static void text_of(tally_group *group, size_t i, char *text)
{
    const char *ranks = getenv("TALLY_TEST_RANKS_PER_HOST");
    char whole[TEXT_BYTES];
    char *place;

    text_at(i, text);
    place = strstr(text, "hosts");
    if (ranks && place && place[5] != ':' && strcmp(tally_group_backend(group), "mpi") != 0) {
        (void)snprintf(whole, sizeof whole, "%s", place + 5);
        (void)snprintf(place, TEXT_BYTES - (size_t)(place - text), "hosts:size=%s%.64s", ranks,
                       whole);
    }
}

/* Whether the hook leaves the same on all ranks. */
static bool is_for_all(const char *text)
{
    return strcmp(text, "noop") != 0 && strncmp(text, "postlocal", 9) != 0;
}

/* Whether a hook of this name is among the texts. */
static bool is_covered(const char *name)
{
    size_t n = strcspn(name, "(:");

    for (size_t i = 0; i < N_OF(texts); i++) {
        if (strncmp(texts[i], name, n) == 0 && strcspn(texts[i], "(:") == n) {
            return true;
        }
    }
    return false;
}

static int check_list(void)
{
    int n_failures = 0;

    for (size_t i = 0; i < tally_hook_count(); i++) {
        tally_hook_info info = {.size = sizeof info};

        if (tally_hook_describe(i, &info) != TALLY_OK || !is_covered(info.name)) {
            (void)fprintf(stderr, "hook %zu, %s, has no case here\n", i, info.name);
            n_failures++;
        }
    }
    return n_failures;
}

static int body(tally_group *group, void *user)
{
    const bool *copies = user;

    for (size_t i = 0; i < N_TEXTS; i++) {
        char text[TEXT_BYTES];
        struct state_setup setup = {.hook = text, .copies = *copies};
        struct state_run run;
        uint64_t hash;

        text_of(group, i, text);
        /* Groups of two divide even worlds only; hosts that differ in size, and equal ones, are
         * enough for combinations. */
        if ((strstr(text, "group=2") && tally_group_size(group) % 2 != 0) ||
            (i >= N_OF(texts) && tally_group_size(group) != 3 && tally_group_size(group) != 4)) {
            continue;
        }
        CHECK_OK(group, state_run_start(group, &setup, &run));
        CHECK_OK(group, state_steps(group, &run, 0, N_STEPS, &hash));
        ranks_note(group, hash, is_for_all(text) ? hash : 0);
        CHECK_OK(group, state_run_end(group, &run));
    }
    return 0;
}

int main(void)
{
    static const int worlds[] = {1, 2, 3, 4, 7};
    int n_failures = check_list();

    oracle_start();
    for (size_t w = 0; w < N_OF(worlds); w++) {
        bool copies = w % 2 == 1;

        n_failures += ranks_run_world(body, &copies, 2, worlds[w], true);
    }
    return n_failures != 0;
}
