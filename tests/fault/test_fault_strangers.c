/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process of the same user that comes to the rendezvous and speaks the protocol by hand: with
 * memory that is not valid, too many descriptors or none, half a message, or no message. Ranks give
 * a clear error, or continue to wait for the true rank; they never crash and keep no descriptor.
 * Also two ranks in one process, which is a stranger mistake.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/fault_opening.h"

#define SLACK_S 10.0
#define FILE_BYTES ((off_t)64 << 20)
#define MOST_DESCRIPTORS 8
/* On the wire: a hello from a rank, and a welcome from rank 0 with room for a text. */
#define HELLO_BYTES 32
#define WELCOME_BYTES 272
#define MAGIC 0x74616c79u
#define PROTOCOL 2u

/* The file that the stranger sends. */
struct gift {
    const char *name;
    size_t message_bytes;
    uint64_t first_slot;
    off_t file_bytes;
    uint32_t magic;
    int n_descriptors;
    bool is_sealed;
    bool is_no_memory; /* a descriptor, but not of memory */
    bool is_no_life;   /* a descriptor, but not of a sign of life */
};

/* ---- the ranks ---- */

/* Opens, passes a barrier, closes, and then has as many descriptors as before. */
static int count_and_open(int rank, struct fault_report *report, void *user)
{
    const struct fault_opening *opening = user;
    int before = fault_count_descriptors();
    tally_group *group = NULL;
    int rc = tally_group_open(&opening->opener[rank].config, &group);

    if (rc == TALLY_OK) {
        fault_set_milestone(report, FAULT_OPEN);
        rc = fault_barrier(group);
    }
    if (rc != TALLY_OK) {
        fault_note_failure(report, rc);
    }
    if (tally_group_close(group) != TALLY_OK) {
        fault_complain(report, "close: %s", tally_last_error());
    }
    if (fault_count_descriptors() != before) {
        fault_complain(report, "%d descriptors before, %d after", before,
                       fault_count_descriptors());
    }
    fault_set_milestone(report, FAULT_CLOSED);
    return 0;
}

static void start(struct fault_opening *opening, int rank)
{
    if (opening->start_ns == 0) {
        opening->start_ns = fault_now_ns();
    }
    fault_crew_start(&opening->crew, rank, count_and_open, opening);
}

/* ---- the stranger, which is this process ---- */

static int knock(const struct fault_opening *opening)
{
    uint64_t end = fault_now_ns() + 10000 * FAULT_NS_PER_MS;
    int connection;

    while ((connection = fault_plain_connect(opening->rendezvous)) < 0 && fault_now_ns() < end) {
        fault_sleep_ns(5 * FAULT_NS_PER_MS);
    }
    assert_true(connection >= 0);
    return connection;
}

/* Sends n descriptors: of memory, of a sign of life, and then the first again and again. */
static void send_with(int connection, const void *message, size_t bytes, const int *fds, int n)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)message, bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};

    if (n > 0) {
        struct cmsghdr *cmsg;

        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE((size_t)n * sizeof *fds);
        cmsg = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN((size_t)n * sizeof *fds);
        for (int i = 0; i < n; i++) {
            memcpy(CMSG_DATA(cmsg) + (size_t)i * sizeof *fds, &fds[i == 1], sizeof *fds);
        }
    }
    assert_int_equal(sendmsg(connection, &header, MSG_NOSIGNAL), bytes);
}

static int make_file(const struct gift *gift)
{
    int fd = gift->is_no_memory ? open("/dev/null", O_RDWR | O_CLOEXEC)
                                : memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    if (!gift->is_no_memory) {
        assert_int_equal(ftruncate(fd, gift->file_bytes), 0);
    }
    if (gift->is_sealed) {
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    }
    return fd;
}

/* The descriptor of a sign of life whose process has ended, or of another file. */
static int open_life(const struct gift *gift)
{
    int fd = gift->is_no_life ? dup(0) : memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    return fd;
}

