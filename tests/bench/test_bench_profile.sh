#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally bench profile`: every line has its fields, in numbers; the file is a profile that `tally plan`
# reads, with the buckets and bytes of the bench; a mistake gets one clear line.
# shellcheck source=tests/bench/bench_support.sh
. "$(dirname "$0")/bench_support.sh" "$1" profile --mb 4 --backward-ms 4 --steps 3

number='[0-9.]+(e[-+][0-9]+)?'
line='^\{"hook": "[^"]+", "ranks": [0-9]+, "hosts": 1, "mb": 4, "steps": 3, "backward": "(timed|computes)"'
for field in backward_ms gbit latency_us cpu_share step_ms forecast_ms; do
    line+=", \"$field\": $number"
done
line+=", \"wire_bytes\": [0-9]+, \"error\": $number\}\$"

measures 2 --hook bf16 -o "$work/run.json"
prints '"hook": "allreduce", "ranks": 2, .*"wire_bytes": 4000000, "error": [0-9.]+e-0[789]'
prints '"hook": "bf16", "ranks": 2, .*"wire_bytes": 2000000, '
"$tally" plan --profile "$work/run.json" --json --hosts 2 --gbit 1 --latency-us 50 >"$work/out" 2>"$work/err" ||
    complain "tally plan refuses the profile: $(cat "$work/err")"
prints '"hook": "allreduce", "hosts": 2, .*"host_bytes": 8e\+06, '
prints '"hook": "hosts\(bf16\)", "hosts": 2, .*"host_bytes": 2e\+06, '
# The line of one host was never measured.
rejects 'run.json was measured on one host: give --gbit and --latency-us' \
    "$tally" plan --profile "$work/run.json" --hosts 2

measures 2 --timed --hook int8 --ranks 3
prints '"hook": "int8", "ranks": 3, .*"backward": "timed"'
prints '"cpu_share": 0, '

refuses "no hook 'nosuch'; available: allreduce" --hook nosuch
refuses '1 ranks are not in 2..64' --ranks 1
refuses '--backward-ms 0 is not accepted' --backward-ms 0
rc=0
"$tally" bench profile "${quick[@]}" --hook bf16 -o /nowhere/run.json >"$work/out" 2>"$work/err" || rc=$?
[ $rc -eq 1 ] || complain "a file that cannot be written: exit $rc"
grep -q 'cannot write the profile /nowhere/run.json' "$work/err" || complain "it says: $(cat "$work/err")"

finish
