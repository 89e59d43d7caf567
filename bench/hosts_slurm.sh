#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: hosts_slurm.sh COMMAND [ARGUMENT...]
# Starts Slurm on the hosts that hosts.sh has made, each a node with eight slots, and runs
# COMMAND, such as `srun -N 2 -n 4 --mpi=pmix ./train`, on the first of them. MPI uses TCP between
# hosts, as hosts_mpirun.sh lets it. Exit code 77, with the reason: Slurm is not installed here, or cannot start.
# Example: bench/hosts.sh bench/hosts_slurm.sh srun -N 2 -n 4 --mpi=pmi2 build/examples/03_ddp
set -euo pipefail

for command in munged slurmctld slurmd srun sinfo; do
    if ! command -v "$command" >/dev/null; then
        echo "skipped: no command $command (Debian: slurm-wlm, munge)"
        exit 77
    fi
done
if [ $# -eq 0 ] || [ -z "${TALLY_HOSTS-}" ]; then
    echo "usage: bench/hosts.sh bench/hosts_slurm.sh COMMAND [ARGUMENT...]" >&2
    exit 2
fi
# Without root, hosts are in a user namespace.
if [ "$(cat /proc/self/setgroups 2>/dev/null)" = deny ]; then
    echo "skipped: Slurm starts only as root: it drops supplementary groups, which a user namespace forbids"
    exit 77
fi
agent=$(cd "$(dirname "$0")" && pwd)/hosts_agent.sh
# A short path: it holds Unix sockets. Its parents must not be writable by others, which munged
# does not accept.
folder=/run/tally-slurm

write_config() {
    cat <<END
ClusterName=tally
SlurmctldHost=host-0
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SelectType=select/linear
ReturnToService=2
MailProg=/bin/true
SlurmdParameters=config_overrides
NodeName=host-[0-$((TALLY_HOSTS - 1))] CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
}

# start LOG COMMAND...: a daemon. hosts.sh ends it, with everything else on the hosts.
start() {
    "${@:2}" >"$folder/$1.log" 2>&1 </dev/null &
}

wait_for_nodes() {
    local deadline=$((SECONDS + 30))
    # sinfo takes seconds where slurmctld does not answer.
    while [ $SECONDS -lt $deadline ]; do
        if [ "$(sinfo --noheader --Node --states=idle --format=%N 2>/dev/null | wc -l)" -eq "$TALLY_HOSTS" ]; then
            return
        fi
        sleep 0.1
    done
    tail -n 20 "$folder"/*.log >&2
    echo "hosts_slurm.sh: Slurm does not have all $TALLY_HOSTS nodes after 30 s" >&2
    return 1
}

mkdir -m 755 "$folder"
mkdir "$folder/state" "$folder/pmix"
(umask 077 && head -c 64 /dev/urandom >"$folder/munge.key")
write_config >"$folder/slurm.conf"
# The namespaces have no cgroup files to detect a version from. Nothing here uses cgroups.
echo CgroupPlugin=cgroup/v1 >"$folder/cgroup.conf"
# Nodes use one name for the folder of a step's PMIx clients; each host sees another folder there.
echo PMIxCliTmpDirBase="$folder/pmix" >"$folder/mpi.conf"
export SLURM_CONF=$folder/slurm.conf
start munged munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --seed-file="$folder/munge.seed" --log-file="$folder/munge.log"
start slurmctld slurmctld -D
for ((i = 0; i < TALLY_HOSTS; i++)); do
    mkdir "$folder/spool-host-$i" "$folder/pmix-$i"
    start "slurmd-$i" "$agent" "host-$i" \
        "mount --bind $folder/pmix-$i $folder/pmix && exec slurmd -D -N host-$i"
done
wait_for_nodes
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=net0
# These hosts share memory, unlike real ones: between them UCX must not use it.
[ "$TALLY_HOSTS" -eq 1 ] || export UCX_TLS=tcp,self UCX_NET_DEVICES=net0
"$@"
