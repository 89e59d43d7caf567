/* SPDX-License-Identifier: Apache-2.0 */
/* Gives fuzz_one to clang's libFuzzer, which brings main. One thread. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    return n <= FUZZ_MAX_INPUT ? fuzz_one(data, n) : 0;
}
