/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the two builds of ddp_subnormal and compares what they print: one flushes subnormal numbers
 * to zero, the other does not, and their means have the same bits. Arguments: the one that flushes,
 * the other one.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_BYTES 65536

static char flushing[MAX_BYTES];
static char plain[MAX_BYTES];

/* Everything the program prints; 0 when it ended well. */
static int read_output(char *program, char *output)
{
    char *const arguments[] = {program, NULL};
    size_t n = 0;
    ssize_t more;
    int ends[2];
    int status = 1;
    pid_t child;

    if (pipe(ends) != 0) {
        return 1;
    }
    child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)execv(program, arguments);
        _exit(127);
    }
    (void)close(ends[1]);
    do {
        more = read(ends[0], output + n, MAX_BYTES - 1 - n);
        n += more > 0 ? (size_t)more : 0;
    } while (more > 0);
    output[n] = '\0';
    (void)close(ends[0]);
    return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

int main(int argc, char **argv)
{
    const char *bits;

    if (argc != 3 || read_output(argv[1], flushing) != 0 || read_output(argv[2], plain) != 0) {
        (void)fprintf(stderr, "cannot run the two programs\n");
        return 1;
    }
    if (strncmp(flushing, "flushes 1\n", 10) != 0 || strncmp(plain, "flushes 0\n", 10) != 0) {
        (void)fprintf(stderr, "the programs should differ in flushing: %.10s%.10s", flushing,
                      plain);
        return 1;
    }
    bits = strchr(flushing, '\n');
    if (strcmp(bits, strchr(plain, '\n')) != 0 || strlen(bits) < 1000) {
        (void)fprintf(stderr, "the means differ:\n%s%s", flushing, plain);
        return 1;
    }
    return 0;
}
