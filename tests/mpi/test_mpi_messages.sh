#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_mpi_messages.sh openmpi|mpich OBJECT PROGRAM
# The messages of an all-reduce, for 2, 3, 4, 7, 8 and 16 ranks. OBJECT is tally's part for that MPI,
# PROGRAM is mpi_messages. Exit code 77: there is no such MPI here.
set -euo pipefail

mpi=$1 object=$2 program=$3
if [ ! -e "$object" ] || [ ! -e "$program" ]; then
    echo "skipped: tally was built without $mpi"
    exit 77
fi
# Ranks that share memory send nothing.
export TALLY_MPI=$object TALLY_SHARE=0
failed=0
for ranks in 2 3 4 7 8 16; do
    echo "== $mpi, $ranks ranks"
    case $mpi in
    openmpi) mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -n $ranks "$program" ;;
    mpich) mpiexec.mpich -n $ranks "$program" ;;
    esac </dev/null || failed=1
done
exit $failed
