#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_trace.sh TALLY TRAIN: `tally trace` on files of runs that never happened (make_trace.py) and of a real one: the events,
# their order, and every file that is not one.
set -u
here=$(dirname "$0")
# shellcheck source=tests/tool/command_support.sh
source "$here/command_support.sh"

make() {
    python3 -B "$here/make_trace.py" "$work/$1" "${@:2}" || complain "make_trace $* failed"
}
check() {
    python3 -B "$here/check_trace.py" "$@" || complain "$1 is not as expected"
}

make run world=3 steps=12 buckets=5
accepts '^.*/run.json: [0-9]+ events of 3 of 3 ranks' "$tally" trace "$work"/run.? -o "$work/run.json"
check "$work/run.json" 3 5 1 12
accepts ' 3 of 3 ranks' "$tally" trace --steps 4..6 -o "$work/cut.json" "$work"/run.?
check "$work/cut.json" 3 5 4 6
accepts ' 3 of 3 ranks' "$tally" trace --steps=7 "$work"/run.? -o "$work/cut.json"
check "$work/cut.json" 3 5 7 7

# Small segments cut steps anywhere; of a ring, the last segments are there.
make small world=2 steps=30 buckets=5 segment=2104
accepts ' 2 of 2 ranks' "$tally" trace "$work"/small.? -o "$work/small.json"
check "$work/small.json" 2 5 1 30
make ring world=2 steps=30 segment=8192 ring=5
accepts ' 2 of 2 ranks' "$tally" trace "$work"/ring.? -o "$work/ring.json" --steps 28..30
check "$work/ring.json" 2 4 28 30

# Two machines with different clocks: the offsets that ranks have measured, not the wall clocks, which are 40 us apart.
make hosts world=4 hosts=2
accepts ' 4 of 4 ranks' "$tally" trace "$work"/hosts.? -o "$work/hosts.json"
check "$work/hosts.json" 4 4 1 20 0.4

# Names that break JSON.
make odd odd=1
accepts ' 2 of 2 ranks' "$tally" trace "$work"/odd.? -o "$work/odd.json"
check "$work/odd.json" 2 4 1 20

make endless endless=1
accepts ' 2 of 2 ranks' "$tally" trace "$work"/endless.? -o "$work/endless.json"
check "$work/endless.json" 2 4 1 20

# The bound: 20 buckets, 1000 steps, 4 ranks in 200 MB. This is a twentieth of it.
make large world=2 steps=100 buckets=20 params=8
accepts ' 2 of 2 ranks' "$tally" trace "$work"/large.? -o "$work/large.json"
[ "$(stat -c %s "$work/large.json")" -le 10000000 ] || complain "$(stat -c %s "$work/large.json") bytes are too many"

# A real job.
TALLY_TRACE=$work/real "$tally" run -n 3 "$2" --steps 20 bf16 >"$work/real.out" 2>&1 || complain "$(cat "$work/real.out")"
accepts ' 3 of 3 ranks' "$tally" trace "$work"/real.? -o "$work/real.json" --steps 5..15
n=$(grep -o '"name":"bucket [0-9]*"' "$work/real.json" | sort -u | wc -l)
check "$work/real.json" 3 "$n" 5 15
accepts '^[0-9]+ steps of 3 ranks: .* per step = .* compute \+ .* exposed' "$tally" report "$work"/real.? -o "$work/real.html"

# Files that are not what they should be.
head -c 20000 "$work/run.0" >"$work/short.0"
err=$("$tally" trace "$work/short.0" -o "$work/out" 2>&1 >/dev/null) || complain "a file that is cut short is not shown"
grep -q 'short.0 is cut short; it is shown as far as it goes$' <<<"$err" || complain "no word about the cut: $err"
head -c 100 "$work/run.0" >"$work/shorter.0"
fails 'shorter.0 is cut short inside its head$' "$tally" trace "$work/shorter.0" -o "$work/out"
: >"$work/empty"
fails 'empty is empty' "$tally" trace "$work/empty" -o "$work/out"
fails 'test_trace.sh is not a trace file of tally$' "$tally" trace "$here/test_trace.sh" -o "$work/out"
fails 'nothing cannot be opened: No such file' "$tally" trace "$work/nothing" -o "$work/out"
fails ' is not a file$' "$tally" trace "$work" -o "$work/out"
mkfifo "$work/fifo"
fails 'fifo is not a file$' timeout 60 "$tally" trace "$work/fifo" -o "$work/out"
cp "$work/run.0" "$work/damaged"
printf '\377\377\377' | dd of="$work/damaged" bs=1 seek=316 conv=notrunc 2>/dev/null
fails 'damaged is damaged: ' "$tally" trace "$work/damaged" -o "$work/out"
cp "$work/run.0" "$work/new"
printf '\007' | dd of="$work/new" bs=1 seek=8 conv=notrunc 2>/dev/null
fails 'new has format 7, written by tally 0.9.0; this is tally .*, which reads format 1$' "$tally" trace "$work/new" -o "$work/out"
fails 'run.1 and .*/run.1 are both of rank 1' "$tally" trace "$work/run.1" "$work/run.1" -o "$work/out"
make other program=other world=3
fails 'other.2 is of another job than .*run.0: it has another program$' "$tally" trace "$work"/run.[01] "$work/other.2" -o "$work/out"
make later world=3 later=1
fails 'later.2 is of another run than .*run.0: their steps have the same numbers, but were at other times$' \
    "$tally" trace "$work"/run.[01] "$work/later.2" -o "$work/out"
make hosts_later world=4 hosts=2 later=1
fails 'hosts_later.3 is of another run than .*hosts.0: ' "$tally" trace "$work"/hosts.[012] "$work/hosts_later.3" -o "$work/out"
make failed failed=1
fails 'failed.0 was written after a failure; tally report shows such files$' "$tally" trace "$work/failed.0" -o "$work/out"
fails 'cannot write .*/no/out: No such file' "$tally" trace "$work/run.0" -o "$work/no/out"
fails 'run.0 is one of the trace files' "$tally" trace "$work/run.0" -o "$work/run.0"
if [ -e /dev/full ]; then
    fails 'cannot write /dev/full: No space left' "$tally" trace "$work"/run.? -o /dev/full
    [ -e /dev/full ] || complain "the output was removed, which is a device"
fi
rejects 'expected trace files' "$tally" trace
rejects '--steps 3..1 is not a range' "$tally" trace "$work/run.0" --steps 3..1
fails 'the files have no step from 13 to 999; they have steps 1 to 12$' "$tally" trace "$work"/run.? --steps 13..999 -o "$work/none.json"
[ -e "$work/none.json" ] && complain "a file without steps was left"
make idle steps=0
fails 'the files have no events$' "$tally" trace "$work"/idle.? -o "$work/out"
rejects '--steps 99999999999999999999 is not a range' "$tally" trace "$work/run.0" --steps 99999999999999999999
rejects '--steps x is not a range' "$tally" trace "$work/run.0" --steps x
exit $((failures > 0))
