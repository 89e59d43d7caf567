#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_report.sh TALLY TRAIN: the words and figures of `tally report` on files of runs that never happened (make_trace.py),
# and on what ranks of TRAIN write when one of them dies.
set -u
here=$(dirname "$0")
# shellcheck source=tests/tool/command_support.sh
source "$here/command_support.sh"
train=$2

# report NAME KEY=VALUE...: makes files and a page of them.
report() {
    local name=$1
    python3 -B "$here/make_trace.py" "$work/$name" "${@:2}" || complain "make_trace $* failed"
    "$tally" report "$work/$name".* -o "$work/$name.html" >"$work/$name.txt" 2>"$work/$name.err" ||
        complain "tally report of $* failed: $(cat "$work/$name.err")"
    [ -s "$work/$name.err" ] && complain "tally report of $* wrote to stderr: $(cat "$work/$name.err")"
}
# says NAME PATTERN, says_not NAME PATTERN: what the command printed.
says() {
    grep -qE -- "$2" "$work/$1.txt" || complain "report of $1 does not say /$2/: $(cat "$work/$1.txt")"
}
says_not() {
    grep -qE -- "$2" "$work/$1.txt" && complain "report of $1 says /$2/: $(cat "$work/$1.txt")"
}
# data NAME EXPRESSION: an expression of Python about the data in the page is true.
data() {
    python3 -c '
import json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
found = re.search(r"<script type=\"application/json\" id=\"data\">\n(.*?)\n</script>", page, re.S)
d = json.loads(found.group(1))
assert eval(sys.argv[2]), (sys.argv[2], {k: d[k] for k in ("job", "headline", "post", "ranks", "buckets", "bytes")})
' "$work/$1.html" "$2" || complain "the page of $1: not so: $2"
}

# last_rank_of JOB RANKS STEPS: the process of the last rank of a job, when it has taken more steps.
last_rank_of() {
    local found
    for _ in $(seq 300); do
        found=$("$tally" top --once --json "$1" 2>/dev/null | python3 -c '
import json, sys
n, steps = map(int, sys.argv[1:])
ranks = json.load(sys.stdin)["jobs"][0]["ranks"]
print(ranks[-1]["pid"] if len(ranks) == n and ranks[-1]["steps"] > steps else "")' "$2" "$3" 2>/dev/null)
        [ -n "$found" ] && break
        sleep 0.1
    done
    echo "$found"
}

# A step of make_trace: 4 ms forward, 12 ms backward, then the last exchange and 1.5 ms of the optimizer in wait.
report plain world=3 steps=40 worst=7
says plain '^40 steps of 3 ranks: 18.4 ms per step = 16.0 ms compute \+ 919 us exposed communication \+ 1.50 ms optimizer$'
says_not plain straggler
data plain 'd["headline"]["straggler"] is None and len(d["ranks"]) == 3 and len(d["buckets"]) == 4'
data plain '[s["label"] for s in d["steps"]][1] == "slowest: step 7" and len(d["steps"]) == 3'
data plain 'all(len(s["ranks"]) == 3 and [t["name"] for t in s["ranks"][0]["threads"]] == ["main", "lane 0"] for s in d["steps"])'
# Each bucket takes 0.9 ms, 20 us after it is ready; only the last is exposed; and a fifth of it is waiting.
data plain '[b["exchange"] for b in d["buckets"]] == [900000] * 4 and [b["ready"] for b in d["buckets"]] == [920000] * 4'
data plain '[b["exposed"] for b in d["buckets"]] == [0, 0, 0, 900000] and [b["waiting"] for b in d["buckets"]] == [180000] * 4'
data plain 'd["bytes"]["wire"] * 2 == d["bytes"]["plain"] == 1 << 20 and d["bytes"]["error"] == 0.002'
data plain 'len(d["series"]["first"]) == 40 and max(d["series"]["max"]) == d["series"]["max"][6]'
# Every bucket of a step that is shown is there once per rank.
data plain 'all(sorted(t["events"][i + 3] for i in range(0, len(t["events"]), 6) if d["kinds"][t["events"][i]] == "BUCKET") == [0, 1, 2, 3]
    for s in d["steps"] for r in s["ranks"] for t in r["threads"] if t["name"] == "lane 0")'

# The choices of auto, with reasons; the page of another hook has no such part.
data plain 'd["choices"] is None'
report chosen choices=1
data chosen '[c["hook"] for c in d["choices"]["rows"]] == ["int8"] * 3 + ["allreduce"] and d["choices"]["step"] == 21'
data chosen 'd["choices"]["rows"][0] == {"bucket": 0, "hook": "int8", "runner_up": "bf16", "predicted": 4000000, "measured": 5000000,
    "runner_up_time": 8000000, "error": 0.0125, "reason": "the line is 0.94 Gbit/s: 24 ms saved, 2 ms spent"}'
data chosen 'd["choices"]["cap_bytes"] == 1 << 20 and d["choices"]["cap_gain"] == 0.125 and d["choices"]["settled"]'