/* "I am rank 1 of world, with one lane, and this is my memory." */
static void say_hello(int connection, const struct gift *gift, int world)
{
    const uint32_t words[] = {gift->magic, PROTOCOL, 1, (uint32_t)world, 1, 0};
    unsigned char message[2 * HELLO_BYTES] = {0};
    const int fds[] = {make_file(gift), open_life(gift)};

    memcpy(message, words, sizeof words);
    memcpy(message + sizeof words, &gift->first_slot, sizeof gift->first_slot);
    send_with(connection, message, gift->message_bytes, fds, gift->n_descriptors);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

/* ---- memory that is not what it says ---- */

static const struct gift bad_memory[] = {
    {"an empty file", HELLO_BYTES, 0, 0, MAGIC, 2, true, false, false},
    {"an empty file, unsealed", HELLO_BYTES, 0, 0, MAGIC, 2, false, false, false},
    {"a file that may shrink", HELLO_BYTES, 0, FILE_BYTES, MAGIC, 2, false, false, false},
    {"a short file", HELLO_BYTES, 0, 4096, MAGIC, 2, true, false, false},
    {"no memory", HELLO_BYTES, 0, 0, MAGIC, 2, false, true, false},
    {"slots at the end", HELLO_BYTES, FILE_BYTES, FILE_BYTES, MAGIC, 2, true, false, false},
    {"slots across the end", HELLO_BYTES, FILE_BYTES - 64, FILE_BYTES, MAGIC, 2, true, false,
     false},
    {"slots far away", HELLO_BYTES, UINT64_C(1) << 50, FILE_BYTES, MAGIC, 2, true, false, false},
    {"slots that wrap", HELLO_BYTES, UINT64_MAX - 63, FILE_BYTES, MAGIC, 2, true, false, false},
    {"slots askew", HELLO_BYTES, 32, FILE_BYTES, MAGIC, 2, true, false, false},
    {"slots more askew", HELLO_BYTES, 1, FILE_BYTES, MAGIC, 2, true, false, false},
};

/* In a world of three the true rank 2 is handed the stranger's descriptor too. */
static void memory_that_is_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * sizeof bad_memory / sizeof bad_memory[0]; i++) {
        const struct gift *gift = &bad_memory[i / 2];
        int world = 2 + (int)(i % 2);
        struct fault_opening opening;
        int connection;

        print_message("%s, %d ranks\n", gift->name, world);
        fault_opening_init(&opening, world, "@", 30);
        start(&opening, 0);
        connection = knock(&opening);
        say_hello(connection, gift, world);
        if (world == 3) {
            start(&opening, 2);
        }
        fault_opening_wait(&opening, SLACK_S);
        fault_expect_failure(&opening, 0, TALLY_MISMATCH,
                             "rank 1 sent a descriptor that is not its group memory");
        if (world == 3) {
            fault_expect_failure(&opening, 2, TALLY_MISMATCH,
                                 "rank 1 sent a descriptor that is not");
        }
        assert_int_equal(close(connection), 0);
        fault_opening_end(&opening);
    }
}

/* A stranger connects, and late_ms later says hello as rank 1: rank 0 fails. */
static void expect_no_group(const struct gift *gift, uint64_t late_ms, int status, const char *text)
{
    struct fault_opening opening;
    int connection;

    fault_opening_init(&opening, 2, "@", 30);
    start(&opening, 0);
    connection = knock(&opening);
    fault_sleep_ns(late_ms * FAULT_NS_PER_MS);
    say_hello(connection, gift, 2);
    fault_opening_wait(&opening, SLACK_S + (double)late_ms / 1000);
    fault_expect_failure(&opening, 0, status, text);
    assert_int_equal(close(connection), 0);
    fault_opening_end(&opening);
}

/* The memory is valid, but the other descriptor is not a sign of life. */
static void no_sign_of_life(void **state)
{
    static const struct gift gift = {
        "no sign of life", HELLO_BYTES, 4096, FILE_BYTES, MAGIC, 2, true, false, true};

    (void)state;
    expect_no_group(&gift, 0, TALLY_MISMATCH,
                    "rank 1 sent a descriptor that is not its sign of life");
}

/* Valid memory of a process that has ended. It says hello late, and is heard. */
static void nobody_at_home(void **state)
{
    static const struct gift gift = {"empty slots", HELLO_BYTES, 4096, FILE_BYTES, MAGIC, 2,
                                     true,          false,       false};

    (void)state;
    expect_no_group(&gift, 2300, TALLY_PEER, "rank 1 died");
}

/* The stranger is there first, and plays rank 0. */
static void false_rank_0(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_memory / sizeof bad_memory[0]; i++) {
        const struct gift *gift = &bad_memory[i];
        unsigned char welcome[WELCOME_BYTES] = {0};
        struct fault_opening opening;
        int listener;
        int connection;
        const int fds[] = {make_file(gift), open_life(gift)};

        print_message("%s of rank 0\n", gift->name);
        fault_opening_init(&opening, 2, "@", 30);
        listener = fault_plain_listen(opening.rendezvous, SOCK_SEQPACKET, 4);
        assert_true(listener >= 0);
        start(&opening, 1);
        connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(connection >= 0);
        memcpy(welcome + 8, &gift->first_slot, sizeof gift->first_slot);
        send_with(connection, welcome, sizeof welcome, fds, 2);
        fault_opening_wait(&opening, SLACK_S);
        fault_expect_failure(&opening, 1, TALLY_MISMATCH,
                             "rank 0 sent a descriptor that is not its group memory");
        assert_int_equal(close(fds[0]), 0);
        assert_int_equal(close(fds[1]), 0);
        assert_int_equal(close(connection), 0);
        assert_int_equal(close(listener), 0);
        fault_opening_end(&opening);
    }
}

