#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_mpi_stragglers.sh openmpi|mpich SOURCE OBJECT RUN_LATE TRIALS [CASE...]
# As tests/tool/test_stragglers.sh, with ranks on two or three hosts of their own: the link of one of them is
# slow (link), one computes longer (computes), or none is late (none). SOURCE is the source tree, OBJECT
# tally's part for that MPI. Exit code 77, with the reason: not here.
set -uo pipefail
# shellcheck source=tests/support/idle.sh
. "$(dirname "$0")/../support/idle.sh"
# shellcheck source=tests/support/hosts_support.sh
. "$(dirname "$0")/../support/hosts_support.sh"

mpi=$1 bench=$2/bench object=$3 program=$4 trials=$5
shift 5
cases=("$@")
[ $# -gt 0 ] || cases=(link computes none)
need_hosts "$mpi" "$bench" "$object"
need_idle_cpus
mbit=50
failed=0

# run CASE LATE STEPS: on hosts, of which one may have a slow link.
run() {
    local slow=true
    # shellcheck disable=SC2016
    [ "$1" != link ] || slow="$bench/hosts_agent.sh host-$2 tc qdisc add dev net0 root tbf \
        rate ${mbit}mbit burst 131072 latency 50ms"
    timeout 120 "$bench/hosts.sh" --hosts $world bash -c \
        "export PATH=\$PATH:/usr/sbin:/sbin; $slow && exec '$bench/hosts_mpirun.sh' $mpi 1 '$program' $1 $2 $3" \
        </dev/null 2>&1
}

for case in "${cases[@]}"; do
    # As in tests/tool/test_stragglers.sh.
    wrong=0 most_wrong=1
    # Three hosts on two CPUs are late in turn, so that none is on time; the slow link stands out all the same.
    world=3
    [ "$case" != none ] || most_wrong=0 world=$(($(nproc) < 3 ? 2 : 3))
    for ((trial = 0; trial < trials; trial++)); do
        late=$((trial % world))
        expected="" logs=0 steps=30
        [ "$case" = none ] || { expected="$late $case" logs=1 steps=12; }
        out=$(run "$case" "$late" "$steps")
        rc=$?
        named=$(grep -E '^[0-9]+ (computes|lane|link) [0-9]+$' <<<"$out" | cut -d' ' -f1,2)
        if [ $rc -ne 0 ] || [ "$named" != "$expected" ] || [ "$(grep -c '^logged' <<<"$out")" -ne $logs ]; then
            if is_spoiled; then
                trial=$((trial - 1))
                continue
            fi
            wrong=$((wrong + 1))
            echo "$mpi, $case, trial $trial, rank $late of $world is late: $out" >&2
        fi
    done
    echo "$mpi, $case: $((trials - wrong)) of $trials trials named the right rank and cause"
    [ "$wrong" -le "$most_wrong" ] || failed=1
done
exit $failed
