#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally bench lowrank`: every line has its fields, in numbers, with and without a BLAS; a mistake gets
# one clear line.
# shellcheck source=tests/bench/bench_support.sh
. "$(dirname "$0")/bench_support.sh" "$1" lowrank --mb 1 --samples 2

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

measures 4 --rows 64,30 --columns 40,513 --ranks 1,5
grep -q '"rows": 30, "columns": 513, "rank": 5, "matrices": 16' "$work/out" ||
    complain "the last shape is missing: $(cat "$work/out")"
measures 1 --rows 1 --columns 5Ki --ranks 40
"$tally" bench lowrank --mb 1 --samples 1 --rows 64 --columns 64 --ranks 2 >"$work/out"
grep -qE '^ +64 x 64 +2( +[0-9.]+!?){8}' "$work/out" || complain "no such row: $(cat "$work/out")"

refuses '--rows has 2 numbers and --columns 1; both need' --rows 3,4 --columns 5
refuses '--ranks x is not a list of numbers' --ranks x
refuses '--ranks 1025 is more than 1024' --ranks 1025
refuses '--rows 17Mi|--rows [0-9]+ is more than' --rows 17Mi --columns 1
refuses '--mb 0 is not accepted; use a whole number from 1' --mb 0
refuses '--samples 102 is not accepted' --samples 102
refuses "unknown option '--fast'; accepted: .*--columns" --fast

finish
