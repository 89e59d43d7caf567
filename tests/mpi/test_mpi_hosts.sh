#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_mpi_hosts.sh openmpi|mpich SOURCE OBJECT TALLY EXAMPLE BITS
# Ranks on hosts of their own, that nothing but links joins: every hook has the bits that threads of
# one process have, and the bytes of a step cross the links, as many as there should be. SOURCE is the
# source tree, OBJECT tally's part for that MPI, TALLY the command, EXAMPLE 01_allreduce, BITS
# test_hook_bits. Exit code 77, with the reason: not here.
set -euo pipefail
# shellcheck source=tests/support/hosts_support.sh
. "$(dirname "$0")/../support/hosts_support.sh"

mpi=$1 bench=$2/bench object=$3 tally=$4 example=$5 bits=$6
need_hosts "$mpi" "$bench" "$object"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mb=4 # of gradients

complain() {
    echo "$mpi, $hosts hosts with $ranks ranks: $*" >&2
    exit 1
}

on_hosts() {
    timeout 120 "$bench/hosts.sh" --hosts "$hosts" --sent "$work/sent" \
        "$bench/hosts_mpirun.sh" "$mpi" "$ranks" "$@" </dev/null
}

check_example() {
    on_hosts "$example" >"$work/out" || complain "the example has failed"
    [ "$(grep -c " of $world (mpi): .* 0 wrong" "$work/out")" -eq "$world" ] ||
        complain "not every rank has said what it should: $(cat "$work/out")"
}

check_bits() {
    : >"$work/board"
    TALLY_TEST_MPI_BOARD=$work/board TALLY_TEST_MPI_WORLD=$world \
        TALLY_TEST_RANKS_PER_HOST=$ranks on_hosts "$bits" ||
        complain "hooks have other bits than between threads"
}

# In one step that counts and two before it, the hook and the plain all-reduce take turns. A rank
# sends all shards of other hosts, and its own shard to all ranks on other hosts.
check_bytes() {
    local plain=$((2 * mb * 1000000 * ranks * (world - ranks) / world))
    check_sent allreduce $((3 * (plain + plain)))
}

# Of each host one rank exchanges, with as many bytes as if it were alone there.
check_levels() {
    local plain=$((2 * mb * 1000000 * ranks * (world - ranks) / world))
    check_sent "hosts(allreduce)" $((3 * (plain + 2 * mb * 1000000 * (hosts - 1) / hosts)))
}

# check_sent HOOK BYTES: what each host sends in these steps.
check_sent() {
    local hook=$1 payload=$2 host sent
    on_hosts "$tally" bench hooks --json --hook "$hook" --mb $mb --steps 1 >"$work/out" ||
        complain "the bench has failed: $(cat "$work/out")"
    grep -q "\"ranks\": $world, \"mb\": $mb," "$work/out" || complain "no result: $(cat "$work/out")"
    for ((host = 0; host < hosts; host++)); do
        sent=$(sed -n $((host + 1))p "$work/sent")
        echo "host-$host: $sent bytes sent, for $payload of shards"
        if [ "$sent" -lt "$payload" ]; then
            complain "bytes have gone past the link of host-$host"
        fi
        # Bytes between ranks of one host stay there; packet headers are a twentieth.
        if [ "$sent" -gt $((payload + payload / 8 + 1000000)) ]; then
            complain "more has gone over the link of host-$host than between hosts"
        fi
    done
}

for case in "2 1 example bits bytes" "3 1 bits" "2 2 bits bytes levels" "4 1 example bytes" "7 1 bits"; do
    read -r hosts ranks checks <<<"$case"
    world=$((hosts * ranks))
    for check in $checks; do
        echo "== $mpi, $hosts hosts, $ranks ranks on each: $check"
        "check_$check"
    done
done
