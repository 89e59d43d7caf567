/* SPDX-License-Identifier: Apache-2.0 */
/* The handwritten digits of digits.csv, for the examples. */
#ifndef TALLY_EXAMPLES_DIGITS_DATA_H
#define TALLY_EXAMPLES_DIGITS_DATA_H

enum {
    DIGITS_PIXELS = 64, /* 8 x 8 */
    DIGITS_CLASSES = 10,
    DIGITS_TRAIN = 1437, /* images to train with, */
    DIGITS_TEST = 360,   /* followed by images to test with */
    DIGITS_IMAGES = DIGITS_TRAIN + DIGITS_TEST
};

struct digit {
    float pixels[DIGITS_PIXELS]; /* 0 (white) to 1 */
    int label;                   /* the digit that it shows */
};

/* Reads all images and shuffles them, always in the same way: in the file, the images by one person
 * are next to each other. On failure prints an error and returns -1. */
int digits_load(const char *path, struct digit digits[DIGITS_IMAGES]);

/* Returns the next random number; the same seed gives the same numbers on every rank. */
unsigned digits_random(unsigned *seed);

#endif
