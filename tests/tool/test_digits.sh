#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo, shortened and in full: every hook trains, on any number of ranks as well as on one; without
# an exchange ranks know their own digits only; compression compresses; the bar is for terminals only;
# mistakes get one clear line.
set -u
# shellcheck source=tests/tool/command_support.sh
source "$(dirname "$0")/command_support.sh"
digits=$2
terminal=$3
slow=$4 # of a build with sanitizers, in which arithmetic takes a hundred times as long

# Options of each run, its number of hooks, and what it must learn at least.
options=(--json --steps 60) n_hooks=7 accuracy=0.85 worlds="1 2 3"
if [ -n "$slow" ]; then
    options=(--json --steps 3 allreduce "powersgd:rank=4,start=1" noop) n_hooks=3 accuracy=0.1 worlds="1 3"
fi

number='[0-9.]+(e[-+][0-9]+)?'
line="^\{\"hook\": \"[a-z0-9_:=,()]+\", \"ranks\": [0-9]+, \"accuracy\": $number, \"loss\": $number, \
\"ranks_agree\": (true|false), \"step_ms\": $number, \"exposed_ms\": $number, \"bytes_per_step\": $number\}\$"
verdict="^\{\"favoured\": \"[a-z0-9_:=,()]+\", \"fewest_bytes\": \"[a-z0-9_:=,()]+\", \
\"below_gbit_per_s\": $number\}\$"

# check N: the lines of N ranks. The loss of the exact hook is that of one process on the full batch
# (the first line of all), except for the order of sums; the others' loss is not far from it, unless
# nothing travels: then ranks have learned their own digits, at most half of all.
check() {
    awk -v ranks="$1" -v accuracy=$accuracy -v alone="$(grep '"hook": "allreduce"' "$work/json1")" '
function field(line, name) {
    sub(".*\"" name "\": \"?", "", line)
    sub(/"?[,}].*/, "", line)
    return line
}
function number(name) { return field($0, name) + 0 }
function bad(text) { print ranks " ranks: " text ": " $0; failed = 1 }
/"favoured"/ { next }
{
    hook = field($0, "hook")
    off = number("loss") / field(alone, "loss") - 1
    off = off < 0 ? -off : off
    bytes = number("bytes_per_step")
    if (hook == "allreduce") plain = bytes
    if (number("ranks") != ranks) bad("not as many")
    apart = hook == "noop" && ranks > 1
    if (number("accuracy") < accuracy && !apart) bad("has learned too little")
    if (number("accuracy") > 0.5 && apart) bad("knows digits that it has not seen")
    if (off > (hook == "allreduce" ? 1e-4 : hook ~ /postlocal/ ? 1 : 0.1) && !apart) bad("loss is off by " off)
    if ((field($0, "ranks_agree") == "true") == apart) bad("agreement")
    if (hook != "allreduce" && hook != "auto" && plain > 0 && bytes >= plain) bad("saves nothing")
    # On one machine auto stays with the plain hook.
    if (hook == "auto" && (bytes != plain || off > 1e-4)) bad("does not stay with allreduce")
    if (bytes > 0 && (hook == "noop" || ranks == 1)) bad("sends something")
    if (bytes == 0 && hook != "noop" && ranks > 1) bad("sends nothing")
}
END { exit failed }' "$work/json$1" || complain "the lines of $1 ranks"
}

for ranks in $worlds; do
    "$tally" run -n "$ranks" "$digits" "${options[@]}" >"$work/json$ranks" 2>"$work/err" ||
        complain "$ranks ranks exited with $?"
    [ ! -s "$work/err" ] || complain "$ranks ranks wrote to stderr: $(cat "$work/err")"
    [ "$(grep -cE "$line" "$work/json$ranks")" -eq $n_hooks ] ||
        complain "$ranks ranks: not $n_hooks good lines"
    [ "$(grep -cE "$verdict" "$work/json$ranks")" -eq $((ranks > 1)) ] ||
        complain "$ranks ranks: not one verdict, or one where there is nothing to compare"
    [ "$(wc -l <"$work/json$ranks")" -eq $((n_hooks + (ranks > 1))) ] ||
        complain "$ranks ranks: more lines"
    check "$ranks"
done
[ $failures -eq 0 ] || tail "$work"/json*

# table N: the whole demo on N ranks, in which few steps have shown little. Every hook that exchanges is within two points of the exact one,
# and ranks that exchange nothing are at least twenty points below it.
table() {
    "$tally" run -n "$1" "$digits" --json >"$work/whole" || complain "the whole demo exited with $?"
    awk -F'"accuracy": ' -v n_hooks=$n_hooks '/"accuracy"/ {
        accuracy = $2 + 0
        n++
        if (/"hook": "allreduce"/) exact = accuracy
        if (/"hook": "noop"/) failed += accuracy > exact - 0.20
        else failed += exact - accuracy > 0.02 || accuracy - exact > 0.02
    } END { exit failed || n != n_hooks || exact < 0.95 }' "$work/whole" ||
        complain "$1 ranks: not the table that was promised: $(cat "$work/whole")"
}
[ -n "$slow" ] || table 2 # as make demo

