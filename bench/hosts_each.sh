#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: hosts_each.sh PROGRAM [ARGUMENT...]
# Starts PROGRAM once on every host that hosts.sh has made, for programs that need no MPI. RANK and
# WORLD_SIZE are in their environment, as torchrun sets them. Ends with the first that fails; the
# others end with the hosts.
set -euo pipefail

agent=$(cd "$(dirname "$0")" && pwd)/hosts_agent.sh
for ((i = 0; i < TALLY_HOSTS; i++)); do
    RANK=$i WORLD_SIZE=$TALLY_HOSTS "$agent" "host-$i" "$(printf '%q ' "$@")" &
done
for ((i = 0; i < TALLY_HOSTS; i++)); do
    wait -n
done
