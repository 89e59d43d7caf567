#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A user's program, the one of the README, built with what pkg-config says: shared and static.
set -euo pipefail

cc=$1 scratch=$2 version=$3

export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$scratch/prefix" -name tally.pc)")
work=$scratch/user_of_pkgconfig
mkdir -p "$work"

# Runs a program and looks at what it says.
finds_line() {
    local said
    said=$("$@")
    if [[ $said != "rank 0 of 1: y = 2.000 x + 1.000" ]]; then
        echo "user_of_pkgconfig: '$*' says '$said'" >&2
        exit 1
    fi
}

if [ "$(pkg-config --modversion tally)" != "$version" ]; then
    echo "user_of_pkgconfig: tally.pc has another version than $version" >&2
    exit 1
fi
# The flags are words to be split, as they are on a user's command line.
read -ra shared_flags <<<"$(pkg-config --cflags --libs tally)"
read -ra static_flags <<<"$(pkg-config --static --cflags --libs tally)"
"$cc" -o "$work/shared" "$scratch/readme_program.c" "${shared_flags[@]}"
"$cc" -static -o "$work/static" "$scratch/readme_program.c" "${static_flags[@]}"
finds_line env LD_LIBRARY_PATH="$(pkg-config --variable=libdir tally)" "$work/shared"
finds_line "$work/static"
