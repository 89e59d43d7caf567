#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: share_as.sh NUMBERS PROGRAM [ARGUMENT...]
# Started by MPI's launcher as a rank. Gives each rank the TALLY_SHARE of its place in NUMBERS, which repeat: with "1 1 2"
# ranks share memory as on machines with different numbers of ranks, with "1 2" as if the launcher had dealt them out.
set -euo pipefail

read -ra numbers <<<"$1"
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:?started by no launcher of MPI}}
export TALLY_SHARE=${numbers[rank % ${#numbers[@]}]}
exec "${@:2}"
