#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into SCRATCH/prefix, having moved the tree once: it must not remember where it was first.
# Puts the README's program beside it, for the tests that use the installation.
set -euo pipefail

build=$1 scratch=$2 source=$3 version=$4

rm -rf "$scratch"
cmake --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/prefix"

# shellcheck disable=SC2016 # the backquotes are the README's
sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '1d; /^```$/,$d' >"$scratch/readme_program.c"
if ! diff -u <(sed '/^\/\*.*\*\/$/d' "$source/examples/line.c") "$scratch/readme_program.c"; then
    echo "installation: the program in README.md is not examples/line.c" >&2
    exit 1
fi

said=$("$scratch/prefix/bin/tally" version)
if [ "$said" != "tally $version" ]; then
    echo "installation: the installed command says '$said', wanted 'tally $version'" >&2
    exit 1
fi
for header in tally.h tally_extend.h; do
    if [ ! -s "$scratch/prefix/include/$header" ]; then
        echo "installation: no header $header" >&2
        exit 1
    fi
done
for page in man1/tally.1 man3/tally.3; do
    if [ ! -s "$scratch/prefix/share/man/$page" ]; then
        echo "installation: no manual page $page" >&2
        exit 1
    fi
done
# Every command has a page, which groff shows without a warning.
commands=$("$scratch/prefix/bin/tally" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
benches=$("$scratch/prefix/bin/tally" bench --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
for command in $commands $benches; do
    if ! grep -qE "^\.(Cm|It Cm|Pq Cm) (.*\| )?$command( |$)" "$scratch/prefix/share/man/man1/tally.1"; then
        echo "installation: tally.1 does not name $command" >&2
        exit 1
    fi
done
# shellcheck disable=SC2086 # words
for command in $commands $(printf 'bench-%s ' $benches); do
    page=$scratch/prefix/share/man/man1/tally-$command.1
    if [ ! -s "$page" ]; then
        echo "installation: no manual page tally-$command.1" >&2
        exit 1
    fi
    if command -v groff >/dev/null && [ -n "$(groff -mandoc -Tutf8 -ww -z "$page" 2>&1)" ]; then
        echo "installation: groff warns about tally-$command.1: $(groff -mandoc -Tutf8 -ww -z "$page" 2>&1)" >&2
        exit 1
    fi
done
if grep -rIl "$scratch/first" "$scratch/prefix"; then
    echo "installation: these files remember the first prefix" >&2
    exit 1
fi
