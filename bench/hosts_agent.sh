#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: hosts_agent.sh [-OPTION...] HOST COMMAND [ARGUMENT...]
# Runs a command on one of the hosts that hosts.sh has made, as ssh would on another machine: the
# words of the command are joined and given to a shell. Launchers of MPI call it instead of ssh;
# options of ssh without a value are ignored.
set -euo pipefail

while [[ ${1-} == -* ]]; do
    shift
done
host=$1
shift
# Hosts share CPUs if there are more hosts than CPUs; with TALLY_HOSTS_PER_CPU=2, two of them do in any case.
mapfile -t cpus < <(taskset -cp 1 | sed 's/.*: //' | tr , '\n' |
    while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done)
cpu=${cpus[${host#host-} / ${TALLY_HOSTS_PER_CPU:-1} % ${#cpus[@]}]}
# shellcheck disable=SC2016
exec ip netns exec "$host" taskset -c "$cpu" unshare --uts sh -c \
    'hostname "$0" && exec bash -c "$1"' "$host" "$*"
