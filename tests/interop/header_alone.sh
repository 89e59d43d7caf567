#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone and twice, as C99, C17 and C++, without a warning; tally_extend.h
# brings tally.h along.
set -euo pipefail

cc=$1 include=$2

for language in c:c99 c:c17 c++:c++11 c++:c++17; do
    for header in tally.h tally_extend.h; do
        echo "header_alone: $header as ${language#*:}"
        printf '#include <%s>\n#include <%s>\nconst char *(*version)(void) = tally_version;\n' \
            $header $header |
            "$cc" -x "${language%:*}" -std="${language#*:}" -pedantic -Wall -Wextra -Wundef -Wshadow \
                -Werror -fsyntax-only -I "$include" -
    done
done

# A binding calls symbols of the library: the headers define no function.
if "$cc" -E -P -x c -std=c17 "$include/tally_extend.h" | grep -nE '\b(static|inline)\b'; then
    echo "header_alone: the public headers define a function" >&2
    exit 1
fi
