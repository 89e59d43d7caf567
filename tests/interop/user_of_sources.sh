#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: user_of_sources.sh COMPILER SCRATCH SOURCE PROJECT
# A user's project that has tally's sources: with add_subdirectory it is built and run, shared and static;
# with FetchContent from a local path it must give the same commands to compile the library. Both install
# nothing of tally.
set -euo pipefail

cc=$1 scratch=$2 source=$3 project=$4
work=$scratch/user_of_sources
rm -rf "$work"

# configure NAME OPTION...
configure() {
    local name=$1
    shift
    cmake -S "$project" -B "$work/$name" -G Ninja -DCMAKE_C_COMPILER="$cc" -DTALLY_SOURCE="$source" \
        -DPROGRAM="$source/examples/line.c" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "$@" >"$work.log" 2>&1 || {
        cat "$work.log"
        exit 1
    }
    cmake --install "$work/$name" --prefix "$work/$name-installed" >"$work.log" 2>&1
    if [ -e "$work/$name-installed" ]; then
        echo "user_of_sources: $name installs $(find "$work/$name-installed" -type f)" >&2
        exit 1
    fi
}

# The compiler's command of each file of the library, without the name of the build.
commands() {
    sed -n 's/^ *"command": "\(.* \)-o .* -c \(.*src\/.*\.c\)",/\1\2/p' "$work/$1/compile_commands.json" |
        sed "s,$work/$1,BUILD,g; s,_deps/tally-build,tally,g" | sort
}

configure added
configure fetched -DFETCHED=ON
if [ "$(commands added | wc -l)" -lt 50 ] || ! diff <(commands added) <(commands fetched); then
    echo "user_of_sources: add_subdirectory and FetchContent compile the library differently" >&2
    exit 1
fi
cmake --build "$work/added" --target shared static >"$work.log" 2>&1 || {
    tail -20 "$work.log"
    exit 1
}
for program in shared static; do
    said=$("$work/added/$program")
    if [[ $said != "rank 0 of 1: y = 2.000 x + 1.000" ]]; then
        echo "user_of_sources: the $program program says '$said'" >&2
        exit 1
    fi
done
