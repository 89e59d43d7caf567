#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally bench step`: every line has its fields, in numbers; a mistake gets one clear line.
# shellcheck source=tests/bench/bench_support.sh
. "$(dirname "$0")/bench_support.sh" "$1" step --mb 1 --steps 1

# line_of BACKWARD DIFFERENCE OVERLAP: what a JSON line looks like. Times are above 0; differences of times need not
# be, and what they are divided by may be lost in the noise.
positive='[0-9.]+(e[-+][0-9]+)?'
any="-?$positive"
line_of() {
    local backward=$1 difference=$2 overlap=$3 field
    printf '%s' '^\{"ranks": [0-9]+, "mb": [0-9]+, "backward_ms": [0-9]+, "mode": "(views|copies)"'
    printf '%s' ', "params": [0-9]+, "lanes": [0-9]+, "cpus": [1-9][0-9]*, "steps": [1-9][0-9]*'
    for field in step_ms serial_ms backward_alone_ms; do
        printf ', "%s": %s' $field "$backward"
    done
    printf ', "comm_ms": %s, "exposed_ms": %s' "$difference" "$backward"
    printf ', "overlap": %s, "backward_stretch": %s' "$overlap" "$backward"
    for field in allreduce_ms at_once_ms step_over_allreduce create_ms; do
        printf ', "%s": %s' $field "$positive"
    done
    printf '%s\n' ', "wire_bytes": [0-9]+\}$'
}
line=$(line_of "$positive" "$any" "(null|$any)")

if [ "$sanitized" -eq 0 ]; then
    measures 1 --backward-ms 4
    prints '"ranks": 2, "mb": 1, "backward_ms": 4, "mode": "views", "params": 100, "lanes": 1'
    # Of two ranks each sends what the other sums, and what it summed: all bytes, once.
    prints '"wire_bytes": 1000000\}$'
    measures 1 --backward-ms 4 --copies --params 7 --lanes 2
    prints '"mode": "copies", "params": 7, "lanes": 2'
fi
measures 1 --backward-ms 2 --ranks 1 --params 1 --lanes 0 --views
prints '"ranks": 1, .*"mode": "views", "params": 1, "lanes": 0'
prints '"wire_bytes": 0\}$'
plain=$line
line="${plain%\\\}\$}, \"optimizer\": \"adamw\""
for field in on_call_ms behind_hook_ms; do
    line+=", \"$field\": $positive"
done
line+=", \"exposed_on_call_ms\": $any, \"exposed_behind_hook_ms\": $any, \"exposed_ratio\": (null|$any)"
line+=", \"behind_hook_in_wait_ms\": $positive"
line+=", \"update_ms\": $positive, \"update_over_traffic\": $positive\\}\$"
measures 1 --backward-ms 2 --optimizer adamw --copies --params 3
line=$(line_of null null null)
measures 2 --backward-ms 0 --ranks 2,3 --mb 3 --bucket-mb 1
prints '"ranks": 3, "mb": 3, "backward_ms": 0, '

if [ "$sanitized" -eq 0 ]; then
    "$tally" bench step --mb 1 --steps 1 --backward-ms 2 --lanes 0 >"$work/out"
    prints '^  backward alone +[0-9.]+$'
    prints '^  step without a backward +[0-9.]+   [0-9.]+ all-reduces \(goal: 1\.05\)$'
    prints '^Without lanes all communication happens in wait'
fi
if [ "$sanitized" -eq 0 ]; then
    "$tally" bench step --mb 1 --steps 1 --backward-ms 2 --optimizer sgd:momentum=0.9 >"$work/out"
    prints '^  then the optimizer, on call +[0-9.]+   the optimizer adds -?[0-9.]+; its update alone: [0-9.]+$'
    prints '^  the optimizer after the hook +[0-9.]+   the optimizer adds -?[0-9.]+.*; in wait: [0-9.]+$'
    prints '^  sgd:momentum=0.9 +[0-9.]+   memcpies of the bytes it must move \(goal: 1\.3\)$'
fi
"$tally" bench step --mb 1 --steps 1 --backward-ms 0 --copies >"$work/out"
prints '^  step without a backward +[0-9.]+   [0-9.]+ all-reduces$'
! grep -q 'backward alone' "$work/out" || complain "there is a backward: $(cat "$work/out")"

refuses 'give --views or --copies, not both' --views --copies
refuses '--optimizer needs a backward pass' --optimizer adamw --backward-ms 0
refuses "column 1: no optimizer 'adamx'" --mb 1 --optimizer adamx
refuses '--ranks x is not a list of numbers' --ranks x
refuses '65 ranks are not in 1..64' --ranks 65
refuses '--mb 0 is not accepted; use a whole number from 1' --mb 0
refuses '--backward-ms -1 is not accepted; use a whole number from 0' --backward-ms -1
refuses '--params 0 is not accepted' --params 0
refuses '--lanes 65 is not accepted; use a whole number from 0 to 64' --lanes 65
refuses '--steps 1001 is not accepted' --steps 1001
refuses "unknown option '--fast'; accepted: .*--backward-ms" --fast

finish
