#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/setup says what it accepts, and finds nothing to do where the tests can run at all.
set -euo pipefail

setup=$1

if output=$("$setup" --frobnicate 2>&1); then
    echo "setup_options: an unknown option is accepted" >&2
    exit 1
fi
if [ "$(wc -l <<<"$output")" -ne 1 ] || [[ $output != *--frobnicate*--lint*--ci* ]]; then
    echo "setup_options: one line with the option and the accepted ones wanted, got: $output" >&2
    exit 1
fi
"$setup" --help | grep -q -- --ci
output=$("$setup")
if [ -n "$output" ]; then
    echo "setup_options: nothing is missing, yet setup says: $output" >&2
    exit 1
fi
