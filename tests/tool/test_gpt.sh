#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_gpt.sh TALLY GPT SANITIZER: the transformer of the examples. Any number of ranks comes to the loss
# of one; every option trains; a killed rank costs nothing but time, to the bit.
set -u
tally=$1 gpt=$2 sanitizer=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
small=(--layers 2 --width 16 --heads 2 --context 8 --batch 12 --steps 6 --every 3)

complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# run NAME RANKS ARGUMENT...: trains; the losses go to $work/NAME, the rest to the terminal.
run() {
    local name=$1 ranks=$2
    shift 2
    "$tally" run -n "$ranks" "${launch[@]}" "$gpt" "${small[@]}" "$@" >"$work/out" ||
        complain "$name: exit status $?"
    sed -n 's/^\(step [0-9]*: loss [0-9.]*\),.*/\1/p' "$work/out" >"$work/$name"
    [ -s "$work/$name" ] || complain "$name: no losses"
}

# near A B MOST: the last losses differ by at most so much, relatively.
near() {
    awk -v most="$3" '{ last[FILENAME] = $4 }
        END { for (f in last) { x[n++] = last[f] }
              d = x[0] - x[1]; exit !(n == 2 && (d < 0 ? -d : d) <= most * x[1]) }' \
        "$work/$1" "$work/$2" || complain "$1 and $2 differ: $(tail -qn 1 "$work/$1" "$work/$2" | tr '\n' ' ')"
}

launch=()
run one 1
run two 2
near one two 1e-4
run zero 2 --zero 1
cmp -s "$work/two" "$work/zero" || complain "sharding the optimizer changes the losses"
run mixed 2 --mixed bf16
near two mixed 2e-2
run local 2 --start 2 --group 0 --period 2
near two local 5e-2
if [ -z "$sanitizer" ]; then
    run three 3
    near one three 1e-4
    run clipped 2 --clip 0.5
    for hook in bf16 int8 powersgd:start=2 'bf16(quantize_per_channel)'; do
        run hook 2 --hook "$hook"
        near two hook 2e-2
    done
fi

# One rank is killed; the others are started again with it, and go on from the last checkpoint.
run whole 2 --hook int8 --zero 1
launch=(--max-restarts 1)
run broken 2 --hook int8 --zero 1 --checkpoint "$work/saved" --crash-at 5 2>"$work/err"
grep -q 'restarting the job' "$work/err" || complain "nothing was restarted"
# Steps after the last checkpoint that was complete are made again, with the same losses.
sort -u "$work/broken" | cmp -s "$work/whole" - || complain "the loss is another after a restart"

# Another number of ranks takes the checkpoint up.
launch=()
run fewer 1 --hook int8 --checkpoint "$work/saved" --steps 9
grep -q '^step 9' "$work/fewer" || complain "one rank did not go on from two"

# Mistakes.
"$gpt" --widht 3 2>"$work/err" && complain "--widht is accepted"
grep -q -- '--widht: no such option' "$work/err" || complain "--widht is not named"
"$gpt" --text "$work/nothing" 2>"$work/err" && complain "a text that is not there is accepted"
grep -q "nothing: cannot be read" "$work/err" || complain "the text is not named"
"$tally" run -n 2 "$gpt" --batch 7 2>"$work/err" && complain "--batch 7 is accepted for 2 ranks"
grep -q -- '--batch: must be a multiple' "$work/err" || complain "--batch is not named"

exit $((failures > 0))
