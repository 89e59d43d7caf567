/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the two builds of ddp_subnormal and compares what they print: one flushes subnormal numbers
 * to zero, the other does not, and their means have the same bits. Arguments: the one that flushes,
 * the other one.
 */
#include <stdio.h>
#include <string.h>

#define MAX_BYTES 65536

static char flushing[MAX_BYTES];
static char plain[MAX_BYTES];

/* Everything the program prints; 0 when it ended well. */
static int read_output(const char *program, char *output)
{
    FILE *pipe = popen(program, "r");
    size_t n;

    if (!pipe) {
        return 1;
    }
    n = fread(output, 1, MAX_BYTES - 1, pipe);
    output[n] = '\0';
    return pclose(pipe) != 0 || n == MAX_BYTES - 1;
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
