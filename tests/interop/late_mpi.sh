#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: late_mpi.sh SOURCE BUILD
# A program that was not there when the build was configured is found by the next build, one that is
# gone is no longer used, and a build without a change does not configure again; the build of tally
# looks for both MPIs in this way.
set -euo pipefail

source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/programs" "$work/project"
export PATH=$work/programs:$PATH
cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(late LANGUAGES NONE)
include($source/cmake/late_program.cmake)
tally_find_late_program(WRAPPER tally-late-wrapper)
message(STATUS "configured")
add_custom_target(show ALL COMMAND \${CMAKE_COMMAND} -E echo "wrapper: \${WRAPPER}")
END

# builds TEXT CONFIGURED: prints this, and configures again or not.
builds() {
    local out
    out=$(cmake --build "$work/build")
    if ! grep -qF "wrapper: $1" <<<"$out" || [ "$(grep -c 'configured' <<<"$out")" -ne "$2" ]; then
        printf 'FAILED: expected "wrapper: %s" and %d configurations:\n%s\n' "$1" "$2" "$out" >&2
        exit 1
    fi
}

cmake -G Ninja -S "$work/project" -B "$work/build" >/dev/null
builds WRAPPER-NOTFOUND 0
printf '#!/bin/sh\n' >"$work/programs/tally-late-wrapper"
chmod +x "$work/programs/tally-late-wrapper"
builds "$work/programs/tally-late-wrapper" 1
builds "$work/programs/tally-late-wrapper" 0
rm "$work/programs/tally-late-wrapper"
builds WRAPPER-NOTFOUND 1
builds WRAPPER-NOTFOUND 0

for mpi in openmpi mpich; do
    if ! grep -q "/usr/bin/mpicc.$mpi\"" "$build/CMakeFiles/VerifyGlobs.cmake"; then
        echo "FAILED: a build of tally does not look for mpicc.$mpi" >&2
        exit 1
    fi
done
echo "late_mpi: all good"
