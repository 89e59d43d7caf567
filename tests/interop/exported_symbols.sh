#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The library exports tally_ symbols only, each with a version, and exactly those that the public headers declare.
# HEADER is tally_extend.h, which includes tally.h.
set -euo pipefail
export LC_ALL=C

cc=$1 nm=$2 header=$3 library=$4

# An absolute symbol (A) is a version's name, not something to call.
exported=$("$nm" -D --defined-only "$library" | awk '$(NF - 1) != "A" { sub(/@.*/, "", $NF); print $NF }' | sort -u)
# After the preprocessor no comment and no macro is left; a name before "(" is a prototype.
declared=$("$cc" -E -P -x c -std=c17 "$header" | grep -oE '\btally_[A-Za-z0-9_]+ *\(' |
    tr -d ' (' | sort -u)

status=0
complain() {
    local text=$1 symbol
    while read -r symbol; do
        if [ -n "$symbol" ]; then
            echo "exported_symbols: $symbol $text" >&2
            status=1
        fi
    done
}
if [ -z "$declared" ]; then
    echo "exported_symbols: found no prototype in $header" >&2
    exit 1
fi
complain "is exported without a version" < <("$nm" -D --defined-only --with-symbol-versions "$library" |
    awk '$(NF - 1) != "A" && $NF !~ /@TALLY_[0-9.]+$/ { print $NF }')
complain "is exported and does not begin with tally_" < <(grep -v '^tally_[^_]' <<<"$exported")
complain "is exported and not declared in the header" < <(comm -23 <(echo "$exported") <(echo "$declared"))
complain "is declared in the header and not exported" < <(comm -13 <(echo "$exported") <(echo "$declared"))
exit $status
