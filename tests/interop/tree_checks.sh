#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The checks of scripts/ see what they are there to see: each is given a good tree and must pass,
# then bad ones and must fail, naming file and line.
set -euo pipefail

scripts=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
status=0

# put FILE LINE...: writes a file of the tree, under a licence line.
put() {
    mkdir -p "$tree/$(dirname "$1")"
    {
        echo "/* SPDX-License-Identifier: Apache-2.0 */"
        printf '%s\n' "${@:2}"
    } >"$tree/$1"
}

fail() {
    echo "tree_checks: $*" >&2
    status=1
}

passes() {
    local output
    if ! output=$("$scripts/$1" "$tree" 2>&1); then
        fail "$1 rejects a good tree: $output"
    fi
}

# rejects CHECK PLACE: the tree is bad at PLACE, and only there.
rejects() {
    local output
    if output=$("$scripts/$1" "$tree" 2>&1); then
        fail "$1 accepts $(cat "$tree/${2%%:*}")"
    elif [ "$(grep -c . <<<"$output")" -ne 1 ] || [[ $output != "$2: "* ]]; then
        fail "$1 should name $2 and nothing else, but says: $output"
    fi
}

# One line that check-includes must reject in this file.
rejects_include() {
    put "$1" "$2"
    rejects check-includes "$1:2"
    rm "$tree/$1"
}

put include/tally.h '#include <stddef.h>'
put include/tally_extend.h '#include "tally.h"'
put src/base/one.c '#include "base/one.h"' '#include "tally.h"' '#include <sys/types.h>'
put src/num/two.c '#include <tally.h>' '#include "num/two.h"' '#include "base/one.h"'
put src/comm/shm/three.c '#include "comm/group.h"' '#include "num/two.h"'
put src/hook/four.c '#include "exchange/codec.h"' '#include "base/one.h"'
put src/ddp/five.c '#include "hook/four.h"' '#include "optim/six.h"' '#include "comm/group.h"'
put src/train/trained.c '#include "ddp/five.h"' '#include "state/twelve.h"'
put tools/seven.c '#include <tally.h>' '#include "tools/eight.h"' '#include "eight.h"' '#include "bench/nine.h"'
put tools/eight.h '#include <stdio.h>'
put bench/nine.c '#include "bench/nine.h"' '#include "num/two.h"' '#include "base/one.h"'
put examples/ten.c '#include "tally.h"' '#include "tally_extend.h"'
put tests/unit/eleven.c '#include "hook/four.h"'
put tests/multi/twelve.c '#include "hook/four.h"'
put tests/multi/thirteen.c '#include "num/two.h"' '#include "support/ranks.h"'
echo "tests/multi/twelve.c   looks at four" >"$tree/tests/private_headers.txt"
passes check-includes

rejects_include tests/multi/bad.c '#include "hook/four.h"'
rejects_include tests/multi/bad.c '#include "comm/group.h"'
rejects_include src/base/bad.c '#include "num/two.h"'
rejects_include src/num/bad.c '# include "ddp/five.h"'
rejects_include src/num/bad.h '#include <comm/group.h>'
rejects_include src/hook/bad.c '#include "optim/six.h"'
rejects_include src/optim/bad.c '#include "hook/four.h"'
rejects_include src/exchange/bad.c '#include "hook/four.h"'
rejects_include src/ddp/bad.c '#include "train/trained.h"'
rejects_include src/state/bad.c '#include "ddp/five.h"'
rejects_include src/base/bad.c '#include "one.h"'
rejects_include src/base/bad.c '#include "../num/two.h"'
rejects_include src/base/bad.c '#include "tools/eight.h"'
rejects_include src/base/bad.c '#include SOME_HEADER'
rejects_include src/unheard_of/bad.c '#include "base/one.h"'
rejects_include include/bad.h '#include "base/one.h"'
rejects_include include/bad.h '#include "tally_extend.h"'
rejects_include tools/bad.c '#include "num/two.h"'
rejects_include tools/bad.c '#include "absent.h"'
rejects_include examples/bad.c '#include <base/one.h>'
rejects_include examples/bad.c '#include "tools/eight.h"'
rejects_include bench/bad.c '#include "comm/group.h"'

passes check-names
put src/base/ten.c ''
rm "$tree/examples/ten.c"
passes check-names
echo 'int x;' >"$tree/src/base/bad.c"
rejects check-names src/base/bad.c:1
rm "$tree/src/base/bad.c"
put tools/two.c ''
if "$scripts/check-names" "$tree" >/dev/null; then
    fail "check-names accepts two files called two.c"
fi
rm "$tree/tools/two.c"

# A function of n lines, braces included, and a file of n lines.
function_of() {
    put src/base/long.c 'int f(void)' '{' "$(yes '    f();' | head -n $(($1 - 2)))" '}'
}
function_of 80
passes check-size
function_of 81
rejects check-size src/base/long.c:3
put src/base/long.c "$(yes 'int x;' | head -n 498)"
passes check-size
put src/base/long.c "$(yes 'int x;' | head -n 499)"
rejects check-size src/base/long.c:500

exit $status
