#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # launch and start run in the shells that check begins
# usage: test_mpi_launchers.sh openmpi|mpich FOLDER TALLY PROGRAM STATIC
# Every launcher with every backend, with this MPI and without any: all ranks in one world, or an
# error; never worlds of one that say nothing. FOLDER has the libtally-*.so; PROGRAM is run_reduce,
# which prints its rank, its world and a sum; STATIC is the same, linked statically, or "".
# Exit code 77: there is no such MPI here.
set -euo pipefail
# MPICH's mpiexec may die of SIGPIPE; then it says nothing (check).
trap '' PIPE

mpi=$1 folder=$2 tally=$3 program=$4 static=$5
other=mpich
[ "$mpi" = openmpi ] || other=openmpi
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT

# launch MPI COMMAND...: two processes by that MPI's launcher.
launch() {
    case $1 in
    openmpi) mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -n 2 "${@:2}" ;;
    mpich) mpiexec.mpich -n 2 "${@:2}" ;;
    esac
}

# start LAUNCHER COMMAND...: as many processes as that launcher starts here.
start() {
    local launcher=$1 one=0 two=0
    shift
    case $launcher in
    nothing) "$@" ;;
    tally) "$tally" run -n 2 "$@" ;;
    variables)
        RANK=1 WORLD_SIZE=2 MASTER_PORT=$$ "$@" &
        RANK=0 WORLD_SIZE=2 MASTER_PORT=$$ "$@" || one=$?
        wait $! || two=$?
        return $((one | two))
        ;;
    slurm) SLURM_STEP_NUM_TASKS=2 "$@" ;;
    *) launch "$launcher" "$@" ;;
    esac
}

# check LAUNCHER BACKEND OBJECT alone|both|TEXT: one world of one, one of two, or an error.
check() {
    local launcher=$1 backend=$2 object=$3 expected=$4 output rc text=$4 n=0
    for _ in 1 2 3 4 5; do
        rc=0
        output=$(TALLY_BACKEND=$backend TALLY_MPI=$object TALLY_OPEN_TIMEOUT=60 \
            timeout -k 5 120 bash -c "$(declare -f launch start); tally=$tally; start $launcher '$program'" 2>&1) ||
            rc=$?
        # MPICH's mpiexec may fail itself, and lose what ranks have printed, if they end at once.
        [[ $output == *HYDU_sock_write* ]] || break
    done
    case $expected in
    alone) text="rank 0 of 1: sum 1" n=1 ;;
    both) text="of 2: sum 3" n=2 ;;
    esac
    if [ "$(grep -c "of [0-9]*: sum" <<<"$output")" -ne "$n" ] || ! grep -qF -- "$text" <<<"$output" ||
        [ $((rc == 0)) -ne $((n > 0)) ]; then
        printf 'FAILED: launcher %s, backend %s, %s: status %d, expected %s:\n%s\n' \
            "$launcher" "$backend" "$object" "$rc" "$expected" "$output" | tee -a "$failed"
    fi
}

# The same, four at a time: a launcher whose processes fail takes seconds to end.
try() {
    while [ "$(jobs -rp | wc -l)" -ge 4 ]; do
        wait -n || true
    done
    check "$@" </dev/null &
}

if [ ! -e "$folder/libtally-$mpi.so" ]; then
    echo "skipped: tally was built without $mpi"
    exit 77
fi
object=$folder/libtally-$mpi.so
none=/nowhere/libtally-mpi.so
others="another MPI's"

# launcher, backend, with this MPI, without any MPI
while IFS='|' read -r launcher backend with without; do
    case $launcher in
    "$other") command -v "mpirun.$other" >/dev/null || continue ;;
    esac
    try "$launcher" "$backend" "$object" "$with"
    try "$launcher" "$backend" "$none" "$without"
done <<END
nothing|auto|alone|alone
nothing|self|alone|alone
nothing|shm|alone|alone
nothing|mpi|alone|UNSUPPORTED
tally|auto|both|both
tally|self|one rank, not 2|one rank, not 2
tally|shm|both|both
tally|mpi|TALLY_WORLD=2 says that there are 2 ranks|UNSUPPORTED
variables|auto|both|both
variables|self|one rank, not 2|one rank, not 2
variables|shm|both|both
variables|mpi|WORLD_SIZE=2 says that there are 2 ranks|UNSUPPORTED
slurm|auto|$others|UNSUPPORTED
slurm|self|SLURM_STEP_NUM_TASKS=2|SLURM_STEP_NUM_TASKS=2
slurm|shm|SLURM_STEP_NUM_TASKS=2|SLURM_STEP_NUM_TASKS=2
slurm|mpi|$others|UNSUPPORTED
$mpi|auto|both|UNSUPPORTED
$mpi|self|would be a world of one|would be a world of one
$mpi|shm|would be a world of one|would be a world of one
$mpi|mpi|both|UNSUPPORTED
$other|auto|$others|UNSUPPORTED
$other|self|would be a world of one|would be a world of one
$other|shm|would be a world of one|would be a world of one
$other|mpi|$others|UNSUPPORTED
END

if [ -n "$static" ]; then
    program=$static
    try "$mpi" auto "$object" "UNSUPPORTED: this program is linked statically"
    try tally auto "$object" both
else
    echo "not tried: a program that is linked statically, because there is no static C library"
fi
wait
[ -s "$failed" ] && exit 1
echo "all good"
