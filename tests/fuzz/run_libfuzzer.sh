#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_libfuzzer.sh FUZZER CORPUS: lets libFuzzer search for TALLY_FUZZ_SECONDS, or 2 seconds, from
# the inputs in CORPUS. New inputs go to a folder next to the fuzzer, from which the next run
# continues; an input that breaks something is kept there too.
set -euo pipefail

fuzzer=$1
corpus=$2
found=$fuzzer.found
mkdir -p "$found"
exec "$fuzzer" -max_total_time="${TALLY_FUZZ_SECONDS:-2}" -max_len=4096 -timeout=60 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$fuzzer." "$found" "$corpus"
