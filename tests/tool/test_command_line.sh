#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Good and bad command lines of `tally`: the exit code, and one clear line for each mistake.
set -u
# shellcheck source=tests/tool/command_support.sh
source "$(dirname "$0")/command_support.sh"

accepts '^tally [0-9]+\.[0-9]+\.[0-9]+$' "$tally" version
accepts '^tally [0-9]+\.[0-9]+\.[0-9]+$' "$tally" --version
accepts '^\{"version": "[0-9]+\.[0-9]+\.[0-9]+"\}$' "$tally" version --json
accepts 'usage: tally COMMAND' "$tally" --help

# commands COMMAND...: those that its help lists.
commands() {
    "$@" --help | sed -n 's/^  \([a-z]\{1,\}\) .*/\1/p'
}

# Every help text has an example of its command; all commands have --json, except run, which prints
# the output of the program, and those that write a file.
accepts '^Example: tally ' "$tally" --help
for command in $(commands "$tally"); do
    accepts "^Example: (TALLY_ISA=ref )?tally $command" "$tally" "$command" --help
    case $command in
    bench | run) ;;
    checkpoint) rejects 'expected a directory' "$tally" checkpoint --json ;;
    plan) rejects 'give --profile' "$tally" plan --json ;;
    top) accepts '^\{.*\}$' "$tally" top --once --json ;;
    trace | report) rejects 'expected trace files' "$tally" "$command" -o out ;;
    *) accepts '^\{.*\}$' "$tally" "$command" --json ;;
    esac
done
benches=$(commands "$tally" bench)
[ "$(wc -w <<<"$benches")" -ge 5 ] || complain "too few benches in the help: $benches"
for bench in $benches; do
    accepts "^Example: tally bench $bench .*--json" "$tally" bench "$bench" --help
done
accepts '^TALLY_ISA=ref$' env TALLY_ISA=ref "$tally" env
accepts '"name": "TALLY_ISA".*"value": null' env -u TALLY_ISA "$tally" env --json
accepts '"kernel": "sum_f32", "isa": "ref".*"memcpy_ratio": [0-9.]+' \
    "$tally" bench num --json --bytes=64Ki --kernel sum_f32

rejects "unknown command 'fly'; accepted: .*bench.* env" "$tally" fly
rejects "unknown command 'fly'; accepted: .*num" "$tally" bench fly
rejects "unknown option '--fast'; accepted: .*--json" "$tally" bench num --fast
rejects "unknown option 'x'; accepted: .*--json" "$tally" env x
rejects "version: unknown option 'x'; accepted: --json" "$tally" version x
rejects "unknown kernel 'sum_f99'; accepted: .*sum_f32" "$tally" bench num --kernel sum_f99
rejects "--bytes needs a value" "$tally" bench num --bytes
rejects "--bytes 3Q is not a size" "$tally" bench num --bytes 3Q
rejects "--bytes 0 is not a size" "$tally" bench num --bytes 0
rejects "--bytes -1 is not a size" "$tally" bench num --bytes=-1
rejects "--bytes 99999999999Gi is not a size" "$tally" bench num --bytes 99999999999Gi
rejects "--json takes no value" "$tally" env --json=yes
rejects 'TALLY_ISA=mmx is not accepted: use auto\|ref\|avx2\|avx512\|neon' \
    env TALLY_ISA=mmx "$tally" bench num --bytes 4Ki
rejects 'TALLY_ISA=mmx is not accepted' env TALLY_ISA=mmx "$tally" env
rejects 'TALLY_LOG=loud is not accepted: use none\|error\|warn\|info\|debug' \
    env TALLY_LOG=loud "$tally" env

# Of x86's and ARM's instruction sets this machine always lacks one.
lacking=neon
[ "$(uname -m)" = aarch64 ] && lacking=avx2
rejects "TALLY_ISA=$lacking: this CPU has no $lacking; use auto\|ref" \
    env TALLY_ISA=$lacking "$tally" env

if "$tally" env >/dev/full 2>/dev/null; then
    complain "a full disk went unnoticed"
fi
"$tally" >/dev/null 2>&1
[ $? -eq 2 ] || complain "no command at all did not exit with 2"

[ $failures -eq 0 ] && echo "all command lines behaved"
exit $((failures > 0))
