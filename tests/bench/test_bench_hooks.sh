#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally bench hooks`: every line has its fields, in numbers; bytes and errors are those of the hook;
# a mistake gets one clear line.
# shellcheck source=tests/bench/bench_support.sh
. "$(dirname "$0")/bench_support.sh" "$1" hooks --mb 1 --steps 1

number='[0-9.]+(e[-+][0-9]+)?'
line='^\{"hook": "[^"]+", "ranks": [0-9]+, "mb": [0-9]+, "steps": [1-9][0-9]*'
for field in ms plain_ms plain_ratio; do
    line+=", \"$field\": $number"
done
line+=", \"goal\": (null|$number), \"wire_bytes\": [0-9]+, \"host_bytes\": [0-9]+"
line+=", \"rel_error\": $number, \"worst_error\": $number\}\$"

# within HOOK FIELD LOW HIGH: what the last measurement says of the hook.
within() {
    local value
    value=$(grep -F "\"hook\": \"$1\"," "$work/out" | sed -E "s/.*\"$2\": ([^,}]+).*/\1/")
    awk -v value="$value" -v low="$3" -v high="$4" \
        'BEGIN { exit !(value != "" && value + 0 >= low + 0 && value + 0 <= high + 0) }' ||
        complain "$2 of $1 is '$value', not in $3..$4"
}

# Of two ranks each sends what the other sums, and what it summed: all elements, once.
measures "$("$tally" hooks --json | grep -c '"name"')"
within allreduce wire_bytes 1000000 1000000
within allreduce rel_error 0 1e-6
for hook in fp16 bf16; do
    within $hook wire_bytes 500000 500000
done
within fp16 rel_error 1e-5 1e-3
within bf16 rel_error 1e-4 8e-3
for hook in int8 quantize_per_tensor quantize_per_channel; do
    within $hook wire_bytes 250000 275000
    within $hook rel_error 1e-3 0.1
done
# Every rank keeps its own: there is nothing on the wire, and no mean.
within powersgd:start=0 wire_bytes 1000 100000
within noop wire_bytes 0 0
# On one machine nothing of hosts crosses a network.
within hosts wire_bytes 0 0
within hosts host_bytes 2000000 2001000
within allreduce host_bytes 0 0
within noop rel_error 0.1 10

# The same part of the bytes with more ranks: a rank sends 2 (W - 1) / W of the elements.
if [ "$sanitized" -eq 0 ]; then
    measures 6 --ranks 3,4 --mb 2 --hook allreduce --hook fp16 --hook 'int8:feedback=0'
    prints '"hook": "int8:feedback=0", "ranks": 4, "mb": 2, "steps": 1, '
fi
measures 2 --ranks 3 --hook allreduce --hook bf16
within allreduce wire_bytes 1330000 1340000
within bf16 wire_bytes 665000 670000
measures 1 --ranks 1 --hook allreduce
within allreduce wire_bytes 0 0
measures 1 --hook 'bf16(int8)' --bucket-mb 1
prints '"hook": "bf16\(int8\)"'

"$tally" bench hooks --mb 1 --steps 1 --hook fp16 >"$work/out"
prints '^2 ranks, 1 MB of gradients as views; medians of 1 steps$'
prints '^hook +ms +plain ms +plain x +goal +wire bytes +host bytes +rel error +worst param$'
prints '^fp16 +[0-9.]+ +[0-9.]+ +[0-9.]+ +- +500000 +0 +[0-9.]+e-04 '

refuses "no hook 'nosuch'; available: allreduce, fp16, bf16" --hook allreduce --hook nosuch
refuses "column 5: noop has no options" --hook noop:x=1
refuses '--hook needs a value: TEXT' --hook
refuses '--ranks x is not a list of numbers' --ranks x
refuses '65 ranks are not in 1..64' --ranks 65
refuses '--mb 0 is not accepted; use a whole number from 1' --mb 0
refuses '--steps 1001 is not accepted' --steps 1001
refuses "unknown option '--fast'; accepted: .*--hook" --fast
many=()
for _ in $(seq 65); do
    many+=(--hook noop)
done
refuses '--hook noop is one too many; at most 64 are accepted' "${many[@]}"

finish
