#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2016 # the dollars belong to the ranks' shells
# `tally run` and signals: passed on once, never to survivors, and nobody outlives the launcher.
# shellcheck source=tests/tool/run_support.sh
source "$(dirname "$0")/run_support.sh"

# Ranks that act on no signal are killed after a time. This job waits for it beside the others.
patient_mark=$mark-patient
set -m # else SIGINT is ignored in the background
env "$patient_mark" "$tally" run -n 2 --max-restarts 5 \
    bash -c 'trap "" TERM INT; echo ready; while :; do sleep 0.1; done' \
    >"$work/patient_out" 2>"$work/patient_err" </dev/null &
patient=$!
set +m
wait_until has_lines patient_out '^ready$' 2 || complain "the patient job did not start"
kill -INT "$patient"

# A rank that says what it gets, and its child, which would say so too. SIGHUP ends both.
listen='
for s in INT TERM USR1; do trap "echo got $s" "$s"; done
trap "echo got HUP; exit 0" HUP
bash -c "for s in INT TERM USR1; do trap \"echo child got \$s\" \$s; done
    trap \"exit 0\" HUP; echo ready; while :; do sleep 0.1; done" &
while :; do wait; sleep 0.1; done'

start -n 3 bash -c "$listen"
wait_until has_lines out '^ready$' 3 || complain "'$what': not all ranks started"
for signal in USR1 TERM; do
    kill "-$signal" "$launcher"
    wait_until has_lines out "^got $signal$" 3 || complain "'$what': $signal was not passed on"
    wait_until has_lines out "^child got $signal$" 3 || complain "'$what': children did not get $signal"
done
kill -INT "$launcher" # ignored: this shell started the launcher in the background
kill -HUP "$launcher"
finish
expect_rc 0
expect out '^got HUP$' 3
expect out '^(child )?got TERM$' 6
expect out '^(child )?got USR1$' 6
expect out 'got INT' 0
expect_nobody

# By default a rank dies of it, and the job is not started again.
start -n 3 --max-restarts 5 bash -c 'echo ready; exec sleep 1000'
wait_until has_lines out '^ready$' 3
kill -TERM "$launcher"
finish
expect_rc 143
expect err '^tally run: rank [012] was killed by signal 15 \(Terminated\)$' 1
expect err 'restarting' 0
expect_nobody

# A second signal means: at once. The ranks get the first one only.
start -n 3 --max-restarts 5 bash -c 'trap "echo got TERM" TERM; echo ready; while :; do sleep 0.1; done'
wait_until has_lines out '^ready$' 3
kill -TERM "$launcher"
wait_until has_lines out '^got TERM$' 3 || complain "'$what': TERM was not passed on"
sleep 0.3
kill -TERM "$launcher"
finish
expect_rc 143
expect out '^got TERM$' 3
expect err '^tally run: signal 15 \(Terminated\) was passed on to 3 ranks; .* are killed in [0-9]+ s, ' 1
expect err '^tally run: killing 3 ranks that did not end$' 1
expect err '^tally run: ' 2
expect_nobody

# timeout sends its signal twice in a row, which is not a second wish: ranks may save their work.
what='timeout 60 tally run'
env "$mark" timeout 60 "$tally" run -n 2 \
    bash -c 'trap "sleep 0.5; echo saved; exit 0" TERM; echo ready; while :; do sleep 0.1; done' \
    >"$work/out" 2>"$work/err" </dev/null &
launcher=$!
wait_until has_lines out '^ready$' 2
kill -TERM "$launcher"
finish
expect out '^saved$' 2
expect err 'killing' 0
expect_nobody

# A stopped rank acts on the signal too.
start -n 2 bash -c 'echo $$; exec sleep 1000'
wait_until has_lines out '' 2
mapfile -t ranks <"$work/out"
kill -STOP "${ranks[@]}"
wait_until all_are T "${ranks[@]}" || complain "'$what': ranks did not stop"
kill -TERM "$launcher"
finish
expect_rc 143
expect err '^tally run: rank [01] was killed by signal 15 \(Terminated\)$' 1
expect err 'killing' 0
expect_nobody

# Only threads of tally are left, which take no signals. A sanitizer's own thread takes them.
start -n 2 "$reduce" leave
wait_until has_lines out '^left$' 2 || complain "'$what': $(cat "$work/err")"
kill -TERM "$launcher"
wait_until has_lines err 'was passed on to 2 ranks' 1
sleep 0.3
kill -TERM "$launcher" 2>/dev/null
finish
expect_rc 143
if ! grep -q 'was killed by signal 15' "$work/err"; then
    expect err '^tally run: killing 2 ranks that did not end$' 1
fi
expect_nobody

