#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_bench_plan.sh TALLY
# `bench/plan_check.py` on two hosts of network namespaces: measures and forecasts every hook, in numbers.
# The quality of the forecasts is not tested. Skipped where hosts cannot be made.
# shellcheck source=tests/tool/command_support.sh
. "$(dirname "$0")/../tool/command_support.sh" "$1"
root=$(cd "$(dirname "$0")/../.." && pwd)
need_hosts "$root"

python3 -B "$root/bench/plan_check.py" --tally "$tally" --mpi "$mpi" --mb 1 --backward-ms 2 --steps 1 \
    --profile-mbit 1000 --mbit 500 --hosts 2 --json >"$work/rows" 2>"$work/err" ||
    complain "plan_check.py failed: $(cat "$work/err")"
for hook in allreduce bf16 int8 powersgd:start=0; do
    line="\"hosts\": 2, \"mbit\": 500, \"hook\": \"$hook\", \"measured_ms\": [0-9.]+, \"forecast_ms\": [0-9.]+, "
    grep -qE "$line" "$work/rows" || complain "no row of $hook: $(cat "$work/rows")"
done

[ "$failures" -eq 0 ] || exit 1
echo "bench_plan: all good"
