#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally bench lowrank`: every line has its fields, in numbers, with and without a BLAS; a mistake gets
# one clear line.
set -u
tally=$1
failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

number='[0-9.]+(e[-+][0-9]+)?'
line='^\{"rows": [0-9]+, "columns": [0-9]+, "rank": [0-9]+, "matrices": [1-9][0-9]*, "isa": "[a-z0-9]+"'
line+=', "blas": (null|"[a-z0-9.]+")'
for field in multiply correct transposed expand orthogonalise step read update write streams; do
    line+=", \"${field}_ms\": $number"
done
for field in multiply transposed expand step; do
    line+=", \"blas_${field}_ms\": (null|$number)"
done
line+='\}$'

# measures N OPTION...: exits 0 in silence with N such JSON lines, kept in $work/out.
measures() {
    local n=$1 rc
    shift
    "$tally" bench lowrank --json --mb 1 --samples 2 "$@" >"$work/out" 2>"$work/err"
    rc=$?
    [ $rc -eq 0 ] || complain "'$*' exited with $rc: $(cat "$work/err")"
    [ ! -s "$work/err" ] || complain "'$*' wrote to stderr: $(cat "$work/err")"
    [ "$(grep -cE -- "$line" "$work/out")" -eq "$n" ] ||
        complain "'$*' did not print $n good lines: $(cat "$work/out")"
    [ "$(wc -l <"$work/out")" -eq "$n" ] || complain "'$*' printed more than $n lines"
}

# rejects PATTERN OPTION...: exits 2 with exactly one line on stderr that matches PATTERN.
rejects() {
    local pattern=$1 err rc
    shift
    err=$("$tally" bench lowrank "$@" 2>&1 >/dev/null)
    rc=$?
    [ $rc -eq 2 ] || complain "'$*' exited with $rc instead of 2"
    [ "$(wc -l <<<"$err")" -eq 1 ] || complain "'$*' wrote more than one line: $err"
    grep -qE -- "$pattern" <<<"$err" || complain "'$*' did not say /$pattern/: $err"
}

measures 4 --rows 64,30 --columns 40,513 --ranks 1,5
grep -q '"rows": 30, "columns": 513, "rank": 5, "matrices": 16' "$work/out" ||
    complain "the last shape is missing: $(cat "$work/out")"
measures 1 --rows 1 --columns 5Ki --ranks 40
"$tally" bench lowrank --mb 1 --samples 1 --rows 64 --columns 64 --ranks 2 >"$work/out"
grep -qE '^ +64 x 64 +2( +[0-9.]+!?){8}' "$work/out" || complain "no such row: $(cat "$work/out")"

rejects '--rows has 2 numbers, --columns 1' --rows 3,4 --columns 5
rejects '--ranks x is no list of numbers' --ranks x
rejects '--ranks 1025 is more than 1024' --ranks 1025
rejects '--rows 17Mi|--rows [0-9]+ is more than' --rows 17Mi --columns 1
rejects '--mb 0 is not accepted; use a whole number from 1' --mb 0
rejects '--samples 102 is not accepted' --samples 102
rejects "unknown option '--fast'; accepted: .*--columns" --fast

[ $failures -eq 0 ] || exit 1
echo "bench_lowrank: all good"