/* ---- nonsense ---- */

static const struct gift nonsense[] = {
    {"one descriptor", HELLO_BYTES, 0, FILE_BYTES, MAGIC, 1, true, false, false},
    {"three descriptors", HELLO_BYTES, 0, FILE_BYTES, MAGIC, 3, true, false, false},
    {"eight descriptors", HELLO_BYTES, 0, FILE_BYTES, MAGIC, 8, true, false, false},
    {"no descriptor", HELLO_BYTES, 0, FILE_BYTES, MAGIC, 0, true, false, false},
    {"half a message", HELLO_BYTES / 2, 0, FILE_BYTES, MAGIC, 2, true, false, false},
    {"one byte", 1, 0, FILE_BYTES, MAGIC, 0, true, false, false},
    {"half a message with three descriptors", HELLO_BYTES / 2, 0, FILE_BYTES, MAGIC, 3, true, false,
     false},
};

/* Many of them, then the true rank 1: they are sent away, and it is let in. */
static void nonsense_first(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        struct fault_opening opening;

        print_message("%s\n", nonsense[i].name);
        fault_opening_init(&opening, 2, "@", 30);
        start(&opening, 0);
        for (int n = 0; n < 20; n++) {
            int connection = knock(&opening);

            say_hello(connection, &nonsense[i], 2);
            assert_int_equal(close(connection), 0);
        }
        start(&opening, 1);
        fault_opening_wait(&opening, SLACK_S);
        fault_expect_success(&opening, 0);
        fault_expect_success(&opening, 1);
        fault_opening_end(&opening);
    }
}

/* Another magic number is that of a rank of another version: no group can come of it. */
static void another_language(void **state)
{
    static const struct gift gift = {"wrong magic", HELLO_BYTES, 0,    FILE_BYTES, 0x12345678, 2,
                                     true,          false,       false};

    (void)state;
    expect_no_group(&gift, 0, TALLY_MISMATCH, "another version");
}

/* n connect, say nothing, and stay; the true rank comes after them and is let in. */
static void let_in_after(size_t n)
{
    struct fault_opening opening;
    int connections[100];

    assert_in_range(n, 1, sizeof connections / sizeof connections[0]);
    fault_opening_init(&opening, 2, "@", 30);
    start(&opening, 0);
    for (size_t i = 0; i < n; i++) {
        connections[i] = knock(&opening);
    }
    start(&opening, 1);
    fault_opening_wait(&opening, SLACK_S);
    fault_expect_success(&opening, 0);
    fault_expect_success(&opening, 1);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(close(connections[i]), 0);
    }
    fault_opening_end(&opening);
}

/* Rank 0 waits for none of them. */
static void silence(void **state)
{
    (void)state;
    let_in_after(20);
}

/* More connections than rank 0 keeps: the oldest goes. */
static void crowd(void **state)
{
    (void)state;
    let_in_after(100);
}

/* ---- two ranks in one process ---- */

struct resident {
    tally_group_config config;
    int status;
    char text[FAULT_TEXT_BYTES];
};

static void *open_here(void *argument)
{
    struct resident *resident = argument;
    tally_group *group = NULL;

    resident->status = tally_group_open(&resident->config, &group);
    (void)snprintf(resident->text, sizeof resident->text, "%s", tally_last_error());
    (void)tally_group_close(group);
    return NULL;
}

static void one_process(void **state)
{
    struct resident residents[2];
    pthread_t threads[2];
    char name[100];
    int before = fault_count_descriptors();

    (void)state;
    (void)snprintf(name, sizeof name, "@tally-fault-%d-one", (int)getpid());
    for (int r = 0; r < 2; r++) {
        residents[r] = (struct resident){.config = fault_config(r, 2, name, 20, 10)};
        assert_int_equal(pthread_create(&threads[r], NULL, open_here, &residents[r]), 0);
    }
    for (int r = 0; r < 2; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
        assert_int_equal(residents[r].status, TALLY_ARG);
        assert_non_null(strstr(residents[r].text, "tally_group_open_threads"));
    }
    assert_int_equal(fault_count_descriptors(), before);
    assert_null(fault_leftovers(name + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_not),
        cmocka_unit_test(no_sign_of_life),
        cmocka_unit_test(nobody_at_home),
        cmocka_unit_test(false_rank_0),
        cmocka_unit_test(nonsense_first),
        cmocka_unit_test(another_language),
        cmocka_unit_test(silence),
        cmocka_unit_test(crowd),
        cmocka_unit_test(one_process),
    };

    fault_leftovers_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
