#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2016 # the dollars belong to the ranks' shells
# `tally run`: usage, what ranks find, how the job ends, restarts, real groups.
# shellcheck source=tests/tool/run_support.sh
source "$(dirname "$0")/run_support.sh"

# refuses CODE PATTERN ARGUMENT...: one line on stderr.
refuses() {
    local code=$1 pattern=$2
    shift 2
    run "$@"
    expect_rc "$code"
    expect err "^tally run: $pattern" 1
    expect err '' 1
    [ ! -s "$work/out" ] || complain "'$what' wrote to stdout"
}

range='use a whole number from 1 to 4096'
refuses 2 '-n is missing; .* 1 to 4096'
refuses 2 '-n is missing' true
refuses 2 '-n needs a value' -n
refuses 2 "-n 0 is not accepted; $range" -n 0 true
refuses 2 "-n x is not accepted; $range" -n x true
refuses 2 "-n 3x is not accepted; $range" -n3x true
refuses 2 "-n -1 is not accepted; $range" -n -1 true
refuses 2 "-n 4097 is not accepted; $range" -n 4097 true
refuses 2 "unknown option '--fast'; accepted: -n --timeout --max-restarts --bind --prefix --help" \
    -n 2 --fast true
refuses 2 "unknown option '-x'" -n 2 -x true
refuses 2 '--timeout 0 is not a time; use seconds above 0' -n 2 --timeout 0 true
refuses 2 '--timeout soon is not a time' -n 2 --timeout=soon true
refuses 2 '--max-restarts -1 is not accepted; use a whole number from 0' -n 2 --max-restarts -1 true
refuses 2 '--prefix takes no value' -n 2 --prefix=yes true
refuses 2 'no program to run' -n 2
refuses 2 'no program to run' -n 2 --
refuses 127 'cannot run no-such-program: No such file or directory' -n 5 no-such-program
refuses 127 'cannot run no-such-program: No such' -n 5 --max-restarts 3 --prefix no-such-program
refuses 126 'cannot run /dev/null: Permission denied' -n 5 /dev/null
run --help
expect_rc 0
expect out '^Example: tally run -n 4' 1

# The environment of a rank.
run -n 3 -- bash -c 'echo "$TALLY_RANK/$TALLY_WORLD/$TALLY_ATTEMPT/$TALLY_RENDEZVOUS"'
expect_rc 0
for rank in 0 1 2; do
    expect out "^$rank/3/0/@tally-$(id -u)-[0-9a-f]{32}$" 1
done
[ "$(cut -d / -f 4 "$work/out" | sort -u | wc -l)" -eq 1 ] || complain "ranks would not meet"
run -n1 --timeout 2.5 bash -c 'echo "$TALLY_TIMEOUT" "$@"' name -n --prefix -- last
expect out '^2.5 -n --prefix -- last$' 1
echo hello | run -n 3 cat
expect_rc 0
expect out '^hello$' 1
expect out '' 1

# The end of the job. The others sleep for longer than any test may last.
run -n 3 bash -c '[ "$TALLY_RANK" = 1 ] && exit 3; exec sleep 1000'
expect_rc 3
expect err '^tally run: rank 1 exited with status 3$' 1
expect err 'rank [02] ' 0
expect_nobody
run -n 3 bash -c '[ "$TALLY_RANK" = 2 ] && kill -9 $$; exec sleep 1000'
expect_rc 137
expect err '^tally run: rank 2 was killed by signal 9 \(Killed\)$' 1
expect_nobody
run -n 2 bash -c '[ "$TALLY_RANK" = 0 ] && exit 4; trap "" TERM; while :; do sleep 1; done'
expect_rc 4
expect_nobody
run -n 2 bash -c '[ "$TALLY_RANK" = 0 ] && exit 5; sleep 1; exit 6'
expect_rc 5
expect err 'status 6' 0
run -n 2 bash -c '[ "$TALLY_RANK" = 0 ] && exit 0; sleep 0.5; echo late'
expect_rc 0
expect out '^late$' 1

