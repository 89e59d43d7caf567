#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A user's project that finds tally with find_package: shared and static.
set -euo pipefail

cc=$1 scratch=$2 version=$3 project=$4

work=$scratch/user_of_cmake
rm -rf "$work"
cmake -S "$project" -B "$work" -G Ninja -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$scratch/prefix" -DPROGRAM="$scratch/readme_program.c" \
    -DWANTED_VERSION="$version" >"$scratch/user_of_cmake.log" 2>&1 || {
    cat "$scratch/user_of_cmake.log"
    exit 1
}
cmake --build "$work"
for program in shared static; do
    said=$("$work/$program")
    if [[ $said != "rank 0 of 1: y = 2.000 x + 1.000" ]]; then
        echo "user_of_cmake: the $program program says '$said'" >&2
        exit 1
    fi
done
