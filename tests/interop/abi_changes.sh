#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: abi_changes.sh ABI RECORD READELF LIBRARY INCLUDE
# The check of the binary interface finds changes that break programs: each case changes a copy of the headers in
# INCLUDE, or the list of symbols, and the check must name it. Additions pass.
set -u
abi=$1 record=$2 readelf=$3 library=$4 include=$5
failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# verdict: of the check on the copies and on the list of symbols; sets rc.
verdict() {
    rc=0
    python3 -B "$abi" "$record" "$work/readelf" "$library" "$work/tally.h" "$work/tally_extend.h" >"$work/out" 2>&1 || rc=$?
}

# fresh: unchanged copies of the headers, and a readelf that prints the list of symbols.
fresh() {
    cp "$include/tally.h" "$include/tally_extend.h" "$work"
    printf '#!/bin/sh\ncat "%s"\n' "$work/symbols" >"$work/readelf"
    chmod +x "$work/readelf"
    "$readelf" --dyn-syms --wide "$library" >"$work/symbols"
}

# change FILE SCRIPT: edits the copy with sed, which must have an effect.
change() {
    cp "$work/$1" "$work/before"
    sed -i -E "$2" "$work/$1"
    if cmp -s "$work/before" "$work/$1"; then
        echo "FAILED: '$2' changes nothing in $1: the test is out of date"
        failures=$((failures + 1))
    fi
}

# finds TEXT FILE SCRIPT: the check must fail, and name TEXT.
finds() {
    fresh
    change "$2" "$3"
    verdict
    if [ $rc -eq 0 ] || ! grep -qF -- "$1" "$work/out"; then
        echo "FAILED: after '$3' in $2 the check ended with $rc and did not print '$1': $(tail -n 5 "$work/out")"
        failures=$((failures + 1))
    fi
}

# passes FILE SCRIPT: the check must succeed.
passes() {
    fresh
    change "$1" "$2"
    verdict
    if [ $rc -ne 0 ]; then
        echo "FAILED: after '$2' in $1 the check ended with $rc: $(tail -n 5 "$work/out")"
        failures=$((failures + 1))
    fi
}

finds 'function tally_barrier: was' tally_extend.h '/^TALLY_API int tally_barrier\(/d'
finds 'function tally_group_rank: was int(tally_group *)' tally.h \
    's/^(TALLY_API int tally_group_rank\()const tally_group/\1const tally_ddp/'
finds 'function tally_version: was' tally.h 's/^TALLY_API (.*[ *])tally_version\(void/TALLY_API double tally_version(void/'
finds 'callback tally_log_fn: was void(void *, int, char *)' tally.h \
    's/(\(\*tally_log_fn\)\(void \*user, )int level/\1size_t level/'
finds 'field tally_hook_table.reduce: was' tally_extend.h \
    's/\(\*reduce\)\(void \*state, tally_lane \*lane/(*reduce)(void *state, tally_ddp *lane/'
# A field in front of it moves it.
finds 'field tally_ddp_config.static_graph: was int, 4 bytes at 100, is int, 4 bytes at 108' tally.h \
    '/^typedef struct tally_ddp_config/,/^\}/s/^    size_t bucket_cap_bytes;/    int inserted;\n&/'
finds 'struct tally_averager_level: was 8 bytes, is 12 bytes' tally.h 's/^\} tally_averager_level;/    int added;\n&/'
# As many bytes at the same place.
finds 'field tally_group_config.timeout_s: was double' tally.h 's/^    double timeout_s;/    size_t timeout_s;/'
finds 'field tally_group_config.rank: was int, 4 bytes at 16, is gone' tally.h \
    '/^typedef struct tally_group_config/,/^\}/s/^    int rank;/    int number;/'
finds 'constant TALLY_BF16: was 3' tally.h 's/TALLY_BF16 = 3/TALLY_BF16 = 7/'
finds 'constant TALLY_STATUS_PEER: was -5' tally.h 's/X\(PEER, -5,/X(PEER, -55,/'
finds 'constant TALLY_MAX_STATES: was 8' tally_extend.h 's/TALLY_MAX_STATES 8/TALLY_MAX_STATES 9/'
# The function remains, but programs ask for it by its version.
finds 'function tally_version: was' symbols 's/ tally_version@.*/ tally_version@@TALLY_9.9/'
finds 'function tally_version: was' symbols '/ tally_version@/d'

passes tally_extend.h 's/^TALLY_API int tally_barrier\(/TALLY_API int tally_new(int number);\n&/'
passes tally.h 's/^\} tally_group_config;/    int added;\n&/'
passes tally.h 's/(TALLY_API int tally_group_rank\(const tally_group \*)group/\1other_name/'

[ $failures -eq 0 ] && echo "the check finds changes"
exit $((failures > 0))
