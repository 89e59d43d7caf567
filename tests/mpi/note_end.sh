#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: note_end.sh FILE PROGRAM [ARGUMENT...]
# Runs one rank under MPI's launcher and appends "RANK STATUS SECONDS" to FILE when it has ended.
# Launchers end the other ranks when one ends badly: what they send does not keep the line from FILE.
trap '' TERM
SECONDS=0
"${@:2}" &
wait $!
status=$?
echo "${OMPI_COMM_WORLD_RANK:-$PMI_RANK} $status $SECONDS" >>"$1"
exit $status
