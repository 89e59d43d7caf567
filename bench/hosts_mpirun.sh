#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: hosts_mpirun.sh openmpi|mpich RANKS PROGRAM [ARGUMENT...]
# Starts RANKS ranks on every host that hosts.sh has made, from the first of them. Hosts are
# connected only by TCP, although they share one kernel; ranks on one host may share memory. Open MPI
# reads more parameters from its environment (OMPI_MCA_btl_tcp_links=2).
set -euo pipefail

mpi=$1 ranks=$2
shift 2
agent=$(cd "$(dirname "$0")" && pwd)/hosts_agent.sh
hosts=()
for ((i = 0; i < TALLY_HOSTS; i++)); do
    hosts+=("host-$i")
done
case $mpi in
openmpi)
    # The agent has bound it to the host's CPU; the launcher would bind it to another host's.
    exec mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none \
        --mca orte_tmpdir_base /run/tally-hosts \
        --mca plm rsh --mca plm_rsh_agent "$agent" --mca oob_tcp_if_include net0 \
        --mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_if_include net0 \
        --host "$(printf "%s:$ranks\n" "${hosts[@]}" | paste -sd ,)" \
        -n $((ranks * TALLY_HOSTS)) "$@"
    ;;
mpich)
    # These hosts share memory, unlike real ones: UCX must not use it.
    export UCX_TLS=tcp,self UCX_NET_DEVICES=net0
    # mpiexec may die of it if ranks end at once.
    trap '' PIPE
    exec mpiexec.mpich -launcher ssh -launcher-exec "$agent" -iface net0 \
        -hosts "$(printf "%s:$ranks\n" "${hosts[@]}" | paste -sd ,)" \
        -n $((ranks * TALLY_HOSTS)) "$@"
    ;;
*)
    echo "hosts_mpirun.sh: '$mpi' is none of openmpi, mpich" >&2
    exit 2
    ;;
esac
