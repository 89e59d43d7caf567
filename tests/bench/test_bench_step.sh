#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally bench step`: every line has its fields, in numbers; a mistake gets one clear line.
set -u
tally=$1
failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# line BACKWARD DIFFERENCE OVERLAP: what a JSON line looks like. Times are above 0; differences of times need not
# be, and what they are divided by may be lost in the noise.
positive='[0-9.]+(e[-+][0-9]+)?'
any="-?$positive"
line() {
    local backward=$1 difference=$2 overlap=$3 field
    printf '%s' '^\{"ranks": [0-9]+, "mb": [0-9]+, "backward_ms": [0-9]+, "mode": "(views|copies)"'
    printf '%s' ', "params": [0-9]+, "lanes": [0-9]+, "cpus": [1-9][0-9]*, "steps": [1-9][0-9]*'
    for field in step_ms serial_ms backward_alone_ms; do
        printf ', "%s": %s' $field "$backward"
    done
    printf ', "comm_ms": %s, "exposed_ms": %s' "$difference" "$backward"
    printf ', "overlap": %s, "backward_stretch": %s' "$overlap" "$backward"
    for field in allreduce_ms at_once_ms step_over_allreduce; do
        printf ', "%s": %s' $field "$positive"
    done
    printf '%s\n' ', "wire_bytes": [0-9]+\}$'
}
with_backward=$(line "$positive" "$any" "(null|$any)")
without_backward=$(line null null null)

# measures LINE N OPTION...: exits 0 in silence with N such JSON lines, kept in $work/out.
measures() {
    local line=$1 n=$2 rc
    shift 2
    "$tally" bench step --json --mb 1 --steps 1 "$@" >"$work/out" 2>"$work/err"
    rc=$?
    [ $rc -eq 0 ] || complain "'$*' exited with $rc: $(cat "$work/err")"
    [ ! -s "$work/err" ] || complain "'$*' wrote to stderr: $(cat "$work/err")"
    [ "$(grep -cE -- "$line" "$work/out")" -eq "$n" ] ||
        complain "'$*' did not print $n good lines: $(cat "$work/out")"
    [ "$(wc -l <"$work/out")" -eq "$n" ] || complain "'$*' printed more than $n lines"
}

# prints PATTERN: the last measurement has such a line.
prints() {
    grep -qE -- "$1" "$work/out" || complain "no line has /$1/: $(cat "$work/out")"
}

# rejects PATTERN OPTION...: exits 2 with exactly one line on stderr that matches PATTERN.
rejects() {
    local pattern=$1 err rc
    shift
    err=$("$tally" bench step "$@" 2>&1 >/dev/null)
    rc=$?
    [ $rc -eq 2 ] || complain "'$*' exited with $rc instead of 2"
    [ "$(wc -l <<<"$err")" -eq 1 ] || complain "'$*' wrote more than one line: $err"
    grep -qE -- "$pattern" <<<"$err" || complain "'$*' did not say /$pattern/: $err"
}

measures "$with_backward" 1 --backward-ms 4
prints '"ranks": 2, "mb": 1, "backward_ms": 4, "mode": "views", "params": 100, "lanes": 1'
# Of two ranks each sends what the other sums, and what it summed: all bytes, once.
prints '"wire_bytes": 1000000\}$'
measures "$with_backward" 1 --backward-ms 4 --copies --params 7 --lanes 2
prints '"mode": "copies", "params": 7, "lanes": 2'
measures "$with_backward" 1 --backward-ms 2 --ranks 1 --params 1 --lanes 0 --views
prints '"ranks": 1, .*"mode": "views", "params": 1, "lanes": 0'
prints '"wire_bytes": 0\}$'
measures "$without_backward" 2 --backward-ms 0 --ranks 2,3 --mb 3 --bucket-mb 1
prints '"ranks": 3, "mb": 3, "backward_ms": 0, '

"$tally" bench step --mb 1 --steps 1 --backward-ms 2 --lanes 0 >"$work/out"
prints '^  backward alone +[0-9.]+$'
prints '^  step without a backward +[0-9.]+   [0-9.]+ all-reduces \(goal: 1\.05\)$'
prints '^Without lanes all communication happens in wait'
"$tally" bench step --mb 1 --steps 1 --backward-ms 0 --copies >"$work/out"
prints '^  step without a backward +[0-9.]+   [0-9.]+ all-reduces$'
! grep -q 'backward alone' "$work/out" || complain "there is a backward: $(cat "$work/out")"

rejects '--views and --copies exclude each other' --views --copies
rejects '--ranks x is no list of numbers' --ranks x
rejects '65 ranks are not in 1..64' --ranks 65
rejects '--mb 0 is not accepted; use a whole number from 1' --mb 0
rejects '--backward-ms -1 is not accepted; use a whole number from 0' --backward-ms -1
rejects '--params 0 is not accepted' --params 0
rejects '--lanes 65 is not accepted; use a whole number from 0 to 64' --lanes 65
rejects '--steps 1001 is not accepted' --steps 1001
rejects "unknown option '--fast'; accepted: .*--backward-ms" --fast

[ $failures -eq 0 ] || exit 1
echo "bench_step: all good"