# Children of ranks end with the job, also those that hid; what finishes by itself may do so.
run -n 2 --prefix bash -c 'sleep 1000 & setsid sleep 1000 & (sleep 0.5; echo rest) & exit 0'
expect_rc 0
expect out '^\[[01]\] rest$' 2
expect_nobody
run -n 2 bash -c '[ "$TALLY_RANK" = 0 ] && exit 7; sleep 1000; true'
expect_rc 7
expect_nobody
# But not the children that the launcher had before it became one.
what="a launcher that has a child already"
bash -c 'sleep 1000 & echo $! >"$1"; exec "$2" run -n 1 true' name "$work/pid" "$tally" || complain "$what"
kill "$(cat "$work/pid")" 2>/dev/null || complain "$what killed it"

# Restarts.
run -n 2 --max-restarts 3 bash -c 'echo "attempt $TALLY_ATTEMPT at $TALLY_RENDEZVOUS"
    [ "$TALLY_ATTEMPT" = 2 ] || exit 9'
expect_rc 0
for attempt in 0 1 2; do
    expect out "^attempt $attempt at" 2
done
expect err '^tally run: restarting the job \([12] of at most 3\)$' 2
expect err 'exited with status 9$' 2
[ "$(cut -d ' ' -f 4 "$work/out" | sort -u | wc -l)" -eq 3 ] || complain "attempts share a name"
run -n 2 --max-restarts 1 bash -c 'exit $((TALLY_ATTEMPT + 20))'
expect_rc 21
expect err 'restarting' 1

# Threads of a BLAS: the CPUs are shared out, unless the user has said something.
run -n 64 bash -c 'echo "$OMP_NUM_THREADS and $OPENBLAS_NUM_THREADS"'
expect_rc 0
threads=$(($(nproc) / 64))
expect out "^$((threads > 0 ? threads : 1)) and $((threads > 0 ? threads : 1))$" 64
OMP_NUM_THREADS=5 run -n 2 bash -c 'echo "$OMP_NUM_THREADS"'
expect out '^5$' 2

# Real groups.
run -n 1 "$reduce"
expect_rc 0
expect out '^rank 0 of 1: sum 1$' 1
run -n 3 "$reduce"
expect_rc 0
expect out '^rank [012] of 3: sum 6$' 3
run -n 7 --prefix "$reduce"
expect_rc 0
expect out '^\[([0-6])\] rank \1 of 7: sum 28$' 7
run -n 3 --max-restarts 1 "$reduce" 1
expect_rc 137
expect err '^tally run: rank 1 was killed by signal 9' 2
expect err '^(PEER|ABORTED): .*rank 1' 4
# A rank returns 0 too early: it is named, and not only the rank that failed because of that.
run -n 3 "$reduce" 2 return
expect_rc 1
expect err '^(PEER|ABORTED): .*rank 2 ended without closing its group' 2
expect err '^tally run: rank 2 ended first, with status 0$' 1
expect err '^tally run: rank [01] exited with status 1$' 1

# TALLY_LOG in a program that sets no callback: one rank says what the run is.
TALLY_LOG=info TALLY_HOOK=bf16 run -n 3 "$line"
expect_rc 0
# On a busy machine a rank may come late, and is named.
sed -i '/makes the others wait/d' "$work/err"
expect err '^\[0\] tally: info: 3 ranks on 1 machine, backend shm$' 1
expect err '^\[0\] tally: info: each rank: kernels [a-z0-9]+, 1 lane; late after 600 s$' 1
expect err '^\[0\] tally: info: ddp: 1 parameter with 2 elements in 1 bucket, hook bf16$' 1
expect err '' 3
TALLY_LOG=loud run -n 2 "$line"
expect_rc 0
expect err '^tally: warning: TALLY_LOG=loud is not accepted: use none\|error\|warn\|info\|debug$' 2
expect err '' 2
run -n 2 "$line"
expect err '' 0

# Pinning.
if [ -n "$has_hwloc" ]; then
    run -n 3 --bind --prefix grep Cpus_allowed_list /proc/self/status
    expect_rc 0
    expect out '^\[[012]\] Cpus_allowed_list:.[0-9]' 3
    cpu=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
    what="tally run --bind below taskset"
    taskset -c "$cpu" "$tally" run -n 2 --bind grep Cpus_allowed_list /proc/self/status >"$work/out"
    expect out "^Cpus_allowed_list:.$cpu$" 2
else
    refuses 1 'cannot pin ranks (--bind): this tally was built without hwloc' -n 2 --bind true
fi
conclude
