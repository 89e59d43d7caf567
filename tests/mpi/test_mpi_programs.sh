#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_mpi_programs.sh openmpi|mpich FOLDER PROGRAM EXAMPLE
# Programs that use MPI themselves, wrong launchers, and what is said where an MPI is missing.
# FOLDER has the libtally-*.so; PROGRAM is mpi_program for this MPI; EXAMPLE any example that opens a
# group. Exit code 77: there is no such MPI here.
set -euo pipefail

mpi=$1 folder=$2 program=$3 example=$4
other=mpich
[ "$mpi" = openmpi ] || other=openmpi

# The launcher of an MPI; more ranks than cores, maybe as root, is what a test machine needs.
launch() {
    case $1 in
    openmpi) mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none "${@:2}" ;;
    mpich) mpiexec.mpich "${@:2}" ;;
    esac
}

# expect TEXT COMMAND...: the command fails and says so.
expect() {
    local text=$1 output
    shift
    if output=$("$@" 2>&1); then
        echo "succeeded, but should not: $*" >&2
        exit 1
    fi
    if [[ $output != *"$text"* ]]; then
        printf 'no "%s" in:\n%s\n' "$text" "$output" >&2
        exit 1
    fi
}

if [ ! -e "$folder/libtally-$mpi.so" ] || [ ! -e "$program" ]; then
    echo "skipped: tally was built without $mpi"
    exit 77
fi

for ranks in 1 3; do
    for case in communicator one-thread tally-starts native; do
        echo "== $case, $ranks ranks"
        launch "$mpi" -n "$ranks" "$program" "$case"
    done
done
for case in early versions native-fails; do
    echo "== $case"
    launch "$mpi" -n 3 "$program" "$case"
done

# Open MPI's launcher can be told to leave the others running when a rank dies; MPICH's cannot.
echo "== late, killed"
leave_running=()
[ "$mpi" = mpich ] || leave_running=(--mca orte_enable_recovery 1)
# MPICH's launcher loses all output of some runs whose ranks end at the same time: then once more.
for _ in 1 2 3; do
    said=$(launch "$mpi" "${leave_running[@]}" -n 3 "$program" late || true)
    [ -z "$said" ] || break
done
[ "$(grep -c survived <<<"$said")" -eq 2 ] || { echo "not two survivors: $said" >&2 && exit 1; }
if [ "$mpi" = openmpi ]; then
    for case in killed killed-sender killed-sub; do
        [ "$(launch "$mpi" "${leave_running[@]}" -n 3 "$program" "$case" | grep -c survived)" -eq 2 ]
    done
fi
if timeout 60 bash -c "$(declare -f launch); launch $mpi -n 3 '$program' killed" >/dev/null 2>&1; then
    echo "a rank was killed, and the launcher says that all is well" >&2
    exit 1
fi

echo "== found by its launcher; alone without one"
launch "$mpi" -n 2 "$example"
TALLY_BACKEND=mpi TALLY_MPI=$mpi "$example"

echo "== the log says what the run is, once"
said=$(TALLY_LOG=info TALLY_HOOK=hosts launch "$mpi" -n 3 "$example" 2>&1 | grep 'tally: info:')
for text in '3 ranks on 1 machine, backend mpi over' 'each rank: kernels' 'ddp: .*, hook hosts$'; do
    [ "$(grep -c "^\[0\] tally: info: $text" <<<"$said")" -eq 1 ] || { echo "$said" >&2 && exit 1; }
done

echo "== errors"
# Of a rank that the others would wait for.
for wrong in TALLY_SHARE=abc TALLY_MESSAGE=1e6; do
    # shellcheck disable=SC2016
    expect "rank 1: $wrong is not accepted: use a whole number" launch "$mpi" -n 3 bash -c \
        '[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK-}}" != 1 ] || export "$0"; exec "$1"' $wrong "$example"
done
expect "UNSUPPORTED" env TALLY_BACKEND=mpi TALLY_MPI=/nowhere/libtally-mpi.so "$example"
expect "TALLY_MPI=mvapich" env TALLY_BACKEND=mpi TALLY_MPI=mvapich "$example"
if [ -e "$folder/libtally-$other.so" ]; then
    expect "the launcher is another MPI's" \
        launch "$mpi" -n 2 env TALLY_MPI="$folder/libtally-$other.so" "$example"
fi
