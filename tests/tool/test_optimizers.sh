#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `tally optimizers`: all of them, one of them, as text and as JSON; and mistakes. The test of
# `tally hooks` covers the code they share.
set -u
# shellcheck source=tests/tool/command_support.sh
source "$(dirname "$0")/command_support.sh"

accepts '^  optimizers +list the optimizers' "$tally" --help
accepts '^Example: tally optimizers ' "$tally" optimizers --help

expected="sgd adam adamw adagrad rmsprop adadelta adamax rprop"
names=$("$tally" optimizers --json | sed 's/^{"name": "\([a-z0-9_]*\)".*/\1/' | paste -sd ' ')
[ "$names" = "$expected" ] || complain "the optimizers are '$names', not '$expected'"
for name in $names; do
    accepts "^$name\$" "$tally" optimizers "$name"
    accepts '^    lr: accepts 0\.\.1e38; default ' "$tally" optimizers "$name"
done
accepts '^    beta1: accepts 0 or more, below 1; default 0\.9$' "$tally" optimizers adamw
accepts '^    weight_decay: accepts 0\.\.1e38; default 0\.01$' "$tally" optimizers adamw

option='\{"name": "[^"]*", "accepts": "[^"]*", "default": "[^"]*", "help": "[^"]*"\}'
object="^\{\"name\": \"[a-z0-9_]+\", \"help\": \"[^\"]+\", \"options\": \[$option(, $option)*\]\}\$"
"$tally" optimizers --json | grep -vE "$object" && complain "these lines are not as expected"

rejects "tally optimizers: unknown optimizer 'adm'; accepted: sgd adam .*rprop" \
    "$tally" optimizers adm
rejects "tally optimizers: unknown option '--fast'; accepted: --json" "$tally" optimizers --fast

[ $failures -eq 0 ] && echo "tally optimizers behaved"
exit $((failures > 0))
