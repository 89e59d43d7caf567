#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally bench collective`: every line has its fields, in numbers; a mistake gets one clear line; a
# rank that dies is named, and soon.
# shellcheck source=tests/bench/bench_support.sh
. "$(dirname "$0")/bench_support.sh" "$1" collective --seconds 0.01

number='[0-9.]+(e[-+][0-9]+)?'
line='^\{"op": "[a-z_]+", "ranks": [0-9]+, "bytes": [0-9]+, "memory": "(group|heap)"'
line+=', "samples": [0-9]+'
for field in us us_p99 algbw_gbps busbw_gbps copy_us memcpy_us submit_us; do
    line+=", \"$field\": $number"
done
for field in openmpi_us mpich_us; do
    line+=", \"$field\": (null|$number)"
done
line+=', "openmpi_version": (null|"[0-9.]+"), "mpich_version": (null|"[0-9.]+")'
line+=", \"two_rank_us\": (null|$number), \"two_rank_ratio\": (null|$number)\}\$"

measures 9 --ranks 1,2,3 --bytes 1Ki..16Ki
prints '"ranks": 3, "bytes": 16384, "memory": "group"'
measures 3 --bytes 1Ki..8Ki --memory heap
prints '"bytes": 8192, "memory": "heap"'
measures 1 --ranks 3 --bytes 4Ki --compare-two
prints "\"two_rank_us\": $number, \"two_rank_ratio\": $number"
for op in reduce_scatter all_gather all_to_all broadcast; do
    measures 4 --op $op --ranks 2,3 --bytes 4,12004
    prints "\"op\": \"$op\", \"ranks\": 3, \"bytes\": 12004"
done
for mpi in openmpi mpich; do
    if [ -x "$(dirname "$tally")/bench/mpi_peer_$mpi" ]; then
        measures 1 --bytes 4Ki --peer $mpi
        prints "\"${mpi}_us\": $number"
    fi
done
"$tally" bench collective --bytes 1Ki --seconds 0.01 | grep -q 'us/copy' || complain "no table"

refuses "unknown op 'fly'; accepted: all_reduce" --op fly
refuses "unknown memory 'core'; accepted: group heap" --memory core
refuses "unknown peer 'lam'; accepted: openmpi mpich" --peer openmpi,lam
refuses "unknown peer ''; accepted: openmpi mpich" --peer openmpi,
refuses 'measured for all_reduce only, not for broadcast' --peer mpich --op broadcast --bytes 4
for bad in 1Q 0 4Ki.. 8Ki..4Ki ,4 '4,' 4..8..16 99999999999Gi; do
    refuses "--bytes $bad is not a list of sizes" --bytes $bad
done
refuses '6 bytes are no whole number of 4-byte elements' --bytes 6
refuses '--ranks x is not a list of numbers' --ranks x
refuses '65 ranks are not in 1..64' --ranks 65
refuses "unknown option '--fast'; accepted: .*--peer" --fast

# One of two ranks is killed in the middle.
"$tally" bench collective --bytes 16Mi --seconds 60 >"$work/out" 2>"$work/err" &
bench=$!
victim=
for _ in $(seq 100); do
    victim=$(awk -v parent=$bench '$4 == parent { pid = $1 } END { print pid }' \
        /proc/[0-9]*/stat 2>/dev/null)
    [ -z "$victim" ] || break
    sleep 0.05
done
sleep 0.5
start=$SECONDS
kill -KILL "$victim" || complain "there was no rank to kill"
wait $bench
rc=$?
[ $rc -eq 1 ] || complain "with a dead rank it exited with $rc"
[ $((SECONDS - start)) -le 30 ] || complain "with a dead rank it took $((SECONDS - start)) s"
[ "$(wc -l <"$work/err")" -eq 1 ] || complain "with a dead rank it wrote: $(cat "$work/err")"
grep -qE 'rank [01] of 2 was killed by signal 9' "$work/err" ||
    complain "a dead rank was not named: $(cat "$work/err")"

finish
