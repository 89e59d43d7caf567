#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_mpi_srun.sh openmpi|mpich SOURCE OBJECT PROGRAM BITS
# Ranks that srun of a real Slurm has started, on one node and on two: one world, with the bits that
# threads of one process have; an error where Slurm starts processes that MPI does not know; an end
# when a rank dies. SOURCE is the source tree, OBJECT tally's part for that MPI, PROGRAM run_reduce,
# BITS test_hook_bits. Exit code 77, with the reason: not here.
set -euo pipefail

mpi=$1 bench=$2/bench object=$3 program=$4 bits=$5
if [ ! -e "$object" ]; then
    echo "skipped: tally was built without $mpi"
    exit 77
fi
# They say themselves why there can be no hosts, or no Slurm.
"$bench/hosts.sh" true
"$bench/hosts.sh" --hosts 1 "$bench/hosts_slurm.sh" true
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TALLY_MPI=$object TALLY_TIMEOUT=20 TALLY_OPEN_TIMEOUT=20
# The plugin of Slurm that starts processes as this MPI expects it.
plugin=pmix
[ "$mpi" = openmpi ] || plugin=pmi2

complain() {
    echo "FAILED: $mpi, $*: $(cat "$work/out")" >&2
    exit 1
}

# A user without root has hosts in a user namespace, where Slurm's daemons cannot start.
if unshare --map-root-user true 2>/dev/null; then
    rc=0
    unshare --map-root-user "$bench/hosts.sh" --hosts 1 "$bench/hosts_slurm.sh" true >"$work/out" 2>&1 || rc=$?
    if [ $rc -ne 77 ] || ! grep -q '^skipped: Slurm starts only as root' "$work/out"; then
        complain "Slurm was not skipped in a user namespace: exit $rc"
    fi
fi

# by_srun HOSTS RANKS PLUGIN COMMAND...: sets rc.
by_srun() {
    rc=0
    timeout -k 5 90 "$bench/hosts.sh" --hosts "$1" "$bench/hosts_slurm.sh" \
        srun -N "$1" -n "$2" --mpi="$3" "${@:4}" </dev/null >"$work/out" 2>&1 || rc=$?
}

# On several hosts MPICH has one rank on each: two of one host would talk over TCP, since UCX must not
# share memory between hosts, and MPICH 4.0 may hang in MPI_Finalize then.
many=4
[ "$mpi" = openmpi ] || many=2
for case in "1 2" "2 $many"; do
    read -r hosts ranks <<<"$case"
    by_srun "$hosts" "$ranks" $plugin "$program"
    [ $rc -eq 0 ] || complain "$ranks ranks: exit $rc"
    [ "$(grep -c " of $ranks: sum $((ranks * (ranks + 1) / 2))\$" "$work/out")" -eq "$ranks" ] ||
        complain "not every one of $ranks ranks has the sum"
    echo "$mpi: $ranks ranks on $hosts nodes"
done

: >"$work/board"
TALLY_TEST_MPI_BOARD=$work/board TALLY_TEST_MPI_WORLD=$many TALLY_TEST_RANKS_PER_HOST=$((many / 2)) \
    by_srun 2 $many $plugin "$bits"
[ $rc -eq 0 ] || complain "hooks have other bits than between threads"
echo "$mpi: the bits of $many ranks on 2 nodes"

# tally says so, or MPI itself.
by_srun 1 2 none "$program"
if [ $rc -eq 0 ] || grep -q 'of 1: sum' "$work/out"; then
    complain "processes without a plugin for MPI are worlds of one"
fi
echo "$mpi: an error without a plugin for MPI"

start=$SECONDS
by_srun 2 $many $plugin "$program" 1
if [ $rc -eq 0 ] || [ $rc -ge 124 ] && [ $rc -ne 137 ]; then
    complain "a rank died: exit $rc after $((SECONDS - start)) s"
fi
echo "$mpi: an end, $((SECONDS - start)) s after a rank began to die"
