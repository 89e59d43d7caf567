#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally bench events`: the line has its fields, in numbers; every bucket has its events; a mistake gets one clear line.
# shellcheck source=tests/bench/bench_support.sh
. "$(dirname "$0")/bench_support.sh" "$1" events --samples 3

number='-?[0-9.]+(e[-+][0-9]+)?'
line="^\{\"buckets\": [0-9]+, \"events\": $number, \"off_us\": $number, \"on_us\": $number, \"event_ns\": $number\}\$"

measures 1 --buckets 20
# A gradient, a launch and an exchange per bucket, and a step with its wait.
python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["events"] >= 62' "$work/out" ||
    complain "events are missing: $(cat "$work/out")"
"$tally" bench events --samples 1 --buckets 3 >"$work/out"
grep -qE '^a step of 3 buckets: [0-9.]+ us without events, [0-9.]+ us with [0-9]+ of them: -?[0-9.]+ ns each$' "$work/out" ||
    complain "no such line: $(cat "$work/out")"

refuses '--buckets 0 is not accepted; use a whole number from 1' --buckets 0
refuses '--samples 1002 is not accepted' --samples 1002

finish
