/* SPDX-License-Identifier: Apache-2.0 */
/* Scenes of openings. One thread enters; failures are cmocka's. */
#include "fault/fault_opening.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

void fault_opening_init(struct fault_opening *opening, int n, const char *before,
                        double open_timeout_s)
{
    static int n_scenes;

    *opening = (struct fault_opening){.start_ns = 0};
    (void)snprintf(opening->rendezvous, sizeof opening->rendezvous, "%stally-fault-%d-%d", before,
                   (int)getpid(), n_scenes++);
    fault_crew_init(&opening->crew, n);
    for (int i = 0; i < n; i++) {
        opening->opener[i].config = fault_config(i, n, opening->rendezvous, 20, open_timeout_s);
    }
}

static int open_and_close(int i, struct fault_report *report, void *user)
{
    const struct fault_opener *opener = &((struct fault_opening *)user)->opener[i];
    tally_group *group;
    int rc;

    fault_sleep_ns(opener->delay_ns);
    if (opener->uid != 0 && setuid(opener->uid) != 0) {
        fault_complain(report, "cannot become user %d", (int)opener->uid);
        return 1;
    }
    rc = tally_group_open(&opener->config, &group);
    if (rc != TALLY_OK) {
        fault_note_failure(report, rc);
        return 0;
    }
    fault_set_milestone(report, FAULT_OPEN);
    rc = fault_barrier(group);
    if (rc != TALLY_OK) {
        fault_note_failure(report, rc);
    }
    if (tally_group_close(group) != TALLY_OK) {
        fault_complain(report, "close: %s", tally_last_error());
    }
    fault_set_milestone(report, FAULT_CLOSED);
    return 0;
}

void fault_opening_start(struct fault_opening *opening, int i)
{
    if (opening->start_ns == 0) {
        opening->start_ns = fault_now_ns();
    }
    fault_crew_start(&opening->crew, i, open_and_close, opening);
}

void fault_opening_start_all(struct fault_opening *opening)
{
    for (int i = 0; i < opening->crew.n; i++) {
        fault_opening_start(opening, i);
    }
}

void fault_opening_wait(struct fault_opening *opening, double max_s)
{
    double used_s = (double)(fault_now_ns() - opening->start_ns) / 1e9;

    if (!fault_crew_wait(&opening->crew, max_s - used_s)) {
        fail_msg("somebody hangs after %g s", max_s);
    }
}

void fault_expect_failure(const struct fault_opening *opening, int i, int status, const char *words)
{
    const struct fault_report *report = &opening->crew.report[i];
    const struct fault_failure *failure = &report->failure[0];

    if (report->complaint[0] != '\0') {
        fail_msg("member %d: %s", i, report->complaint);
    }
    if (report->n_failures == 0) {
        fail_msg("member %d did not fail (milestone %d, exit status %x)", i,
                 atomic_load_explicit(&report->milestone, memory_order_acquire),
                 (unsigned)opening->crew.member[i].exit_status);
    }
    if (failure->status != status || !strstr(failure->text, words)) {
        fail_msg("member %d was told %s: %s; expected %s with '%s'", i,
                 tally_status_name(failure->status), failure->text, tally_status_name(status),
                 words);
    }
    assert_int_equal(opening->crew.member[i].exit_status, 0);
}

void fault_expect_success(const struct fault_opening *opening, int i)
{
    const struct fault_report *report = &opening->crew.report[i];

    if (report->complaint[0] != '\0' || report->n_failures != 0) {
        fail_msg("member %d: %s%s", i, report->complaint, report->failure[0].text);
    }
    assert_int_equal(atomic_load_explicit(&report->milestone, memory_order_acquire), FAULT_CLOSED);
    assert_int_equal(opening->crew.member[i].exit_status, 0);
}

void fault_opening_end(struct fault_opening *opening)
{
    const char *left;

    fault_crew_free(&opening->crew);
    left = fault_leftovers(strstr(opening->rendezvous, "tally-fault-"));
    if (left) {
        fail_msg("%s", left);
    }
    if (opening->rendezvous[0] != '@' && access(opening->rendezvous, F_OK) == 0) {
        fail_msg("%s is left", opening->rendezvous);
    }
}

static socklen_t fill_address(const char *name, struct sockaddr_un *address)
{
    size_t length = strlen(name);

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, name, length);
    if (name[0] == '@') {
        address->sun_path[0] = '\0';
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (name[0] != '@'));
}

int fault_plain_listen(const char *name, int type, int backlog)
{
    struct sockaddr_un address;
    socklen_t length = fill_address(name, &address);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    if (fd >= 0 &&
        (bind(fd, (const struct sockaddr *)&address, length) != 0 || listen(fd, backlog) != 0)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

int fault_plain_connect(const char *name)
{
    struct sockaddr_un address;
    socklen_t length = fill_address(name, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, length) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}
