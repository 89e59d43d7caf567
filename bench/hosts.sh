#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: hosts.sh [--hosts N] [--mbit RATE] [--sent FILE] COMMAND [ARGUMENT...]
# Makes N hosts (2) on this machine and runs COMMAND on the first of them. A host is a network
# namespace with a name (host-0, host-1, ...), an address, its own CPU as long as there are enough,
# and one link, net0, to a switch that joins all hosts. No link leads anywhere else, so no packet
# leaves the machine. With --mbit each host sends at most RATE million bits per second, and the switch
# sends at most as much to it. --sent writes to FILE, one line per host, the bytes that its interface
# has sent when COMMAND has ended. `hosts_agent.sh HOST COMMAND` runs a command on another host, as ssh would;
# `hosts_mpirun.sh` starts the ranks of an MPI on all of them, `hosts_each.sh` any program.
#
# Everything is in new namespaces, also of mounts and processes: with the last process all of it
# goes, even after kill -9 of this script; no name and no process is left. Exit code 77, with the
# reason: namespaces cannot be made here.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin # of ip and tc, which a user's path may lack

# 198.18.0.0/15 is set aside for benchmarks of networks.
network=198.18.7

skip() {
    echo "skipped: $*"
    exit 77
}

# Checks that everything needed exists, by making and dropping it. Without root: as root of a user
# namespace, if that is allowed.
find_unshare() {
    local command
    for command in ip tc unshare taskset; do
        command -v "$command" >/dev/null || skip "no command $command (Debian: iproute2, util-linux)"
    done
    [ -e /etc/hosts ] || skip "no file /etc/hosts, which hosts replace by their own"
    unshare=(unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc)
    [ "$(id -u)" -eq 0 ] || unshare+=(--map-root-user)
    # A namespace with a name, and the ends of a veth link in it and outside it.
    # shellcheck disable=SC2016
    "${unshare[@]}" sh -c 'mount -t tmpfs none /run && ip netns add probe &&
        ip link add name a type veth peer name b netns probe &&
        ip link add name c type bridge' \
        >/dev/null 2>&1 || skip "this system does not allow network namespaces, veth or bridge"
}

# limit RUN... DEVICE: the token bucket holds the bytes that the line sends in 2 ms, and at least one
# packet of the largest size that TCP passes down.
limit() {
    local burst=$((mbit * 250))
    [ "$burst" -ge 131072 ] || burst=131072
    "${@:1:$#-1}" tc qdisc add dev "${!#}" root tbf rate "${mbit}mbit" burst "$burst" latency 50ms
}

# Joins the hosts; the namespace we are in is the switch.
build() {
    local i
    mount -t tmpfs none /run
    # Open MPI names its files by host and process, which other hosts of this machine have too.
    mount -t tmpfs none /dev/shm
    folder=/run/tally-hosts
    mkdir "$folder"
    echo "127.0.0.1 localhost" >"$folder/hosts"
    ip link set lo up
    ip link add name switch type bridge
    ip link set switch up
    for ((i = 0; i < n_hosts; i++)); do
        echo "$network.$((i + 1)) host-$i" >>"$folder/hosts"
        ip netns add "host-$i"
        ip link add name net0 netns "host-$i" type veth peer name "port-$i"
        ip link set "port-$i" master switch up
        ip -n "host-$i" link set lo up
        ip -n "host-$i" address add "$network.$((i + 1))/24" dev net0
        ip -n "host-$i" link set net0 up
        if [ "$mbit" -gt 0 ]; then
            limit ip netns exec "host-$i" net0
            limit env "port-$i"
        fi
    done
    mount --bind "$folder/hosts" /etc/hosts
}

n_hosts=2 mbit=0 sent=/dev/null
while [[ ${1-} == --* ]]; do
    case $1 in
    --hosts) n_hosts=$2 ;;
    --mbit) mbit=$2 ;;
    --sent) sent=$2 ;;
    *)
        echo "hosts.sh: unknown option '$1'; accepted: --hosts N, --mbit RATE, --sent FILE" >&2
        exit 2
        ;;
    esac
    shift 2
done
if [ $# -eq 0 ]; then
    echo "usage: hosts.sh [--hosts N] [--mbit RATE] [--sent FILE] COMMAND [ARGUMENT...]" >&2
    exit 2
fi

if [ "${TALLY_HOSTS_STAGE-}" != inside ]; then
    find_unshare
    TALLY_HOSTS_STAGE=inside exec "${unshare[@]}" "$0" --hosts "$n_hosts" --mbit "$mbit" \
        --sent "$sent" "$@"
fi
unset TALLY_HOSTS_STAGE
here=$(cd "$(dirname "$0")" && pwd)
build
export TALLY_HOSTS=$n_hosts
code=0
"$here/hosts_agent.sh" host-0 "$(printf '%q ' "$@")" || code=$?
for ((i = 0; i < n_hosts; i++)); do
    ip netns exec "host-$i" cat /sys/class/net/net0/statistics/tx_bytes
done >"$sent"
exit "$code"
