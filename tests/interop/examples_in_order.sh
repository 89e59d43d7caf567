#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every example is short enough to be read at once, has its paragraph in examples/README.md, and is
# run as a test. Examples that only train include only tally.h.
set -u
source=$1 build=$2
failures=0
tests=$(cat "$build"/examples/CTestTestfile.cmake "$build"/tests/CTestTestfile.cmake)

complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

for file in "$source"/examples/*.c; do
    name=$(basename "$file" .c)
    lines=$(wc -l <"$file")
    most=149
    [[ $name == 05_* ]] && most=179
    [[ $name == 06_* ]] && most=599
    [ "$lines" -le $most ] || complain "$name.c has $lines lines; at most $most wanted"
    grep -q "^\*\*$name\.c\*\* " "$source/examples/README.md" || complain "no paragraph on $name.c"
    if [[ $name =~ ^(00|03|05|06|line) ]] && grep -q tally_extend.h "$file"; then
        complain "$name.c includes tally_extend.h; tally.h is enough to train"
    fi
    grep -qE "^add_test\(\[=\[example_$name(_[0-9]|\])" <<<"$tests" || complain "no test runs $name"
done

[ $failures -eq 0 ] && echo "all examples are in order"
exit $((failures > 0))
