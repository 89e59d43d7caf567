#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_kills.sh TALLY GPT [KILLS]: 06_gpt saves while it trains, under `tally run --max-restarts`. Ranks are
# killed (kill -9) at random moments, KILLS times. In the end the parameters and the state have the same
# bits as after a run that nobody disturbed. SEED repeats the moments as far as the clock allows.
set -u
tally=$1 gpt=$2 kills=${3:-5}
work=$(mktemp -d -p /dev/shm 2>/dev/null) || work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
RANDOM=${SEED:-$$}
steps=$((kills * 60 + 60))
program=("$gpt" --layers 2 --width 16 --heads 2 --context 8 --batch 12 --hook int8 --zero 1 --every 3)

fail() {
    echo "FAILED: $*"
    cat "$work/err"
    exit 1
}

# Sets newest to the last checkpoint of the run with kills.
find_newest() {
    local all=("$work"/killed/save-*)
    newest=${all[-1]}
}

count_restarts() {
    grep -c 'restarting the job' "$work/err"
}

# kill_ranks JOB: sets n to the number of kills before the job ended. A kill that comes while the job ends after
# the kill before causes no restart, so a few more may be needed.
kill_ranks() {
    local before ranks
    n=0
    while [ $n -lt $((kills + 5)) ] && [ "$(count_restarts)" -lt "$kills" ] && kill -0 "$1" 2>/dev/null; do
        # A moment after a checkpoint that was not there at the last kill, so that the job gets on.
        find_newest
        before=$newest
        while kill -0 "$1" 2>/dev/null && [ "$newest" = "$before" ]; do
            sleep 0.01
            find_newest
        done
        sleep "0.0$((RANDOM % 10))"
        mapfile -t ranks < <(pgrep -P "$1" -f -- "$gpt")
        [ ${#ranks[@]} -gt 0 ] || continue
        kill -9 "${ranks[$((RANDOM % ${#ranks[@]}))]}" 2>/dev/null && n=$((n + 1))
    done
}

# On a busy machine the job may end before all kills: then it runs again, with twice as many steps.
for ((attempt = 0; attempt < 4; attempt++)); do
    rm -rf "$work/killed"
    : >"$work/err"
    "$tally" run -n 2 --max-restarts $((kills + 5)) "${program[@]}" --steps $steps --checkpoint "$work/killed" \
        >"$work/out" 2>"$work/err" &
    job=$!
    kill_ranks $job
    wait $job || fail "the run with kills: exit status $?"
    restarts=$(count_restarts)
    [ "$restarts" -ge "$kills" ] && break
    steps=$((2 * steps))
done
[ "$restarts" -ge "$kills" ] || fail "$n kills, but $restarts restarts instead of $kills"

# The run that nobody disturbs. Its last checkpoint is the reference.
"$tally" run -n 2 "${program[@]}" --steps $steps --checkpoint "$work/whole" >"$work/out" 2>"$work/err" ||
    fail "the run without kills: exit status $?"

whole=$(find "$work/whole" -name "save-*-step-$steps")
killed=$(find "$work/killed" -name "save-*-step-$steps")
for file in "$whole"/*.safetensors "$whole"/*.tally; do
    cmp "$file" "$killed/$(basename "$file")" || fail "$(basename "$file") differs after $n kills"
done
for directory in whole killed; do
    "$tally" checkpoint "$work/$directory" >"$work/err" 2>&1 || fail "the checkpoint is not whole"
done
echo "$n kills, $restarts restarts, $steps steps: the same bits"
