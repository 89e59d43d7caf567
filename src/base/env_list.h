/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every environment variable tally reads, declared once: X(id, name, kind, accepts, fallback,
 * help). kind says how the text is read (base/env.h); for CHOICE, accepts lists the words in the
 * order of the numbers they stand for. A fallback of "" means "not set".
 */
#ifndef TALLY_BASE_ENV_LIST_H
#define TALLY_BASE_ENV_LIST_H

#define TALLY__ENV_LIST(X)                                                 \
    X(ISA, "TALLY_ISA", CHOICE, "auto|ref|avx2|avx512|neon", "auto",       \
      "instruction set to compute with; auto takes the best this CPU has") \
    X(LOG, "TALLY_LOG", CHOICE, "none|error|warn|info|debug", "",          \
      "least urgent messages that reach the log callback; wins over the program's choice")

#endif