# The launcher is killed: no rank is left, whatever it does with signals.
touch "$work/alive"
for option in --prefix --bind ''; do
    [ "$option" = --bind ] && [ -z "$has_hwloc" ] && continue
    start -n 4 ${option:+"$option"} bash -c 'trap "" TERM HUP INT; echo x >>"$1"; exec sleep 1000' \
        name "$work/alive"
    wait_until has_lines alive x 4 || complain "'$what': not all ranks started"
    kill -9 "$launcher"
    finish
    expect_rc 137
    expect_nobody
    : >"$work/alive"
done

# Nor is any process left that a wrapper script has started: neither its child, nor the child's
# child that has started a new session, nor a rank that is stopped meanwhile.
wrapper='trap "" TERM HUP INT
bash -c "trap \"\" TERM HUP INT; echo x >>\"$1\"
    setsid bash -c \"echo x >>$1; while :; do sleep 0.1; done\" & while :; do sleep 0.1; done"
true'
for stops in '' STOP; do
    start -n 3 bash -c "$wrapper" name "$work/alive"
    wait_until has_lines alive x 6 || complain "'$what': not all children started"
    for pid in ${stops:+$(marked_processes)}; do
        [ "$pid" -eq "$launcher" ] || grep -q run-guard "/proc/$pid/comm" || kill -STOP "$pid"
    done
    kill -9 "$launcher"
    finish
    expect_rc 137
    expect_nobody
    : >"$work/alive"
done
# The guard of a rank is killed: its rank dies, and nothing of it is left.
start -n 2 bash -c "$wrapper" name "$work/alive"
wait_until has_lines alive x 4 || complain "'$what': not all children started"
for pid in $(marked_processes); do
    if [ "$(cat "/proc/$pid/comm")" = run-guard-1 ]; then
        kill -9 "$pid"
    fi
done
finish
expect_rc 137
expect err '^tally run: rank 1 was killed by signal 9 \(Killed\)$' 1
expect_nobody

# Stopped and continued together.
start -n 2 bash -c 'echo $$; exec sleep 1000'
wait_until has_lines out '' 2
mapfile -t ranks <"$work/out"
kill -TSTP "$launcher"
wait_until all_are T "$launcher" "${ranks[@]}" || complain "'$what' did not stop with its ranks"
kill -CONT "$launcher"
wait_until all_are S "$launcher" "${ranks[@]}" || complain "'$what' did not go on with its ranks"
kill -TERM "$launcher"
finish
expect_rc 143
expect_nobody

# A job of a real group is stopped for longer than its deadline, and goes on: stopped time does not count.
start -n 3 --timeout 1 bash -c 'echo ready; exec "$1" 99' name "$reduce"
wait_until has_lines out '^ready$' 3
sleep 0.5
kill -TSTP "$launcher"
sleep 2.5
kill -CONT "$launcher"
sleep 0.5
launcher_is_gone && complain "'$what' did not survive a pause: $(cat "$work/err")"
kill -TERM "$launcher"
finish
expect_rc 143
expect err 'TIMEOUT' 0
expect_nobody

# At a terminal: Ctrl-C reaches everybody once, whether or not rank 0 may read the keyboard.
say_int='trap "echo got INT; exit 0" INT; echo ready; while :; do sleep 0.1; done'
what="Ctrl-C at a terminal"
env "$mark" "$terminal" 3 $'\003' "$tally" run -n 3 --max-restarts 5 bash -c "$say_int" >"$work/out"
rc=$?
expect_rc 0
expect out 'got INT' 3
expect_nobody
what="Ctrl-C at a terminal without input"
env "$mark" "$terminal" 3 $'\003' \
    bash -c 'exec "$@" </dev/null' name "$tally" run -n 3 --prefix bash -c "$say_int" >"$work/out"
rc=$?
expect_rc 0
expect out '\[[012]\] got INT' 3
expect_nobody
what="Ctrl-C at a terminal ends ranks that do not care"
env "$mark" "$terminal" 3 $'\003' "$tally" run -n 3 --max-restarts 5 \
    bash -c 'echo ready; exec sleep 1000' >"$work/out"
rc=$?
expect_rc 130
expect out 'tally run: rank [012] was killed by signal 2 \(Interrupt\)' 1
expect_nobody
what="typing at a terminal"
env "$mark" "$terminal" 2 $'hello\n' "$tally" run -n 2 --prefix bash -c 'echo ready; read -r word
    echo "<$word>"' >"$work/out"
rc=$?
expect_rc 0
expect out '\[0\] <hello>' 1
expect out '\[1\] <>' 1

what="the patient job"
mark=$patient_mark
launcher=$patient
finish
mv "$work/patient_err" "$work/err"
expect_rc 130
expect err '^tally run: signal 2 \(Interrupt\) was passed on to 2 ranks; ' 1
expect err '^tally run: killing 2 ranks that did not end$' 1
expect err '^tally run: ' 2
conclude
