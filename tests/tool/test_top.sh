#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_top.sh TALLY MAKE_STATUS RUN_TERMINAL TRAIN: `tally top` on pages that no library wrote, and on real jobs of TRAIN, a
# program that trains until its input ends.
set -u
here=$(dirname "$0")
# shellcheck source=tests/tool/command_support.sh
source "$here/command_support.sh"
make=$2 terminal=$3 train=$4

pids=()
# shellcheck disable=SC2317 # the trap calls it
finish() {
    if [ ${#pids[@]} -gt 0 ]; then
        kill -CONT "${pids[@]}" 2>/dev/null
        kill "${pids[@]}" 2>/dev/null
        wait "${pids[@]}" 2>/dev/null
    fi
    rm -rf "$work"
}
trap finish EXIT

# page NAME KEY=VALUE...: starts a process with such a page; its number is in $pid.
mkfifo "$work/hold"
exec 9<>"$work/hold"
page() {
    rm -f "$work/$1.out" # of a process with the same name, which was ready
    "$make" job="$1-$$" "${@:2}" <&9 >"$work/$1.out" &
    pid=$!
    pids+=("$pid")
    for _ in $(seq 600); do
        grep -qs ready "$work/$1.out" && return
        sleep 0.05
    done
    complain "make_status ${*:2} does not start"
}
# shows EXPRESSION ARGUMENT...: an expression of Python about what `tally top --once --json ARGUMENT...` prints is true.
shows() {
    local expression=$1 out
    shift
    out=$("$tally" top --once --json "$@" 2>&1) || complain "tally top $*: $out"
    python3 -c '
import json, sys
d = json.loads(sys.argv[1])
jobs = d["jobs"]
ranks = jobs[0]["ranks"] if jobs else []
assert eval(sys.argv[2]), sys.argv[1]
' "$out" "$expression" || complain "not so: $expression"
}

# ---- pages that no library wrote ----

page job rank=0 world=3 state=2 bucket=7 waits_for=2
first=$pid
page job rank=1 world=3 state=2 bucket=7 waits_for=2
page job rank=2 world=3
shows 'len(jobs) == 1 and jobs[0]["world"] == 3 and [r["state"] for r in ranks] == ["waiting", "waiting", "computing"]' "$first"
shows 'ranks[0]["words"].startswith("waits for rank 2 (") and ranks[0]["words"].endswith(" s) in bucket 7 of 20") and ranks[0]["waits_for"] == 2' "$first"
shows '"waits_for" not in ranks[2] and ranks[2]["steps"] == 1000 and ranks[2]["exposed"] == 0.2' "$first"
kill -STOP "$pid"
for _ in $(seq 600); do # it stops when a CPU runs it
    grep -q '^State:.T' "/proc/$pid/status" && break
    sleep 0.05
done
shows 'ranks[2]["state"] == "stopped" and ranks[2]["steps_per_s"] == 0' "$first"
shows 'ranks[2]["words"].startswith("STOPPED, silent for ")' "$pid"
accepts '^ranks 0, 1 wait for rank 2 \(stopped\), for [0-9.]+ s$' "$tally" top --once "$first"
# The launcher of the ranks is this shell.
shows '{j["program"] for j in jobs} == {"make_status"} and len(ranks) == 3' $$
kill -CONT "$pid"
kill "$pid"
wait "$pid" 2>/dev/null
accepts '^ +2 +not found: ended' "$tally" top --once "$first"

# A rank that is stopped waits for nobody, whatever its page says.
page stopped rank=0 world=2 state=2 waits_for=1
page stopped rank=1 world=2 state=2 waits_for=0
kill -STOP "$pid"
out=$("$tally" top --once "$pid")
grep -q '^rank 0 waits for rank 1 (stopped)' <<<"$out" || complain "a stopped rank is waited for: $out"
grep -q '^rank 1 waits' <<<"$out" && complain "a stopped rank waits: $out"
kill -CONT "$pid"

# Two jobs are two lines.
page other
accepts '^several jobs' "$tally" top --once
[ "$("$tally" top --once | grep -c make_status)" -ge 2 ] || complain "not one line per job"

# Without a process to look for, a job that has ended goes while another one runs.
page ends
ended=$pid
"$tally" top --json --interval 0.05 >"$work/follow" &
follower=$!
pids+=("$follower")
# sees TEXT YES_OR_NO: waits until the last whole line of the follower has the text, or has it not.
sees() {
    for _ in $(seq 600); do
        if [ "$(tail -2 "$work/follow" | head -1 | grep -c "$1")" -eq "$2" ] && [ "$(wc -l <"$work/follow")" -gt 1 ]; then
            return
        fi
        sleep 0.05
    done
    complain "the follower does not come to $2 lines with $1: $(tail -1 "$work/follow")"
}
sees "\"pid\": *$ended," 1
kill "$ended"
wait "$ended" 2>/dev/null
sees "\"pid\": *$ended," 0
kill "$follower"
wait "$follower" 2>/dev/null

# More ranks that wait than a line has room for: their number is right.
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    page crowd rank=$((8000000 + i)) world=9000000 waits_for=8999999
done
page crowd rank=8999999 world=9000000
out=$("$tally" top --once "$pid" | grep 'wait for rank 8999999')
named=$(grep -o '80000[0-9][0-9]' <<<"$out" | wc -l)
grep -qE "^ranks 8000001, 8000002, .*[0-9] and $((16 - named)) more wait for rank 8999999 " <<<"$out" ||
    complain "of 16 ranks that wait, $named are named: $out"
# Below a table that is longer than the screen, the sentences are in sight.
out=$("$terminal" 0 q "$tally" top --interval 0.1 "$pid")
grep -q 'ranks 8000001, 8000002, ' <<<"$out" || complain "a long table hides who waits for whom: $out"
grep -q 'page down: more' <<<"$out" || complain "no word that there is more: $out"

# A failure, a text that is being written, and bytes that move the cursor.
page failed state=7 error='rank 1 is dead'
shows 'ranks[0]["state"] == "failed" and ranks[0]["error"] == "rank 1 is dead"' "$pid"
accepts '^rank 0 failed: rank 1 is dead$' "$tally" top --once "$pid"
page torn sequence=3 hook=half
shows 'ranks[0]["hook"] == ""' "$pid"
page hostile hook=$'\033[2J\nx' error=$'\377'
"$tally" top --once "$pid" | LC_ALL=C grep -q $'[\001-\011\013-\037\177-\377]' && complain "control characters are printed"

# Pages that cannot be read: each is one line.
page version version=3
fails "process $pid runs tally 99.1, whose status page has version 3; this is tally .*, which reads version 2$" "$tally" top --once "$pid"
page entries entries=1000000
fails "process $pid has a status page that makes no sense$" "$tally" top --once "$pid"
page short bytes=100
fails "process $pid has a status page that makes no sense$" "$tally" top --once "$pid"
page empty bytes=0
fails "process $pid is not a rank of tally" "$tally" top --once "$pid"
page rank rank=5 world=3
fails "process $pid has a status page that makes no sense$" "$tally" top --once "$pid"
page inherited pid=1
fails "process $pid is not a rank of tally" "$tally" top --once "$pid"
fails 'there is no process 99999999$' "$tally" top --once 99999999
sleep 600 &
pids+=($!)
fails "process $! is not a rank of tally" "$tally" top --once $!
rejects "'x' is not accepted" "$tally" top x
rejects "'7' is not accepted" "$tally" top 6 7

# Another user's job. Only root can become another user.
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null; then
    cp "$tally" "$work/tally" && chmod 755 "$work" "$work/tally"
    fails "process $first belongs to user root; only that user and root can look at it$" \
        setpriv --reuid 65534 --regid 65534 --clear-groups "$work/tally" top --once "$first"
    out=$(setpriv --reuid 65534 --regid 65534 --clear-groups "$work/tally" top --once 2>&1)
    [ "$out" = "no job of this user uses tally now" ] || complain "another user without a job sees: $out"
    cp "$make" "$work/make" && chmod 755 "$work/make"
    setpriv --reuid 65534 --regid 65534 --clear-groups "$work/make" version=3 <&9 >"$work/nobody.out" &
    pids+=($!)
    for _ in $(seq 600); do
        ! grep -qs ready "$work/nobody.out" || break
        sleep 0.05
    done
    out=$(setpriv --reuid 65534 --regid 65534 --clear-groups "$work/tally" top --once 2>&1)
    if [ "$(wc -l <<<"$out")" -ne 1 ] || ! grep -qE '^process [0-9]+ runs tally 99.1, ' <<<"$out"; then
        complain "a user whose only job has another version sees: $out"
    fi
fi

# The whole screen: the other screen is taken and given back; q ends it; so does SIGTERM.
out=$("$terminal" 0 q "$tally" top --interval 0.1 "$first") || complain "tally top at a terminal failed"
grep -q $'\033\[?1049h' <<<"$out" || complain "the screen is not taken"
grep -q $'\033\[?1049l' <<<"$out" || complain "the screen is not given back"
grep -q 'STEPS/S' <<<"$out" || complain "nothing is on the screen"
# What a failed call said is not cut at the edge of the screen.
page long state=7 error="$(printf '%0100d' 0) and $(printf '%060d' 0) to the end"
out=$("$terminal" 0 q "$tally" top --interval 0.1 "$pid")
grep -q 'to the end' <<<"$out" || complain "a long error is cut: $out"
# shellcheck disable=SC2016 # the dollars are for the inner shell
out=$("$terminal" 99 q bash -c '"$0" top --interval 0.1 "$1" & p=$!; sleep 0.5; kill $p; wait $p; stty -a' "$tally" "$first")
grep -q $'\033\[?1049l' <<<"$out" || complain "the screen is not given back after a signal"
grep -qE ' icanon .* echo |icanon.* echo' <<<"$(tr '\n' ' ' <<<"$out")" || complain "the terminal is not as it was: $out"

# ---- real jobs ----

# job NAME COMMAND...: starts a job; $pid is the launcher. waits_until EXPRESSION PID: as shows, for at most 30 s.
job() {
    "${@:2}" >"$work/$1.out" 2>&1 &
    pid=$!
    pids+=("$pid")
}
waits_until() {
    local out
    for _ in $(seq 150); do
        out=$("$tally" top --once --json "$2" 2>&1) && python3 -c '
import json, sys
jobs = json.loads(sys.argv[1])["jobs"]
ranks = jobs[0]["ranks"] if jobs else []
sys.exit(not (eval(sys.argv[2])))
' "$out" "$1" 2>/dev/null && return
        sleep 0.2
    done
    complain "not so after 30 s: $1: $out"
}

job train "$tally" run -n 3 "$train"
waits_until 'len(ranks) == 3 and all(r["steps"] > 30 and r["steps_per_s"] > 0 and r["buckets"] == 4 for r in ranks)' "$pid"
rank2=$("$tally" top --once --json "$pid" | python3 -c 'import json, sys; print(json.load(sys.stdin)["jobs"][0]["ranks"][2]["pid"])')
kill -STOP "$rank2"
waits_until 'ranks[2]["state"] == "stopped" and all(r.get("waits_for") == 2 and r["waits_s"] > 1 for r in ranks[:2])' "$pid"
accepts '^ranks 0, 1 wait for rank 2 \(stopped\), for ' "$tally" top --once "$pid"
kill -CONT "$rank2"
waits_until 'ranks[2]["state"] != "stopped" and "waits_for" not in ranks[0]' "$pid"
kill "$pid"
wait "$pid" 2>/dev/null

job hang "$tally" run -n 2 "$train" hang
waits_until 'ranks[0]["state"] == "waiting" and ranks[0]["waits_for"] == 1 and ranks[0]["waits_s"] > 1 and ranks[1]["state"] == "computing"' "$pid"
waits_until 'ranks[0]["steps"] == 20 == ranks[1]["steps"]' "$pid"
accepts '^rank 0 waits for rank 1 \(computing\), for ' "$tally" top --once "$pid"
exit $((failures > 0))
