# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034 # for the tests
# Functions shared by the tests of `make bench`. Sourced with the tally command; $pages is an empty folder.
# shellcheck source=tests/tool/command_support.sh
. "$(dirname "$0")/../tool/command_support.sh" "$1"
root=$(cd "$(dirname "$0")/../.." && pwd)
run_all=(python3 -B "$root/bench/run_all.py")
pages=$work/docs
mkdir "$pages"

# holds FILE PATTERN: it has such a line.
holds() {
    grep -qE -- "$2" "$1" || complain "$(basename "$1") has no /$2/: $(cat "$1")"
}
