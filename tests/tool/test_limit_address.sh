#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_limit_address.sh TALLY RUN_ALLOC MPI_FOLDER
# Little address space (ulimit -v): groups open and find memory as long as it fits, and say which
# limit it is when it does not.
set -u
tally=$1 program=$2 mpi_folder=$3
failures=0

# run KIB COMMAND...: with so much address space; sets output and rc.
run() {
    local kib=$1
    shift
    what="ulimit -v $kib; $*"
    rc=0
    output=$( (ulimit -v "$kib" && exec timeout -k 5 100 "$@") 2>&1) || rc=$?
}

# expect N PATTERN: this number of lines match.
expect() {
    if [ "$(grep -c -- "$2" <<<"$output")" -ne "$1" ]; then
        printf "FAILED: '%s', status %d: not %d lines /%s/ in:\n%s\n" "$what" "$rc" "$1" "$2" "$output"
        failures=$((failures + 1))
    fi
}

# From what is hardly enough to start with to what batch systems allow.
for kib in 300000 4000000 52000000; do
    for world in 1 3 7; do
        run $kib "$tally" run -n $world env TALLY_BACKEND=shm "$program" 8 4
        expect $world ' 8 MiB: OK'
        expect $world ' 4 MiB: OK'
        expect $world ' 1 MiB: OK'
    done
done
# Memory goes, and comes back for the next; half of the limit for four ranks is too much.
run 400000 "$tally" run -n 4 "$program" 40 30 40 150 20
expect 8 ' 40 MiB: OK'
expect 4 ' 150 MiB: NOMEM: .*may use 409600000 bytes (ulimit -v)'
expect 4 ' 20 MiB: OK'
expect 4 ' 1 MiB: OK'
run 60000 "$tally" run -n 7 "$program" 16
expect 7 ' 16 MiB: NOMEM: .*may use 61440000 bytes (ulimit -v)'
expect 7 ' 1 MiB: OK'
for mpi in openmpi mpich; do
    launch=(mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none)
    [ $mpi = openmpi ] || launch=(mpiexec.mpich)
    [ -e "$mpi_folder/libtally-$mpi.so" ] || continue
    run 8000000 "${launch[@]}" -n 3 "$program" 16 9000 4
    expect 3 ' 16 MiB: OK'
    expect 3 ' 9000 MiB: NOMEM: .*ulimit -v'
    expect 3 ' 4 MiB: OK'
    expect 3 ' 1 MiB: OK'
done
[ $failures -eq 0 ] && echo "all good"
exit $((failures > 0))
