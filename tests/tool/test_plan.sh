#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test_plan.sh TALLY
# `tally plan`: forecasts from tests/tool/profile.json as a table, as JSON and as a page; and mistakes.
set -u
# shellcheck source=tests/tool/command_support.sh
source "$(dirname "$0")/command_support.sh"
profile=$(dirname "$0")/profile.json

# field NAME HOOK OPTION...: one number of the row of a hook.
field() {
    local name=$1 hook=$2
    shift 2
    "$tally" plan --profile "$profile" --json --hook "$hook" "$@" |
        sed -E "s/.*\"$name\": \"?([^,}\"]+).*/\1/"
}

# expects VALUE FROM TO WHAT
expects() {
    awk -v value="$1" -v from="$2" -v to="$3" 'BEGIN { exit !(value >= from && value <= to) }' ||
        complain "$4: $1 is not within $2 .. $3"
}

# The table: the machine that was measured, all hooks, the best one marked.
accepts 'measured by test on 2 hosts of 1 rank, 0.94 Gbit/s, 60 us$' "$tally" plan --profile "$profile"
accepts '^  allreduce  ' "$tally" plan --profile "$profile"
accepts '^\* powersgd:start=0  ' "$tally" plan --profile "$profile"
accepts '^  postlocal\(allreduce\) every 16 ' "$tally" plan --profile "$profile"
accepts '^  diloco\(allreduce\) every 500 ' "$tally" plan --profile "$profile"
accepts 'The loss is not predicted' "$tally" plan --profile "$profile"
accepts '^  hosts\(int8\) ' "$tally" plan --profile "$profile" --ranks-per-host 4
accepts '^  postlocal\(int8\) every 8 ' "$tally" plan --profile "$profile" --hook "postlocal(int8)" --period 8,32

# 70.3 MB at 0.94 Gbit/s take 598 ms, of which backward hides some; on an infinitely fast link the
# step is forward and backward.
expects "$(field step_ms allreduce)" 600 800 "allreduce as measured"
expects "$(field host_bytes allreduce)" 70.2e6 70.3e6 "bytes of a host"
expects "$(field step_ms allreduce --gbit 9)" 180 260 "allreduce at 9 Gbit/s"
[ "$(field binds allreduce)" = line ] || complain "at 0.94 Gbit/s the line should bind"
[ "$(field step_ms allreduce --gbit 100)" = null ] || complain "100 Gbit/s is beyond what was measured"
expects "$(field low_ms allreduce --gbit 100)" 180 200 "the range at 100 Gbit/s"
accepts '^[* ] allreduce +[0-9.]+ \.\. [0-9.]+ ' "$tally" plan --profile "$profile" --gbit 100 --hook allreduce

# With more hosts a rank sends up to twice the bytes; with more ranks per host they share its link.
expects "$(field host_bytes allreduce --hosts 16)" 131e6 132e6 "bytes of one of 16 hosts"
expects "$(field host_bytes allreduce --ranks-per-host 4)" 281e6 281.1e6 "bytes of 4 ranks"
expects "$(field host_bytes "hosts(allreduce)" --ranks-per-host 4)" 70.2e6 70.3e6 "bytes of a leader"

# 100,000 ranks: a flat exchange sends two messages to each of them for every bucket.
expects "$(field messages allreduce --hosts 100000)" 800e3 801e3 "messages"
accepts 'flat exchange is the wrong one here: a rank sends 80[0-9]{4} messages in a step' \
    "$tally" plan --profile "$profile" --hosts 100000 --gbit 100 --hook allreduce

# Among 2 ranks, many messages come from many buckets, not from a flat exchange.
awk -v n=2000 '
    function list(text, i) { for (i = 0; i < n; i++) printf "%s%s", i ? ", " : "", text }
    /"n_buckets"/ { printf "  \"n_buckets\": %d,\n  \"buckets\": [", n; list("{\"bytes\": 4e4, \"ready_s\": 0.1}")
        print "],\n  \"n_hooks\": 1,\n  \"hooks\": ["
        printf "    {\"name\": \"allreduce\", \"exchanges\": 1, \"error\": 0, \"coding\": ["
        list("{\"bytes\": 4e4, \"code_s\": 0}"); print "]}]\n}"; exit }
    { print }' "$profile" >"$work/many.json"
