#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally bench collective`: every line has its fields, in numbers; a mistake gets one clear line; a
# rank that dies is named, and soon.
set -u
tally=$1
failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# measures LINES OPTION...: exits 0 in silence with so many good JSON lines, kept in $work/out.
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
measures() {
    local n=$1 rc
    shift
    "$tally" bench collective --json --seconds 0.01 "$@" >"$work/out" 2>"$work/err"
    rc=$?
    [ $rc -eq 0 ] || complain "'$*' exited with $rc: $(cat "$work/err")"
    [ ! -s "$work/err" ] || complain "'$*' wrote to stderr: $(cat "$work/err")"
    [ "$(grep -cE "$line" "$work/out")" -eq "$n" ] ||
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
    err=$("$tally" bench collective "$@" 2>&1 >/dev/null)
    rc=$?
    [ $rc -eq 2 ] || complain "'$*' exited with $rc instead of 2"
    [ "$(wc -l <<<"$err")" -eq 1 ] || complain "'$*' wrote more than one line: $err"
    grep -qE -- "$pattern" <<<"$err" || complain "'$*' did not say /$pattern/: $err"
}

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

rejects "unknown op 'fly'; accepted: all_reduce" --op fly
rejects "unknown memory 'core'; accepted: group heap" --memory core
rejects "unknown peer 'lam'; accepted: openmpi mpich" --peer openmpi,lam
rejects "unknown peer ''; accepted: openmpi mpich" --peer openmpi,
rejects 'measured for all_reduce only, not for broadcast' --peer mpich --op broadcast --bytes 4
for bad in 1Q 0 4Ki.. 8Ki..4Ki ,4 '4,' 4..8..16 99999999999Gi; do
    rejects "--bytes $bad is no list of sizes" --bytes $bad
done
rejects '6 bytes are no whole number of 4-byte elements' --bytes 6
rejects '--ranks x is no list of numbers' --ranks x
rejects '65 ranks are not in 1..64' --ranks 65
rejects "unknown option '--fast'; accepted: .*--peer" --fast

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
[ $((SECONDS - start)) -le 10 ] || complain "with a dead rank it took $((SECONDS - start)) s"
[ "$(wc -l <"$work/err")" -eq 1 ] || complain "with a dead rank it wrote: $(cat "$work/err")"
grep -qE 'rank [01] of 2 was killed by signal 9' "$work/err" ||
    complain "a dead rank was not named: $(cat "$work/err")"

[ $failures -eq 0 ] || exit 1
echo "bench_collective: all good"
