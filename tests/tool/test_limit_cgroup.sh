#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_limit_cgroup.sh TALLY RUN_ALLOC MPI_FOLDER
# In a memory cgroup of 256 MiB, group memory that does not fit is NOMEM on every rank, and no rank
# is killed. Makes a cgroup inside TALLY_TEST_CGROUP, the folder of a memory cgroup (version 1 or 2) in
# which this user may do so and which hands the memory controller on. Exit code 77: that is not set.
set -u
tally=$1 program=$2 mpi_folder=$3
failures=0

if [ -z "${TALLY_TEST_CGROUP:-}" ]; then
    echo "skipped: TALLY_TEST_CGROUP is not set to the folder of a memory cgroup to test in"
    exit 77
fi
group=$TALLY_TEST_CGROUP/tally-test-$$
if ! mkdir "$group"; then
    echo "skipped: no cgroup can be made in $TALLY_TEST_CGROUP"
    exit 77
fi
trap 'rmdir "$group"' EXIT
limit=memory.max
[ -e "$group/$limit" ] || limit=memory.limit_in_bytes
if ! echo $((256 << 20)) >"$group/$limit"; then
    echo "skipped: $group has no limit of memory"
    exit 77
fi
[ ! -e "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"

# inside COMMAND...: runs it in the cgroup.
inside() {
    # shellcheck disable=SC2016 # for the inner shell
    timeout -k 5 100 sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@" 2>&1
}

# check N COMMAND...: its N ranks get 400 MiB refused, then 16 MiB.
check() {
    local n=$1 output rc=0
    shift
    output=$(inside "$@" "$program" 400 16) || rc=$?
    if [ $rc -ne 0 ] || [ "$(grep -c '400 MiB: NOMEM: .*memory cgroup' <<<"$output")" -ne "$n" ] ||
        [ "$(grep -c ' 16 MiB: OK' <<<"$output")" -ne "$n" ]; then
        printf "FAILED: '%s' ended with %d:\n%s\n" "$*" "$rc" "$output"
        failures=$((failures + 1))
    fi
}

check 1 env
check 3 "$tally" run -n 3
# Each rank alone would have room; all together have not.
for mib in 90 110 130; do
    output=$(inside "$tally" run -n 3 "$program" $mib) || true
    if [ "$(grep -c "$mib MiB: NOMEM" <<<"$output")" -ne 3 ]; then
        printf 'FAILED: 3 ranks with %d MiB:\n%s\n' $mib "$output"
        failures=$((failures + 1))
    fi
done
if [ -e "$mpi_folder/libtally-mpich.so" ]; then
    check 2 mpiexec.mpich -n 2
fi
if [ -e "$mpi_folder/libtally-openmpi.so" ]; then
    check 2 mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -n 2
fi
[ $failures -eq 0 ] && echo "all good"
exit $((failures > 0))
