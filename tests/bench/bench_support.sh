# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # line is the test's, the rest command_support's
# Functions shared by the tests of benches. Sourced with the tally command, the bench's name, and options that
# make it quick. A test sets line to what a JSON line looks like.
# shellcheck source=tests/tool/command_support.sh
. "$(dirname "$0")/../tool/command_support.sh" "$1"
bench_name=$2
shift 2
quick=("$@")
# shellcheck disable=SC2034 # for the tests: the smallest cases are enough
sanitized=${TALLY_TESTS_SANITIZED:-0}

# measures N OPTION...: exits 0 in silence with N good JSON lines, kept in $work/out.
measures() {
    local n=$1 rc
    shift
    "$tally" bench "$bench_name" --json "${quick[@]}" "$@" >"$work/out" 2>"$work/err"
    rc=$?
    [ $rc -eq 0 ] || complain "'$*' exited with $rc: $(cat "$work/err")"
    [ ! -s "$work/err" ] || complain "'$*' wrote to stderr: $(cat "$work/err")"
    [ "$(grep -cE -- "$line" "$work/out")" -eq "$n" ] ||
        complain "'$*' did not print $n good lines: $(cat "$work/out")"
    [ "$(wc -l <"$work/out")" -eq "$n" ] || complain "'$*' printed more than $n lines"
}

# prints PATTERN: the last measurement has such a line.
prints() {
    grep -qE -- "$1" "$work/out" || complain "no line has /$1/: $(cat "$work/out")"
}

# refuses PATTERN OPTION...: exits 2 with exactly one line on stderr that matches PATTERN.
refuses() {
    local pattern=$1
    shift
    rejects "$pattern" "$tally" bench "$bench_name" "$@"
}

# The end of a test.
finish() {
    [ "$failures" -eq 0 ] || exit 1
    echo "bench_$bench_name: all good"
}
