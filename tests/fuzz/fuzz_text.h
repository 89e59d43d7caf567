/* SPDX-License-Identifier: Apache-2.0 */
/* Code shared by the fuzzers of texts. */
#ifndef TALLY_TESTS_FUZZ_TEXT_H
#define TALLY_TESTS_FUZZ_TEXT_H

/* A text was refused with status rc: it is ARG, and the error is one printable line. */
void fuzz_check_refusal(int rc);

#endif
