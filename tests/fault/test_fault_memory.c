/* SPDX-License-Identifier: Apache-2.0 */
/* Too little memory, too few descriptors, a small /dev/shm, and signals while pages are reserved:
 * an error on all ranks where there must be one, never a signal. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/fault_support.h"

#define MIB ((size_t)1 << 20)
#define SLACK_S 10.0

struct scene {
    int world;
    int lanes;
    char rendezvous[100];
    size_t bytes;     /* that every rank asks for */
    int limited_rank; /* this one gets the limit; -1: none */
    void (*limit)(rlim_t value);
    rlim_t value;
};

static void interrupted(int number)
{
    (void)number;
}

/* Many signals a second, from now on. */
static void start_timer(rlim_t value)
{
    struct sigaction action = {.sa_handler = interrupted};
    const struct itimerval often = {{0, (long)value}, {0, (long)value}};

    (void)sigaction(SIGALRM, &action, NULL);
    (void)setitimer(ITIMER_REAL, &often, NULL);
}

static void limit_files(rlim_t value)
{
    const struct rlimit limit = {value, value};

    (void)setrlimit(RLIMIT_FSIZE, &limit);
}

static void limit_address_space(rlim_t value)
{
    const struct rlimit limit = {value, value};

    (void)setrlimit(RLIMIT_AS, &limit);
}

static void limit_descriptors(rlim_t value)
{
    const struct rlimit limit = {value, value};

    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Checks that the group can still be used. */
static void check_alive(tally_group *group, struct fault_report *report)
{
    tally_future *future;
    void *memory;
    int rc = tally_group_alloc(group, 4096, &memory);

    if (rc == TALLY_OK) {
        rc = tally_broadcast(group, memory, 4096, 0, &future);
    }
    if (rc == TALLY_OK) {
        rc = tally_future_wait(future);
        tally_future_free(future);
    }
    if (rc == TALLY_OK) {
        rc = tally_group_free(group, memory);
    }
    if (rc != TALLY_OK) {
        fault_complain(report, "the group does not live on: %s", tally_last_error());
    }
}

static void use_memory(tally_group *group, void *memory, size_t bytes, struct fault_report *report)
{
    tally_future *future;
    int rc;

    memset(memory, 1, bytes);
    rc = tally_all_reduce(group, memory, bytes, TALLY_U8, TALLY_SUM, &future);
    if (rc == TALLY_OK) {
        rc = tally_future_wait(future);
        tally_future_free(future);
    }
    if (rc != TALLY_OK) {
        fault_complain(report, "the memory is no good: %s", tally_last_error());
    } else if (((unsigned char *)memory)[bytes - 1] != tally_group_size(group)) {
        fault_complain(report, "wrong sum");
    }
    if (tally_group_free(group, memory) != TALLY_OK) {
        fault_complain(report, "free: %s", tally_last_error());
    }
}

static int ask_for_memory(int rank, struct fault_report *report, void *user)
{
    const struct scene *scene = user;
    tally_group_config config = fault_config(rank, scene->world, scene->rendezvous, 20, 2);
    tally_group *group;
    void *memory;
    int rc;

    config.lanes = scene->lanes;
    if (rank == scene->limited_rank) {
        scene->limit(scene->value);
    }
    rc = tally_group_open(&config, &group);
    if (rc != TALLY_OK) {
        fault_note_failure(report, rc);
        return 0;
    }
    rc = tally_group_alloc(group, scene->bytes, &memory);
    if (rc == TALLY_OK) {
        use_memory(group, memory, scene->bytes, report);
    } else {
        fault_note_failure(report, rc);
    }
    check_alive(group, report);
    if (tally_group_close(group) != TALLY_OK) {
        fault_complain(report, "close: %s", tally_last_error());
    }
    fault_set_milestone(report, FAULT_CLOSED);
    return 0;
}

static void run(struct scene *scene, struct fault_crew *crew)
{
    static int n_scenes;

    (void)snprintf(scene->rendezvous, sizeof scene->rendezvous, "@tally-fault-%d-%d", (int)getpid(),
                   n_scenes++);
    if (!fault_crew_run(crew, scene->world, ask_for_memory, scene, SLACK_S)) {
        fail_msg("a rank hangs");
    }
    for (int r = 0; r < scene->world; r++) {
        if (crew->report[r].complaint[0] != '\0') {
            fail_msg("rank %d: %s", r, crew->report[r].complaint);
        }
        if (crew->member[r].exit_status != 0) {
            fail_msg("rank %d ended with status %x", r, (unsigned)crew->member[r].exit_status);
        }
    }
}

static void end(const struct scene *scene, struct fault_crew *crew)
{
    const char *left;

    fault_crew_free(crew);
    left = fault_leftovers(scene->rendezvous + 1);
    if (left) {
        fail_msg("%s", left);
    }
}

static void expect(const struct fault_crew *crew, int rank, int status, const char *words)
{
    const struct fault_report *report = &crew->report[rank];

    if (status == TALLY_OK ? report->n_failures > 0
                           : (report->n_failures == 0 || report->failure[0].status != status ||
                              !strstr(report->failure[0].text, words))) {
        fail_msg("rank %d: %s: %s", rank, tally_status_name(report->failure[0].status),
                 report->failure[0].text);
    }
}

/* /dev/shm has 64 MB, as in many containers: group memory must not depend on it. */
static void small_dev_shm(void **state)
{
    struct scene scene = {.lanes = 1, .world = 2, .bytes = 200 * MIB, .limited_rank = -1};
    struct fault_crew crew;

    if (!*(bool *)*state) {
        print_message("no private /dev/shm: %s\n", "mounting is not allowed here");
        skip();
    }
    run(&scene, &crew);
    expect(&crew, 0, TALLY_OK, "");
    expect(&crew, 1, TALLY_OK, "");
    end(&scene, &crew);
}

/* Slightly more than the machine has free: without a check the kernel would kill a process. */
static size_t more_than_is_free(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGE_SIZE) / 8 * 9;
}

