# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034 # the variables are for the tests that read this file
# Functions shared by the tests of command lines. Sourced with one argument, the tally command.
set -u
tally=$1
failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# accepts PATTERN COMMAND...: exits 0, writes PATTERN to stdout and nothing to stderr.
accepts() {
    local pattern=$1 out err rc
    shift
    out=$("$@" 2>"$work/err")
    rc=$?
    err=$(cat "$work/err")
    [ $rc -eq 0 ] || complain "'$*' exited with $rc: $err"
    [ -z "$err" ] || complain "'$*' wrote to stderr: $err"
    grep -qE -- "$pattern" <<<"$out" || complain "'$*' did not print /$pattern/: $out"
}

# exits_with STATUS PATTERN COMMAND...: exits with STATUS and exactly one line on stderr that matches PATTERN.
exits_with() {
    local status=$1 pattern=$2 err rc
    shift 2
    err=$("$@" 2>&1 >/dev/null)
    rc=$?
    [ $rc -eq "$status" ] || complain "'$*' exited with $rc instead of $status"
    [ "$(wc -l <<<"$err")" -eq 1 ] || complain "'$*' wrote more than one line: $err"
    grep -qE -- "$pattern" <<<"$err" || complain "'$*' did not say /$pattern/: $err"
}
# need_hosts: sets mpi to an MPI that tally was built with; exit code 77 without one, or where hosts of
# network namespaces cannot be made.
need_hosts() {
    local name
    mpi=
    for name in openmpi mpich; do
        [ ! -e "$(dirname "$tally")/src/libtally-$name.so" ] || mpi=$name
    done
    if [ -z "$mpi" ]; then
        echo "skipped: tally was built without MPI"
        exit 77
    fi
    "$1/bench/hosts.sh" true || exit 77
}
# rejects PATTERN COMMAND...: a command line that is wrong. fails PATTERN COMMAND...: work that fails.
rejects() {
    exits_with 2 "$@"
}
fails() {
    exits_with 1 "$@"
}
