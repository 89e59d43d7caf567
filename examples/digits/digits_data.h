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
    int owner;                   /* the rank that trains with it, set by digits_deal */
};

/* Reads all images and shuffles them, always in the same way: in the file, the images by one person
 * are next to each other. On failure prints an error and returns -1. */
int digits_load(const char *path, struct digit digits[DIGITS_IMAGES]);

/* Gives each of n_ranks ranks the images of some digits: two ranks have 0 to 4 and 5 to 9. If there
 * are more ranks than digits, ranks share the images of a digit. */
void digits_deal(struct digit digits[DIGITS_IMAGES], int n_ranks);

/* Returns the next random number; the same seed gives the same numbers on every rank. */
unsigned digits_random(unsigned *seed);

#endif