static void more_than_there_is(void **state)
{
    const size_t sizes[] = {(size_t)1 << 40, SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX / 2,
                            more_than_is_free()};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct scene scene = {.lanes = 1, .world = 3, .bytes = sizes[i], .limited_rank = -1};
        struct fault_crew crew;

        run(&scene, &crew);
        for (int r = 0; r < 3; r++) {
            expect(&crew, r, TALLY_NOMEM, "group memory");
        }
        end(&scene, &crew);
    }
}

/* A limit on the size of files is one for our memory too; beyond it the kernel sends a signal. */
static void file_size_limit(void **state)
{
    struct scene scene = {
        .lanes = 1, .world = 3, .bytes = 64 * MIB, .limited_rank = 1, .limit = limit_files};
    struct fault_crew crew;

    (void)state;
    scene.value = 16 * MIB;
    run(&scene, &crew);
    for (int r = 0; r < 3; r++) {
        expect(&crew, r, TALLY_NOMEM, "rank 1: ");
    }
    end(&scene, &crew);
}

/* The same, so tight that the group cannot even be opened. */
static void no_file_at_all(void **state)
{
    struct scene scene = {
        .lanes = 1, .world = 2, .bytes = MIB, .limited_rank = 1, .limit = limit_files};
    struct fault_crew crew;

    (void)state;
    run(&scene, &crew);
    expect(&crew, 0, TALLY_TIMEOUT, "rank 1 of 2");
    expect(&crew, 1, TALLY_NOMEM, "");
    end(&scene, &crew);
}

/* One rank has little address space: memory that it cannot map is refused on all ranks; memory that
 * it can map works. */
static void address_space_limit(void **state)
{
    static const size_t asked[] = {16 * MIB, 400 * MIB};

    (void)state;
    if (FAULT_HAS_ASAN) {
        print_message("AddressSanitizer itself needs all address space\n");
        skip();
    }
    for (size_t i = 0; i < 2 * sizeof asked / sizeof asked[0]; i++) {
        struct scene scene = {.lanes = 1,
                              .world = i % 2 ? 3 : 7,
                              .bytes = asked[i / 2],
                              .limited_rank = 1,
                              .limit = limit_address_space,
                              .value = 800 * MIB};
        struct fault_crew crew;

        run(&scene, &crew);
        for (int r = 0; r < scene.world; r++) {
            expect(&crew, r, i / 2 ? TALLY_NOMEM : TALLY_OK, "rank 1: cannot map");
        }
        end(&scene, &crew);
    }
}

/* A rank with few descriptors left cannot hold those of the others: all are told. */
static void few_descriptors(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct scene scene = {
            .lanes = 1, .world = 4, .bytes = MIB, .limited_rank = rank, .limit = limit_descriptors};
        struct fault_crew crew;
        int next = dup(0);

        (void)close(next);
        scene.value = (rlim_t)next + 3;
        run(&scene, &crew);
        expect(&crew, rank, TALLY_SYSTEM, "oo many open files");
        for (int r = 0; r < 4; r++) {
            assert_true(crew.report[r].n_failures > 0);
            assert_int_not_equal(crew.report[r].failure[0].status, TALLY_INTERNAL);
        }
        end(&scene, &crew);
    }
}

/* A timer interrupts system calls a thousand times a second, also those that reserve pages: without
 * lanes, the thread that gets the signals does it. */
static void interrupted_by_signals(void **state)
{
    struct scene scene = {.lanes = 0,
                          .world = 2,
                          .bytes = 400 * MIB,
                          .limited_rank = 1,
                          .limit = start_timer,
                          .value = 1000};
    struct fault_crew crew;

    (void)state;
    run(&scene, &crew);
    expect(&crew, 0, TALLY_OK, "");
    expect(&crew, 1, TALLY_OK, "");
    end(&scene, &crew);
}

int main(void)
{
    static bool has_private_dev_shm;
    static void *state = &has_private_dev_shm;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(small_dev_shm, state),
        cmocka_unit_test(more_than_there_is),
        cmocka_unit_test(file_size_limit),
        cmocka_unit_test(no_file_at_all),
        cmocka_unit_test(address_space_limit),
        cmocka_unit_test(few_descriptors),
        cmocka_unit_test(interrupted_by_signals),
    };

    has_private_dev_shm = fault_private_dev_shm("64m");
    fault_leftovers_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
