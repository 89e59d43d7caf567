/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status page, as another process sees it: rank 1 looks at rank 0's page through /proc, and
 * finds each state of rank 0 while it lasts. No time is asserted: rank 1 looks until the state is
 * there, and only then lets rank 0 go on.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ddp_model.h"
#include "trace/status_page.h"

#define N 3
#define MAPPED ((size_t)64 << 10)
/* Looks of a millisecond each. */
#define N_LOOKS 60000

static const struct ddp_spec specs[N] = {
    {"a", TALLY_F32, 0, 1, {10}},
    {"b", TALLY_F32, 0, 1, {5000}},
    {"c", TALLY_F32, 0, 1, {20}},
};

/* The page of a rank, mapped read-only; NULL if there is none. */
static const struct tally__status_head *find_page(int pid, int rank)
{
    const struct tally__status_head *found = NULL;
    struct dirent *entry;
    char path[300];
    DIR *folder;

    (void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
    folder = opendir(path);
    while (folder && !found && (entry = readdir(folder)) != NULL) {
        char target[100];
        ssize_t n;
        int fd;

        (void)snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, entry->d_name);
        n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strcmp(target, "/memfd:" TALLY__STATUS_NAME " (deleted)") != 0) {
            continue;
        }
        fd = open(path, O_RDONLY);
        found = fd < 0 ? MAP_FAILED : mmap(NULL, MAPPED, PROT_READ, MAP_SHARED, fd, 0);
        (void)close(fd);
        if (found == MAP_FAILED) {
            found = NULL;
        } else if (found->rank != rank || found->pid != pid) {
            (void)munmap((void *)(uintptr_t)found, MAPPED);
            found = NULL;
        }
    }
    if (folder) {
        (void)closedir(folder);
    }
    return found;
}

static bool shows(const struct tally__status_entry *entry, uint32_t state, int waits_for)
{
    return atomic_load(&entry->state) == state && atomic_load(&entry->waits_for) == waits_for;
}

static int look_for(tally_group *group, const struct tally__status_entry *entry, uint32_t state,
                    int waits_for)
{
    for (int i = 0; i < N_LOOKS && !shows(entry, state, waits_for); i++) {
        ranks_sleep_ms(1);
    }
    CHECK(group, shows(entry, state, waits_for));
    return 0;
}

static int announce(tally_group *group, tally_ddp *ddp)
{
    for (int i = N; i-- > 0;) {
        CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
    }
    return 0;
}

/* Rank 1's part: rank 0 takes a step, waits for it, and goes on. */
static int watch(tally_group *group, tally_ddp *ddp, const struct tally__status_head *page)
{
    const struct tally__status_entry *entry = (const struct tally__status_entry *)(page + 1);

    CHECK(group, memcmp(page->magic, TALLY__STATUS_MAGIC, 8) == 0);
    CHECK(group, page->version == TALLY__STATUS_VERSION && page->world == 2);
    CHECK(group, page->entry_bytes == sizeof *entry && strcmp(page->backend, "") != 0);
    for (unsigned long long step = 0; step < 3; step++) {
        CHECK_OK(group, look_for(group, entry, TALLY__STATE_WAITING, 1));
        CHECK(group, atomic_load(&entry->ddp) == 1 && strcmp(entry->hook, "allreduce") == 0);
        CHECK(group, atomic_load(&entry->bucket) >= 0 && atomic_load(&entry->waits_since_ns) > 0);
        CHECK(group, atomic_load(&entry->n_steps) == step && atomic_load(&entry->n_ready) == N);
        CHECK_OK(group, announce(group, ddp));
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK_OK(group, ranks_await(&ranks_words()[1], (uint32_t)step + 1));
        CHECK(group, atomic_load(&entry->n_steps) == step + 1);
        CHECK(group, atomic_load(&entry->state) == TALLY__STATE_COMPUTING);
        CHECK(group, atomic_load(&entry->step_ns) > 0 && atomic_load(&entry->wire_bytes) > 0);
        atomic_store(&ranks_words()[2], (uint32_t)step + 1);
    }
    /* A collective call, and an error. */
    CHECK_OK(group, look_for(group, entry, TALLY__STATE_COLLECTIVE, 1));
    CHECK(group, strcmp(entry->call, "tally_ddp_set_hook") == 0);
    CHECK_OK(group, tally_ddp_set_hook(ddp, "bf16"));
    CHECK_OK(group, look_for(group, entry, TALLY__STATE_FAILED, -1));
    CHECK(group, strstr(entry->error, "77") != NULL && strcmp(entry->hook, "bf16") == 0);
    return 0;
}

static int be_watched(tally_group *group, tally_ddp *ddp)
{
    for (uint32_t step = 0; step < 3; step++) {
        CHECK_OK(group, announce(group, ddp));
        CHECK_OK(group, tally_ddp_wait(ddp));
        atomic_store(&ranks_words()[1], step + 1);
        CHECK_OK(group, ranks_await(&ranks_words()[2], step + 1));
    }
    CHECK_OK(group, tally_ddp_set_hook(ddp, "bf16"));
    CHECK_STATUS(group, tally_ddp_grad_ready(ddp, 77), TALLY_ARG);
    return 0;
}

static int body(tally_group *group, void *user)
{
    const struct tally__status_head *page;
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;

    (void)user;
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 1;
    CHECK(group, ddp_model_make(&model, specs, N, false) == 0);
    if (tally_group_rank(group) == 0) {
        atomic_store(&ranks_words()[0], (uint32_t)getpid());
    }
    CHECK_OK(group, tally_ddp_create(group, model.params, N, &config, &ddp));
    if (tally_group_rank(group) == 0) {
        CHECK_OK(group, be_watched(group, ddp));
        CHECK_OK(group, ranks_await(&ranks_words()[3], 1));
    } else {
        page = find_page((int)atomic_load(&ranks_words()[0]), 0);
        CHECK(group, page);
        CHECK_OK(group, watch(group, ddp, page));
        (void)munmap((void *)(uintptr_t)page, MAPPED);
        atomic_store(&ranks_words()[3], 1);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static void test_threads(void **state)
{
    const struct ranks two = {.kind = RANKS_THREADS, .world = 2, .lanes = 1};

    (void)state;
    assert_int_equal(ranks_run(&two, body, NULL), 0);
}

static void test_processes(void **state)
{
    const struct ranks two = {.kind = RANKS_PROCESSES, .world = 2, .lanes = 1};

    (void)state;
    if (!ranks_have_processes()) {
        skip();
    }
    assert_int_equal(ranks_run(&two, body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