# shows PATTERN COMMAND...: prints it, in at most 80 columns, and on stderr nothing but the progress.
shows() {
    local pattern=$1
    shift
    "$@" >"$work/out" 2>"$work/err" || complain "'$*' exited with $?: $(cat "$work/err")"
    grep -qE -- "$pattern" "$work/out" || complain "'$*' did not print /$pattern/: $(cat "$work/out")"
    ! grep -E '.{81}' "$work/out" || complain "'$*' printed more than 80 columns"
    ! grep -vE '^training with [0-9]+ hooks?: [0-9]+ of [0-9]+ steps$' "$work/err" || complain "'$*': stderr"
}

# With more ranks than digits, ranks share the images of a digit.
shows '^Advice: use allreduce' "$tally" run -n 11 "$digits" --steps 3 allreduce

# The table; hooks that the user chooses.
shows '^hook +accuracy +loss +ms/step +waiting ms +bytes/step$' "$digits" --steps 1 bf16
shows '^fp16 .*% +[0-9.]+ +[0-9.]+ +[0-9.]+ +0$' "$digits" --steps 1 fp16
shows '^Advice: use (fp16|int8) between ranks of this machine' "$tally" run -n 2 "$digits" --steps 1 fp16 int8
shows '^Advice: use none of these hooks' "$tally" run -n 2 "$digits" --steps 1 noop
shows '^Advice: use ' "$tally" run -n 2 "$digits" --steps 41
[ "$(grep -c . "$work/err")" -eq 3 ] || complain "not a line for each quarter: $(cat "$work/err")"
accepts '^Example: tally run ' "$digits" --help

# A bar on a terminal, wiped out at the end.
"$terminal" 0 "" "$digits" --steps 21 bf16 >"$work/shown"
grep -q 'training with 1 hook ##*\.* 20 of 21 steps' "$work/shown" || complain "no bar on a terminal: $(cat "$work/shown")"

rejects "'--fast' is not an option" "$digits" --fast
rejects "'--steps' is not an option, needs a value" "$digits" --steps
rejects 'steps 3x is not a number from 1 to' "$digits" --steps 3x
rejects 'period 0 is not a number from 1 to' "$digits" --period 0
rejects 'steps 0 is not a number from 1 to' "$digits" --steps 0
rejects 'nowhere.csv: No such file' "$digits" --data "$work/nowhere.csv"
printf '0,1,2,17,' >"$work/short.csv"
rejects 'short.csv:1: not an image' "$digits" --data "$work/short.csv"
"$digits" 'int9' 2>"$work/err"
[ $? -eq 1 ] || complain "an unknown hook did not exit with 1"
grep -q "ARG: .*int9" "$work/err" || complain "an unknown hook is not named: $(cat "$work/err")"

[ $failures -eq 0 ] && echo "the demo behaved"
exit $((failures > 0))
