#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally bench checkpoint`: the line has its fields, in numbers; nothing is left on the disk; a mistake
# gets one clear line.
# shellcheck source=tests/bench/bench_support.sh
. "$(dirname "$0")/bench_support.sh" "$1" checkpoint --mb 1 --rounds 1 --backward-ms 1 --params 7

positive='[0-9.]+(e[-+][0-9]+)?'
line='^\{"ranks": [0-9]+, "mb": 1, "params": 7, "shard": (true|false), "cpus": [1-9][0-9]*, "rounds": 1, "bytes": [1-9][0-9]*'
for field in plain_ms save_ms load_ms save_over_plain load_over_plain; do
    line+=", \"$field\": $positive"
done
line+=', "copied_bytes": [1-9][0-9]*'
for field in copy_ms take_ms take_over_copy step_ms during_ms; do
    line+=", \"$field\": $positive"
done
line+=", \"during_growth\": -?$positive, \"beside_ms\": $positive, \"beside_growth\": -?$positive\\}\$"

# In memory: the speed of the disk is not asked.
disk=$(mktemp -d -p /dev/shm 2>/dev/null) || disk=$(mktemp -d)
trap 'rm -rf "$work" "$disk"' EXIT

# Parameters once, and two arrays of state: once if they are the same on all ranks, or in shards.
for option in "" --shard; do
    # shellcheck disable=SC2086 # no option is no word
    measures 1 --ranks 3 $option --directory "$disk"
    prints '"bytes": 30[0-9]{5},'
done
measures 1 --ranks 1 --directory "$disk"
[ -z "$(find "$disk" -name 'tally-bench-*')" ] || complain "files are left"
refuses 'rounds' --rounds 0
"$tally" bench checkpoint --directory "$work/nowhere" 2>"$work/err" && complain "a missing directory is accepted"
grep -q "cannot create a folder in '.*nowhere'" "$work/err" || complain "the directory is not named"
finish
