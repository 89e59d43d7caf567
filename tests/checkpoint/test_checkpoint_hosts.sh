#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_checkpoint_hosts.sh openmpi|mpich SOURCE OBJECT PROGRAM TALLY
# Checkpoints of ranks on several hosts, under MPI: in a directory that all of them see, and in one that
# only the first of them has. SOURCE is the source tree, OBJECT tally's part for that MPI, PROGRAM
# hosts_checkpoint, TALLY the command. Exit code 77, with the reason: not here.
set -euo pipefail
# shellcheck source=tests/support/hosts_support.sh
. "$(dirname "$0")/../support/hosts_support.sh"

mpi=$1 bench=$2/bench object=$3 program=$4 tally=$5
need_hosts "$mpi" "$bench" "$object"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

complain() {
    echo "$mpi: $*" >&2
    cat "$work/out" >&2
    exit 1
}

# on_hosts RANKS DIRECTORY seen|hidden: RANKS ranks on each of two hosts. A host has its own mounts: a
# directory that is hidden is an empty one on every host except the first.
on_hosts() {
    # shellcheck disable=SC2016
    timeout 120 "$bench/hosts.sh" "$bench/hosts_mpirun.sh" "$mpi" "$1" \
        sh -c '[ "$3" = seen ] || [ "$(hostname)" = host-0 ] || mount -t tmpfs none "$2"; exec "$1" "$2" "$3"' \
        sh "$program" "$2" "$3" </dev/null >"$work/out" 2>&1 || complain "$1 ranks on each host, $3: failed"
    [ "$(grep -c "of $((2 * $1)): as expected" "$work/out")" -eq $((2 * $1)) ] || complain "ranks are missing"
}

mkdir "$work/seen" "$work/hidden"
on_hosts 2 "$work/seen" seen
"$tally" checkpoint "$work/seen" >"$work/out" || complain "the checkpoint is not whole"
grep -q 'step 3, saved by 4 ranks' "$work/out" || complain "it is another checkpoint"
cp -r "$work/seen/." "$work/hidden"
on_hosts 1 "$work/hidden" hidden
[ -z "$(find "$work/hidden" -name '.saving*')" ] || complain "a save that failed has left files"
[ "$("$tally" checkpoint "$work/hidden" | tail -n 1)" = "whole: every checksum is right" ] ||
    complain "a save that failed has damaged an older checkpoint"
