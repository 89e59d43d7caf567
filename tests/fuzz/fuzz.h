/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzzer is one file that defines fuzz_one, and one line in fuzz.cmake. It is linked with a
 * driver: our own, which every compiler builds (fuzz_driver.c), or clang's libFuzzer
 * (fuzz_libfuzzer.c).
 */
#ifndef TALLY_TESTS_FUZZ_H
#define TALLY_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Longest input. */
#define FUZZ_MAX_INPUT 4096

/* Tries one input of at most FUZZ_MAX_INPUT bytes; ends the program if it finds something wrong.
 * Returns 0. Called from one thread, many times; keeps nothing from one call to the next. */
int fuzz_one(const uint8_t *data, size_t n);

#define FUZZ_CHECK(condition)                                                             \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

#endif
