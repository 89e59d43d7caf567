# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests whose ranks run on hosts of network namespaces, started by an MPI.

# need_hosts MPI BENCH OBJECT: ends the test with exit code 77 and the reason if the launcher of MPI (openmpi or mpich),
# OBJECT (tally's part for that MPI) or hosts are missing. BENCH is the folder of hosts.sh. Ranks then use OBJECT.
need_hosts() {
    local launcher=mpirun.$1
    [ "$1" = openmpi ] || launcher=mpiexec.$1
    if ! command -v "$launcher" >/dev/null || [ ! -e "$3" ]; then
        echo "skipped: no $launcher, or tally was built without it"
        exit 77
    fi
    # Says itself why there can be no hosts.
    "$2/hosts.sh" true || exit
    export TALLY_MPI=$3
}