# The same from ranks that train with auto.
TALLY_HOOK=auto TALLY_TRACE=$work/auto "$tally" run -n 2 "$train" >/dev/null 2>&1 &
job=$!
kill -9 "$(last_rank_of "$job" 2 20)"
wait "$job" 2>/dev/null
"$tally" report "$work"/auto.[01] -o "$work/auto.html" >"$work/auto.txt" 2>&1 || complain "report of auto: $(cat "$work/auto.txt")"
data auto '{c["hook"] for c in d["choices"]["rows"]} == {"allreduce"} and len(d["choices"]["rows"]) == len(d["buckets"])'
data auto 'all("share the memory" in c["reason"] and c["measured"] > 0 for c in d["choices"]["rows"])'

for cause in "computes:ready later than" "lane:its lane thread gets no CPU" "link:its messages arrive late"; do
    report "${cause%%:*}" world=3 straggler=1 cause="${cause%%:*}"
    says "${cause%%:*}" "^Rank 1 is the straggler: the others wait 6.00 ms per step for it, [0-9]+ % of the mean step, because .*${cause#*:}"
    data "${cause%%:*}" 'd["headline"]["straggler"]["rank"] == 1'
done

# Ranks that are late in turn, as on a machine where all lack CPUs, are no stragglers.
report turns world=2 steps=60 turns=1
says_not turns straggler
data turns '[round(r["waited"] / 1e6) for r in d["ranks"]] == [3, 3]'
# One step in which a rank is late makes no straggler, however late it is.
report hiccup world=3 steps=60 hiccup=30
says_not hiccup straggler

# Without such an account, the waits themselves tell; each of 20 exchanges has 180 us of it.
report counted world=3 straggler=1 buckets=20 accounts=0
says counted '^Rank 1 is the straggler: the others wait 3\.60 ms per step for it, [0-9]+ % of the mean step\. Inside a step'
report even world=3 buckets=20 accounts=0
says_not even straggler

report long world=2 steps=900 buckets=1 params=1
data long 'd["series"]["per"] == 3 and len(d["series"]["first"]) == 300'
report large world=4 steps=50 buckets=20 params=8
[ "$(stat -c %s "$work/large.html")" -le 2000000 ] || complain "a page of $(stat -c %s "$work/large.html") bytes"
report hosts world=4 hosts=2
data hosts 'd["job"]["hosts"] == ["node0", "node1"] and d["steps"][0]["note"].startswith("Clocks of the machines agree within 5.00 us")'
report few world=4 only=2
data few 'd["job"]["missing"] == [0, 1, 3] and d["ranks"][2]["step"] > 0 and d["ranks"][0]["step"] == 0'

# Names from a file stay in their strings: one data block, one end of it, and no tag.
report odd odd=1
[ "$(grep -c '</script>' "$work/odd.html")" -eq "$(grep -c '</script>' "$work/plain.html")" ] || complain "a name ends the script"
grep -q '<img' "$work/odd.html" && complain "a name became a tag"
data odd 'd["job"]["program"].startswith("</script><img src=x onerror=alert(1)>")'

# A file whose counts are endless does not break the page.
report endless endless=1
data endless 'd["headline"]["n_steps"] == 20'

# After a failure, alone and with the traces before it.
report failed world=3 failed=1
says failed '^rank 0 failed: no sign of rank 2 for 30 s in step 21$'
data failed 'len(d["post"]) == 1 and d["post"][0]["also"] == [1] and d["post"][0]["status"] == "TIMEOUT"'
data failed '[l["state"] for l in d["post"][0]["lines"]] == ["arrived", "arrived", "missing"]'
data failed 'd["steps"][0]["label"] == "the end" and d["post"][0]["lines"][0]["last"].startswith("launch of bucket 0, step 21, 30.0 s")'
python3 -B "$here/make_trace.py" "$work/before" world=3
accepts '^rank 1 failed' "$tally" report "$work"/before.? "$work"/failed.? -o "$work/both.html"
data both 'len(d["post"]) == 1 and d["post"][0]["lines"][2]["last"].startswith("update, step 20, 30")'
data both 'd["headline"]["n_steps"] == 20'
python3 -B "$here/make_trace.py" "$work/later" world=3 later=100
fails 'failed.0 is of another run than .*later.0: both are of rank 0, but of processes 4000 and 4100$' \
    "$tally" report "$work"/later.? "$work"/failed.? -o "$work/out.html"

# Rank 2 of a real job is killed: the others say so in their reports.
mkdir "$work/reports"
TALLY_REPORT_DIR=$work/reports "$tally" run -n 3 "$train" >/dev/null 2>&1 &
job=$!
kill -9 "$(last_rank_of "$job" 3 5)"
wait "$job" 2>/dev/null
accepts '^rank 0 failed: rank 2 (died|was killed)' "$tally" report "$work"/reports/tally-* -o "$work/died.html"
data died 'len(d["post"]) >= 1 and d["post"][0]["status"] == "PEER" and d["job"]["missing"] == [2]'
data died 'd["post"][0]["lines"][2]["state"] in ("died", "dead", "missing", "left")'

err=$("$tally" report "$work/few.2" "$here/test_report.sh" -o "$work/out.html" 2>&1 >/dev/null)
[ "$err" = "tally report: $here/test_report.sh is not a trace file of tally" ] || complain "a foreign file: $err"
python3 -B "$here/make_trace.py" "$work/none" steps=0
err=$("$tally" report "$work"/none.? -o "$work/out.html" 2>&1 >/dev/null)
[ "$err" = "tally report: the files have no complete step" ] || complain "no steps: $err"
rejects 'expected trace files' "$tally" report
exit $((failures > 0))
