#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_stragglers.sh TALLY RUN_LATE TRIALS [CASE...]
# Ranks on this machine of which one is late, in TRIALS trials of each case: it computes longer; other
# programs run on the CPU of its lane; or none is late. The right rank must be named with the right
# cause within ten late steps, by the statistics and by the log, and no other. Of up to 100 trials one may fail: with
# a dependability of 99 %, two of five fail in one test of a thousand. Where none is late, no trial may fail. Exit code
# 77, with the reason: it cannot be judged here.
set -uo pipefail
# shellcheck source=tests/support/idle.sh
. "$(dirname "$0")/../support/idle.sh"

tally=$1 program=$2 trials=$3
shift 3
cases=("$@")
[ $# -gt 0 ] || cases=(computes lane none)
cpus=$(nproc)
failed=0
hogs=()

end_hogs() {
    [ ${#hogs[@]} -eq 0 ] || kill "${hogs[@]}" 2>/dev/null
    wait "${hogs[@]}" 2>/dev/null
    hogs=()
}
trap end_hogs EXIT

# The lane gets a fifth of its CPU: it needs 75 ms for the 15 ms of its hook, of which 24 ms are hidden. With a half it might
# catch up in single steps.
start_hogs() {
    for _ in 1 2 3 4; do
        taskset -c $((cpus - 1)) sh -c 'while :; do :; done' &
        hogs+=($!)
    done
}

# judge CASE WORLD LATE OUT: whether the lines say what they should.
judge() {
    local expected=""
    [ "$1" = none ] || expected="$3 $1"
    local named logged
    named=$(grep -v '^logged\|^#' <<<"$4" | cut -d' ' -f1,2)
    logged=$(grep -c '^logged' <<<"$4")
    [ "$named" = "$expected" ] && [ "$logged" -eq $((${#expected} > 0)) ] &&
        { [ -z "$expected" ] || grep -q "^logged: rank $3 makes the others wait" <<<"$4"; }
}

if [ "$cpus" -lt 2 ]; then
    echo "skipped: a lane cannot have a CPU for itself on a machine with one"
    exit 77
fi
need_idle_cpus
for case in "${cases[@]}"; do
    wrong=0 most_wrong=1
    [ "$case" != none ] || most_wrong=0
    [ "$case" != lane ] || start_hogs
    for ((trial = 0; trial < trials; trial++)); do
        world=$((2 + trial % 2))
        # Each of the other lanes needs a CPU.
        [ "$case" != lane ] || world=2
        late=$((trial / 2 % world))
        steps=12
        [ "$case" != none ] || steps=30
        if ! out=$(timeout 60 "$tally" run -n "$world" "$program" "$case" "$late" "$steps" 2>&1) ||
            ! judge "$case" "$world" "$late" "$out"; then
            end_hogs
            if is_spoiled; then
                trial=$((trial - 1))
            else
                wrong=$((wrong + 1))
                echo "$case, trial $trial, rank $late of $world is late: $out" >&2
            fi
            [ "$case" != lane ] || start_hogs
        fi
    done
    end_hogs
    echo "$case: $((trials - wrong)) of $trials trials named the right rank and cause"
    [ "$wrong" -le "$most_wrong" ] || failed=1
done
exit $failed
