#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_mpi_poison.sh openmpi|mpich OBJECT PROGRAM
# Receives that are under way when a group is given up do not land in freed memory (mpi_poison.c).
# OBJECT is tally's part for that MPI. Exit code 77: there is no such MPI here.
set -euo pipefail

mpi=$1 object=$2 program=$3
if [ ! -e "$object" ] || [ ! -e "$program" ]; then
    echo "skipped: tally was built without $mpi"
    exit 77
fi
# Many messages, of which each is too long for MPI to keep a copy.
export TALLY_MPI=$object TALLY_SHARE=0 TALLY_MESSAGE=131072
case $mpi in
openmpi) launcher=(mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none) ;;
mpich) launcher=(mpiexec.mpich) ;;
esac
failed=0
for call in all_reduce all_gather broadcast; do
    # The launcher complains about ranks that end without MPI_Finalize. Which messages are under way depends on the
    # moment at which rank 1 stops: a run without any says nothing.
    for _ in 1 2 3 4 5; do
        out=$(timeout -k 5 60 "${launcher[@]}" -n 2 "$program" "$call" 2>&1) || true
        grep -q 'no message was under way' <<<"$out" || break
    done
    echo "$mpi, $call: $(grep '^rank' <<<"$out" | sort | tr '\n' ';')"
    if [ "$(grep -c '^rank [01]: met$' <<<"$out")" -ne 2 ]; then
        echo "$out" >&2
        failed=1
    fi
done
exit $failed
