#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: run_mpi.sh openmpi|mpich OBJECT WORLDS PROGRAM [ARGUMENT...]
# Runs a test program of ranks (support/ranks.h) once under that MPI's launcher for every number of
# ranks in WORLDS, such as "2 3". OBJECT is tally's part for that MPI. TALLY_TEST_SHARES has the numbers of share_as.sh:
# which ranks share memory. Exit code 77: there is no such MPI here.
set -euo pipefail

mpi=$1 object=$2 worlds=$3
shift 3
[ -z "${TALLY_TEST_SHARES-}" ] || set -- "$(dirname "$0")/share_as.sh" "$TALLY_TEST_SHARES" "$@"
launcher=mpirun.$mpi
[ "$mpi" = openmpi ] || launcher=mpiexec.$mpi
if ! command -v "$launcher" >/dev/null || [ ! -e "$object" ]; then
    echo "skipped: no $launcher, or tally was built without it"
    exit 77
fi
export TALLY_MPI=$object TALLY_TEST_MPI_WORLD TALLY_TEST_MPI_BOARD
TALLY_TEST_MPI_BOARD=$(mktemp)
trap 'rm -f "$TALLY_TEST_MPI_BOARD"' EXIT
for TALLY_TEST_MPI_WORLD in ${TALLY_TEST_MPI_WORLDS:-$worlds}; do
    echo "== $mpi, $TALLY_TEST_MPI_WORLD ranks"
    : >"$TALLY_TEST_MPI_BOARD"
    case $mpi in
    openmpi)
        # More ranks than cores, maybe as root: what a test machine needs.
        OMPI_MCA_rmaps_base_oversubscribe=1 "$launcher" --allow-run-as-root --oversubscribe \
            --bind-to none -n "$TALLY_TEST_MPI_WORLD" "$@"
        ;;
    *) "$launcher" -n "$TALLY_TEST_MPI_WORLD" "$@" ;;
    esac
done
