# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034 # the variables are for the tests that read this file
# Functions shared by the tests of `tally run`. Sourced with the arguments: the tally command, the program of
# a real group, the terminal, whether there is hwloc, and a program that trains. All waits are bounded; no test depends on
# how long something takes.
set -u
tally=$1
reduce=$2
terminal=$3
has_hwloc=$4
line=$5
failures=0
work=$(mktemp -d)
# Every process of these tests has this in its environment, and so have its children.
mark=TALLY_TEST_MARK=$$-$RANDOM
trap 'rm -rf "$work"' EXIT

complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# run ARGUMENT...: `tally run` with them; sets rc, and leaves $work/out and $work/err.
run() {
    what="tally run $*"
    env "$mark" timeout -k 5 60 "$tally" run "$@" >"$work/out" 2>"$work/err"
    rc=$?
}

# start ARGUMENT...: the same in the background; sets launcher.
start() {
    what="tally run $*"
    : >"$work/out"
    env "$mark" "$tally" run "$@" >"$work/out" 2>"$work/err" </dev/null &
    launcher=$!
}

# Waits for the launcher started last; sets rc.
finish() {
    if ! wait_until launcher_is_gone; then
        complain "'$what' does not end"
        kill -9 "$launcher"
    fi
    wait "$launcher" 2>/dev/null # bash would tell of a killed one
    rc=$?
}

launcher_is_gone() {
    case $(cut -d ' ' -f 3 "/proc/$launcher/stat" 2>/dev/null) in
    '' | Z) return 0 ;;
    *) return 1 ;;
    esac
}

# wait_until COMMAND...: until it succeeds; fails after a minute.
wait_until() {
    local i
    for ((i = 0; i < 600; i++)); do
        if "$@"; then
            return 0
        fi
        sleep 0.1
    done
    return 1
}

# has_lines FILE PATTERN N: exactly N lines of the file match.
has_lines() {
    [ "$(grep -cE -- "$2" "$work/$1")" -eq "$3" ]
}

# all_are STATE PID...: the processes are all in this state, a letter of /proc.
all_are() {
    local state=$1 pid
    shift
    for pid; do
        [ "$(sed 's/.*) //' "/proc/$pid/stat" | cut -c 1)" = "$state" ] || return 1
    done
}

expect_rc() {
    [ "$rc" -eq "$1" ] || complain "'$what' exited with $rc instead of $1: $(cat "$work/err")"
}

# expect FILE PATTERN N
expect() {
    has_lines "$@" || complain "'$what': not $3 lines /$2/ in $1: $(head -c 2000 "$work/$1")"
}

marked_processes() {
    grep -lzsxF -- "$mark" /proc/[0-9]*/environ | cut -d / -f 3
}

nobody_is_left() {
    [ -z "$(marked_processes)" ]
}

expect_nobody() {
    wait_until nobody_is_left || complain "'$what' left processes: $(marked_processes | xargs ps -fp)"
}

# The end of a test.
conclude() {
    expect_nobody
    [ $failures -eq 0 ] && echo "all good"
    exit $((failures > 0))
}
