#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: soak.sh BUILD [CAMPAIGN...]
# Runs for long what the tests run for seconds: calls (random programs), kills (fault trials), blobs
# and texts (fuzzers of saved states and texts), failing (failing calls of the system and of MPI),
# checkpoints (saves that fail or are killed at every call, and kills of a training program), worlds
# (64 and 128 ranks of every kind open a world, take steps with every hook and close it), stragglers (100
# trials, or SOAK_TRIALS, of each way to be late; the machine must have nothing else to do), traces (many
# steps are traced, and neither memory nor file grows). Each of the others
# runs for SOAK_SECONDS (60), or SOAK_TRIALS programs and trials; SOAK_SEED (from the clock) is the first
# seed of the random ones. A failure prints the command that repeats it. BUILD may have sanitizers.
set -uo pipefail

build=$(realpath "$1")
shift
here=$(dirname "$(realpath "$0")")
seconds=${SOAK_SECONDS:-60}
trials=${SOAK_TRIALS:-}
seed=${SOAK_SEED:-$(($(date +%s) * 1000))}
campaigns=("$@")
[ $# -gt 0 ] || campaigns=(calls kills blobs texts failing checkpoints worlds stragglers traces)
work=$(mktemp -d)
declare -a summary=()
failed=0

# run NAME COMMAND...: one part of a campaign; its output goes here too.
run() {
    local name=$1 start=$SECONDS result=passed log
    shift
    log="$work/${name// /-}"
    echo "==== $name: $*"
    if ! (cd "$work" && "$@") 2>&1 | tee "$log"; then
        result="FAILED, see $log"
        failed=1
    fi
    summary+=("$(printf '%-28s %5d s  %s: %s' "$name" $((SECONDS - start)) "$result" "$(tail -1 "$log")")")
}

calls() {
    if [ -n "$trials" ]; then
        run "calls" "$build/tests/api_fuzz" --first "$seed" --programs "$trials"
    else
        run "calls" "$build/tests/api_fuzz" --first "$seed" --programs 0 --seconds "$seconds"
    fi
}

kills() {
    local n=${trials:-100} first=$seed end=$((SECONDS + seconds))
    while :; do
        run "kills from seed $first" "$build/tests/test_fault_trials" --seed "$first" --trials "$n"
        first=$((first + 1))
        if [ -n "$trials" ] || [ "$SECONDS" -ge "$end" ] || [ "$failed" -ne 0 ]; then
            break
        fi
    done
}

# fuzzers NAME...: each for its share of the time. They take no seed: the longer, the more inputs.
fuzzers() {
    local name
    for name in "$@"; do
        TALLY_FUZZ_SECONDS=$((seconds / $# + 1)) \
            run "fuzzer $name" "$build/tests/fuzz_$name" "$here/fuzz/corpus/$name"
    done
}

blobs() {
    fuzzers state_blob optimizer_blob averager_blob manifest
}

texts() {
    fuzzers hook_text optimizer_text
}

checkpoints() {
    run "torn checkpoints" "$build/tests/test_checkpoint_torn" 4
    run "kills of 06_gpt" "$here/tool/test_kills.sh" "$build/tally" "$build/examples/06_gpt" \
        "${trials:-$((seconds / 3 + 1))}"
}

worlds() {
    run "worlds" python3 -B "$here/../bench/world.py" --tally "$build/tally" --ranks 64,128
}

stragglers() {
    local n=${trials:-100} mpi
    run "stragglers" "$here/tool/test_stragglers.sh" "$build/tally" "$build/tests/run_late" "$n"
    for mpi in openmpi mpich; do
        if [ -e "$build/src/libtally-$mpi.so" ]; then
            run "stragglers on hosts, $mpi" "$here/mpi/test_mpi_stragglers.sh" "$mpi" "$here/.." \
                "$build/src/libtally-$mpi.so" "$build/tests/run_late" "$n"
        fi
    done
}

traces() {
    TALLY_TEST_STEPS=1000000 run "traced steps" "$build/tests/test_ddp_trace"
}

failing() {
    local mpi
    run "failing calls" "$build/tests/test_failing_open" --calls 0
    for mpi in openmpi mpich; do
        if [ -e "$build/src/libtally-$mpi.so" ]; then
            run "failing $mpi" "$here/mpi/test_mpi_failing.sh" "$mpi" "$build/src" \
                "$build/tests/libfailing_mpi.so" "$build/tests/mpi_failing" 4
        fi
    done
}

for campaign in "${campaigns[@]}"; do
    case $campaign in
    calls) calls ;;
    stragglers) stragglers ;;
    traces) traces ;;
    kills) kills ;;
    blobs) blobs ;;
    texts) texts ;;
    failing) failing ;;
    checkpoints) checkpoints ;;
    worlds) worlds ;;
    *)
        echo "soak: no campaign is called $campaign: there are calls, kills, blobs, texts, failing, checkpoints, worlds, stragglers, traces" >&2
        exit 2
        ;;
    esac
done
echo "==== soak: seed $seed"
printf '%s\n' "${summary[@]}"
[ $failed -ne 0 ] || rm -r "$work"
exit $failed