"$tally" plan --profile "$work/many.json" --gbit 100 --hook allreduce >"$work/many.txt" || complain "no plan of 2000 buckets"
grep -qE '^[* ] allreduce .* rounds$' "$work/many.txt" || complain "rounds should bind with 2000 small buckets"
grep -q 'flat exchange' "$work/many.txt" && complain "flat exchange of 2 ranks is called the wrong one"

"$tally" plan --profile "$profile" --hosts 100000 --gbit 100 -o "$work/far.html" | grep -q 'e+' &&
    complain "a number with an exponent in the table"
grep -q 'allreduce: flat exchange is the wrong one here: a rank sends' "$work/far.html" ||
    complain "the page does not say where flat exchange is wrong"

# The page stands alone.
accepts '^  allreduce' "$tally" plan --profile "$profile" -o "$work/plan.html"
grep -q '<td>powersgd:start=0</td>' "$work/plan.html" || complain "the page lacks a hook"
grep -qE 'https?:|src=|href=' "$work/plan.html" && complain "the page refers to something else"

rejects 'give --profile FILE' "$tally" plan
rejects 'cannot open the profile /nowhere: No such file' "$tally" plan --profile /nowhere
rejects "no measurement of 'int9'; accepted: allreduce, bf16, int8, powersgd:start=0, each alone" \
    "$tally" plan --profile "$profile" --hook int9
rejects "no measurement of 'hosts\(int9\)'" "$tally" plan --profile "$profile" --hook "int8+hosts(int9)"
rejects 'the profile /: not a file' "$tally" plan --profile /
rejects "no measurement of ''" "$tally" plan --profile "$profile" --hook "int8+"
rejects "hosts takes at most 64 whole numbers from 1 on, .* not 'many'" "$tally" plan --profile "$profile" --hosts many
rejects "gbit takes at most 64 numbers from 1e-06 to 100000, .* not '1,-1'" "$tally" plan --profile "$profile" --gbit 1,-1
rejects "not '1e-300'" "$tally" plan --profile "$profile" --gbit 1e-300
rejects "latency-us takes at most 64 numbers from 0.001 to 1e\+07, .* not '1e-9'" "$tally" plan --profile "$profile" --latency-us 1e-9
rejects "not '0x10'" "$tally" plan --profile "$profile" --gbit 0x10
rejects "hosts takes at most 64 whole numbers .* not '1,2,3,[0-9,]{54}'" "$tally" plan --profile "$profile" --hosts "$(seq -s, 65)"
rejects '100001 hosts of 1 rank are 100001 ranks: at most' "$tally" plan --profile "$profile" --hosts 100001
rejects '4000000 ranks: at most 100000' "$tally" plan --profile "$profile" --hosts 1000000 --ranks-per-host 4
rejects '16777216 machines with 6 hooks each: at most 100000 rows' "$tally" plan --profile "$profile" \
    --hosts "$(seq -s, 64)" --ranks-per-host "$(printf '1,%.0s' {1..63})1" --gbit "$(seq -s, 64)" --latency-us "$(seq -s, 64)"
sed 's/"lanes": 1/"lanes": 1e9/' "$profile" >"$work/damaged.json"
rejects 'damaged.json, line 7: not a profile of tally: expected a number from 1 to 64 as "lanes"' \
    "$tally" plan --profile "$work/damaged.json"
sed 's/"gbit": 0.94/"gbit": 1e-299/' "$profile" >"$work/damaged.json"
rejects 'damaged.json, line 13: .* expected a rate of 0 or at least 1e-06' "$tally" plan --profile "$work/damaged.json"
sed 's/"allreduce"/"allreduce:engine=native"/' "$profile" >"$work/native.json"
accepts '^[* ] hosts\(allreduce:engine=native\)' "$tally" plan --profile "$work/native.json" --hook hosts
sed 's/"allreduce"/"allreduces"/' "$profile" >"$work/damaged.json"
rejects "first hook of a profile is allreduce, not 'allreduces'" "$tally" plan --profile "$work/damaged.json"
head -c 900 "$profile" >"$work/cut.json"
rejects 'cut.json, line [0-9]+: not a profile of tally: expected' "$tally" plan --profile "$work/cut.json"

[ "$failures" -eq 0 ] && echo "tally plan behaved"
exit $((failures > 0))
