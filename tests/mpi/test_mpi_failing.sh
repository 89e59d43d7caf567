#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_mpi_failing.sh openmpi|mpich FOLDER OBJECT PROGRAM CALLS
# Every entry of the table of MPI's calls (mpi_api.h) fails in turn, on one of two ranks: its first
# CALLS calls. Both ranks end in time, with a status and a text, and none crashes. FOLDER has the
# libtally-*.so, OBJECT is failing_mpi, PROGRAM is mpi_failing. Exit code 77: there is no such MPI here.
set -euo pipefail

mpi=$1 folder=$2 object=$3 program=$4 n_calls=$5
most_s=60

if [ ! -e "$folder/libtally-$mpi.so" ]; then
    echo "skipped: tally was built without $mpi"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/wrong"
export TALLY_MPI=$object TALLY_TEST_MPI_REAL=$folder/libtally-$mpi.so TALLY_TEST_MPI_FAIL

launch() {
    case $mpi in
    openmpi) mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none "$@" ;;
    mpich) mpiexec.mpich "$@" ;;
    esac
}

# try ENTRY N RANK: false when that call never came.
try() {
    local out="$work/$1-$2-$3" got n wanted
    (
        export -f launch
        export mpi TALLY_TEST_MPI_FAIL="$*"
        [ "$1" != start ] || most_s=10
        timeout -k 5 "$most_s" bash -c 'launch "$@"' launch -n 2 "$program"
    ) </dev/null >"$out" 2>&1 && got=0 || got=$?
    n=$(grep -c '^[A-Z]\+: .' "$out" || true)
    wanted=2
    # If MPI cannot be started on one rank, the other waits in it until it is ended.
    if [ "$1" = start ] && grep -q 'failing_mpi: hit' "$out"; then
        wanted=1 got=1
    fi
    # 9: ended by the launcher, after the other one.
    if { [ $got -gt 1 ] && [ $got -ne 9 ]; } || [ "$n" -ne $wanted ] || grep -q '^INTERNAL:\|^UNKNOWN:' "$out"; then
        {
            echo "FAILED: $mpi, call $2 of $1 on rank $3: status $got, $n ranks have spoken:"
            cat "$out"
        } >>"$work/wrong"
    fi
    [ -z "${TALLY_TEST_SHOW:-}" ] || sed -n "s/^[A-Z]*: ./$1 $2 on rank $3: &/p" "$out"
    grep -q 'failing_mpi: hit' "$out"
}

try_entry() {
    local rank i
    for rank in 0 1; do
        for ((i = 1; i <= n_calls; i++)); do
            try "$1" "$i" "$rank" || break
        done
    done
}

# They wait for deadlines most of the time.
export TALLY_SHARE=0 # with messages
for entry in start duplicate duplicate_ours describe gather send receive sum test test_some cancel close; do
    try_entry "$entry" &
done
wait
cat "$work/wrong"
echo "$mpi: $(find "$work" -name '*-*' | wc -l) cases, $(grep -c ^FAILED "$work/wrong" || true) failed"
[ ! -s "$work/wrong" ]
