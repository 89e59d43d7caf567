#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally hooks`: all of them, one of them, as text and as JSON; and mistakes.
set -u
# shellcheck source=tests/tool/command_support.sh
source "$(dirname "$0")/command_support.sh"

accepts '^  hooks +list the hooks' "$tally" --help
accepts '^Example: tally hooks ' "$tally" hooks --help

# Every hook with one line on when to use it, a wrapper with its brackets, options below it.
accepts '^allreduce$' "$tally" hooks
accepts '^fp16\(HOOK\)$' "$tally" hooks
accepts '^    gradients as they are: ' "$tally" hooks allreduce
accepts '^    saturate: accepts 0\|1; default 0$' "$tally" hooks fp16
accepts '^        1: what is beyond fp16 ' "$tally" hooks fp16

# One alone is what stands in the list of all.
names=$("$tally" hooks --json | sed 's/^{"name": "\([a-z0-9_]*\)".*/\1/')
for name in allreduce fp16 noop; do
    grep -qx "$name" <<<"$names" || complain "no '$name' among: $names"
done
for name in $names; do
    "$tally" hooks "$name"
done >"$work/one-by-one"
"$tally" hooks | cmp -s - "$work/one-by-one" || complain "the hooks one by one are not the list"
for name in $names; do
    "$tally" hooks "$name" --json
done >"$work/one-by-one"
"$tally" hooks --json | cmp -s - "$work/one-by-one" ||
    complain "the hooks one by one are not the list, as JSON"

# One JSON object per line, also when the option stands before the name.
option='\{"name": "[^"]*", "accepts": "[^"]*", "default": "[^"]*", "help": "[^"]*"\}'
object="^\{\"name\": \"[a-z0-9_]+\", \"help\": \"[^\"]+\", \"wraps\": (true|false), \"options\": \
\[($option(, $option)*)?\]\}\$"
"$tally" hooks --json | grep -vE "$object" && complain "these lines are not as expected"
accepts '^\{"name": "noop", "help": "[^"]+", "wraps": false, "options": \[\]\}$' \
    "$tally" hooks --json noop
accepts '^\{"name": "fp16", .*"wraps": true, .*\{"name": "saturate", "accepts": "0\|1", ' \
    "$tally" hooks fp16 --json

rejects "tally hooks: unknown hook 'fp61'; accepted: allreduce .*fp16" "$tally" hooks fp61
rejects "tally hooks: unknown hook ''; accepted: allreduce" "$tally" hooks ""
rejects "tally hooks: unknown option 'noop'; accepted: --json" "$tally" hooks fp16 noop
rejects "tally hooks: unknown option '--fast'; accepted: --json" "$tally" hooks --fast
rejects "tally hooks: unknown option '--fast'; accepted: --json" "$tally" hooks noop --fast

[ $failures -eq 0 ] && echo "tally hooks behaved"
exit $((failures > 0))
