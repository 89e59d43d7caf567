#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The public header compiles alone and twice, as C99, C17 and C++, without a warning.
set -euo pipefail

cc=$1 include=$2

for language in c:c99 c:c17 c++:c++11 c++:c++17; do
    echo "header_alone: ${language#*:}"
    printf '#include <tally.h>\n#include <tally.h>\n' |
        "$cc" -x "${language%:*}" -std="${language#*:}" -pedantic -Wall -Wextra -Wundef -Wshadow \
            -Werror -fsyntax-only -I "$include" -
done
