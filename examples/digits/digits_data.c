/* SPDX-License-Identifier: Apache-2.0 */
/* Reads digits.csv, and deals the images out to ranks. Independent of networks. One thread. */
#include "examples/digits/digits_data.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_INK 16

unsigned digits_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8; /* the low bits of this generator repeat soon */
}

/* Reads a number from 0 to most and moves *text behind the separator after it; -1 for anything
 * else.
 */
static int read_number(char **text, int most, char separator)
{
    char *end;
    long value = strtol(*text, &end, 10);

    if (end == *text || *end != separator || value < 0 || value > most) {
        return -1;
    }
    *text = end + 1;
    return (int)value;
}

static int read_digit(FILE *file, struct digit *digit)
{
    char line[256], *text = line;

    if (fgets(line, sizeof line, file) == NULL) {
        return -1;
    }
    for (int i = 0; i < DIGITS_PIXELS; i++) {
        int ink = read_number(&text, MOST_INK, ',');

        if (ink < 0) {
            return -1;
        }
        digit->pixels[i] = (float)ink / MOST_INK;
    }
    digit->label = read_number(&text, DIGITS_CLASSES - 1, '\n');
    return digit->label < 0 ? -1 : 0;
}

static void shuffle(struct digit digits[DIGITS_IMAGES])
{
    unsigned seed = 1;

    for (unsigned n = DIGITS_IMAGES; n > 1; n--) {
        unsigned other = digits_random(&seed) % n;
        struct digit last = digits[n - 1];

        digits[n - 1] = digits[other];
        digits[other] = last;
    }
}

int digits_load(const char *path, struct digit digits[DIGITS_IMAGES])
{
    FILE *file = fopen(path, "r");
    int n = 0;

    if (file == NULL) {
        perror(path);
        return -1;
    }
    while (n < DIGITS_IMAGES && read_digit(file, &digits[n]) == 0) {
        n++;
    }
    (void)fclose(file);
    if (n < DIGITS_IMAGES) {
        fprintf(stderr,
                "%s:%d: not an image: expected 64 numbers from 0 to 16 and a digit, separated by "
                "commas\n",
                path, n + 1);
        return -1;
    }
    shuffle(digits);
    return 0;
}

void digits_deal(struct digit digits[DIGITS_IMAGES], int n_ranks)
{
    int n_dealt[DIGITS_CLASSES] = {0};

    for (int k = 0; k < DIGITS_IMAGES; k++) {
        int label = digits[k].label;
        int first = label * n_ranks / DIGITS_CLASSES;
        int n_owners = (label + 1) * n_ranks / DIGITS_CLASSES - first;

        digits[k].owner = first + (n_owners > 1 ? n_dealt[label]++ % n_owners : 0);
    }
}
