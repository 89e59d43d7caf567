#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_bench_auto.sh TALLY
# `bench/auto_grid.py` on two hosts of network namespaces, for two small cells: auto settles, all candidates
# take steps, the figures are numbers; how good the choice is is not asked. Skipped where hosts cannot be made.
# shellcheck source=tests/tool/command_support.sh
. "$(dirname "$0")/../tool/command_support.sh" "$1"
root=$(cd "$(dirname "$0")/../.." && pwd)
need_hosts "$root"

python3 -B "$root/bench/auto_grid.py" --build "$(dirname "$tally")" --mpi "$mpi" --mbit 500 --backward 0 \
    --bytes 400000 --rounds 2 --json >"$work/rows" 2>"$work/err" ||
    complain "auto_grid.py failed: $(cat "$work/err")"
number='-?[0-9.]+(e[-+][0-9]+)?'
for model in matrices small; do
    line="\"mbit\": 500, \"backward\": 0.0, \"model\": \"$model\", .*\"choice\": \"[a-z0-9 ,]+\", .*\"regret\": $number, "
    grep -qE "$line" "$work/rows" || complain "no row of $model: $(cat "$work/rows")"
done
grep -qE "^\{\"cells\": 2, \"median_regret\": $number, " "$work/rows" || complain "no total: $(cat "$work/rows")"

[ "$failures" -eq 0 ] || exit 1
echo "bench_auto: all good"
