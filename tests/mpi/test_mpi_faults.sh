#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_mpi_faults.sh openmpi|mpich FOLDER PROGRAM
# A rank is late, or ends alone: the others meet what they should, and end within seconds, in every
# way a process can end. FOLDER has the libtally-*.so; PROGRAM is mpi_faults for this MPI. Exit code
# 77: there is no such MPI here.
set -euo pipefail

mpi=$1 folder=$2 program=$3
note_end=$(dirname "$0")/note_end.sh
most_s=40 # for what takes five seconds on a machine that does nothing else

if [ ! -e "$folder/libtally-$mpi.so" ] || [ ! -e "$program" ]; then
    echo "skipped: tally was built without $mpi"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

launch() {
    case $mpi in
    openmpi) mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none "$@" ;;
    mpich) mpiexec.mpich "$@" ;;
    esac
}

# check STATUS CASE WAY [own]: every rank but the late one ends in time, with that status; the launcher
# may end the job as soon as the first of them has.
check() {
    local status=$1 ended=$work/$2-$3-${4-} rank got seconds n=0
    shift
    : >"$ended"
    (
        export -f launch
        export mpi
        timeout -k 5 90 bash -c 'launch "$@"' launch -n 3 "$note_end" "$ended" "$program" "$@"
    ) </dev/null >"$ended.out" 2>&1 && got=0 || got=$?
    if [ "$got" -eq 124 ]; then
        echo "$mpi, $*: the job does not end" >>"$work/wrong"
    fi
    while read -r rank got seconds; do
        [ "$rank" -ne 1 ] || continue
        n=$((n + 1))
        if { [ "$status" != any ] && [ "$got" -ne "$status" ]; } || [ "$seconds" -gt $most_s ]; then
            echo "$mpi, $*: rank $rank ended with $got after $seconds s" >>"$work/wrong"
        fi
    done <"$ended"
    if [ $n -eq 0 ]; then
        echo "$mpi, $*: no rank has ended by itself" >>"$work/wrong"
    fi
    if [ -s "$work/wrong" ]; then
        cat "$ended.out" >>"$work/wrong"
    fi
    echo "$mpi, $*: $(tr '\n' ';' <"$ended")"
}

# They sleep most of the time.
for late in group ddp part open hosts hosts-size; do
    check 7 $late return &
done
check 7 part exit &
check 7 part failed-close &
wait
check 7 part _exit &
check 7 part quick_exit &
check 134 part abort &
check any part return own &
check 7 hosts-abort return &
# Results that depend on the moment at which a rank ends.
for trial in 1 2 3; do
    check 7 hosts-exit return $trial &
done
wait
if [ -s "$work/wrong" ]; then
    cat "$work/wrong" >&2
    exit 1
fi
