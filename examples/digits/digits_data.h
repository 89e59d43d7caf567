/* SPDX-License-Identifier: Apache-2.0 */
/* The handwritten digits of digits.csv, for the examples. */
#ifndef TALLY_EXAMPLES_DIGITS_DATA_H
#define TALLY_EXAMPLES_DIGITS_DATA_H

enum {
    DIGITS_PIXELS = 64, /* 8 x 8 */
    DIGITS_CLASSES = 10,
    DIGITS_TRAIN = 1437, /* images to learn from, */
    DIGITS_TEST = 360,   /* and behind them those to judge by */
    DIGITS_IMAGES = DIGITS_TRAIN + DIGITS_TEST
};

struct digit {
    float pixels[DIGITS_PIXELS]; /* 0 (white) to 1 */
    int label;                   /* the digit it is */
};

/* Reads all images. Their order is shuffled, always in the same way: in the file, what one person
 * wrote lies together. Prints what is wrong and returns -1 if it cannot. */
int digits_load(const char *path, struct digit digits[DIGITS_IMAGES]);

/* The next of a row of random numbers, the same on every rank for the same seed. */
unsigned digits_random(unsigned *seed);

#endif
