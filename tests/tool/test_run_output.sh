#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2016 # the dollars belong to the ranks' shells
# `tally run --prefix`: whole lines, all bytes, the right file, and readers that go away.
# shellcheck source=tests/tool/run_support.sh
source "$(dirname "$0")/run_support.sh"

run -n 3 --prefix bash -c 'echo out; echo err >&2; printf "no end"; printf "nor here" >&2'
expect_rc 0
for rank in 0 1 2; do
    expect out "^\[$rank\] out$" 1
    expect out "^\[$rank\] no end$" 1
    expect err "^\[$rank\] err$" 1
    expect err "^\[$rank\] nor here$" 1
done
expect out '' 6
expect err '' 6

# Without a prefix the ranks have the launcher's own files.
run -n 2 bash -c 'printf "x"; [ -p /dev/stdout ] && echo pipe'
[ "$(cat "$work/out")" = xx ] || complain "'$what' wrote $(cat "$work/out")"

# Long lines, in small pieces, from several ranks at once.
run -n 3 --prefix bash -c 'for i in 1 2 3; do head -c 1500000 /dev/zero | tr "\0" "$TALLY_RANK"
    sleep 0.1; done; echo; echo end'
expect_rc 0
for rank in 0 1 2; do
    n=$(grep -xE "\[$rank\] $rank+" "$work/out" | wc -c)
    [ "$n" -eq 4500005 ] || complain "'$what': the long line of rank $rank has $n bytes"
    expect out "^\[$rank\] end$" 1
done
expect out '' 6

# Many lines: all there, in their order.
run -n 4 --prefix seq 20000
expect_rc 0
for rank in 0 1 2 3; do
    sed -n "s/^\[$rank\] //p" "$work/out" | cmp -s - <(seq 20000) || complain "'$what': rank $rank"
done

# Binary data: every byte, zero included.
run -n 1 --prefix bash -c 'for i in {0..255}; do printf "\x$(printf %x "$i")"; done; printf "\0\n\0"'
expect_rc 0
{
    printf '[0] '
    for i in {0..9}; do printf '%b' "\\x$(printf %x "$i")"; done
    printf '\n[0] '
    for i in {11..255}; do printf '%b' "\\x$(printf %x "$i")"; done
    printf '\0\n[0] \0\n'
} >"$work/expected"
cmp "$work/out" "$work/expected" || complain "'$what': bytes got lost"

# A rank's output comes before the message that it failed.
run -n 2 --prefix bash -c '[ "$TALLY_RANK" = 0 ] && exec sleep 1000; echo "last words" >&2; exit 8'
expect_rc 8
[ "$(head -n 2 "$work/err")" = "[1] last words
tally run: rank 1 exited with status 8" ] || complain "'$what' said: $(cat "$work/err")"

# A reader that goes away ends the ranks as it would without us, and starts nothing again.
what="tally run --prefix yes | head"
env "$mark" timeout -k 5 60 "$tally" run -n 2 --prefix --max-restarts 5 yes 2>"$work/err" |
    head -n 1 >"$work/out"
rc=${PIPESTATUS[0]}
expect_rc 141
expect err 'cannot write to standard output: Broken pipe' 1
expect err 'restarting' 0
expect_nobody
what="tally run --prefix echo >/dev/full"
env "$mark" "$tally" run -n 1 --prefix echo hello >/dev/full 2>"$work/err"
rc=$?
expect_rc 1
expect err 'cannot write to standard output: No space left' 1

# A reader that does not read stops neither signals nor the end.
what="tally run --prefix into a full pipe"
mkfifo "$work/pipe"
sleep 1000 <>"$work/pipe" &
reader=$!
env "$mark" "$tally" run -n 2 --prefix bash -c 'echo >>"$1"; yes' name "$work/pids" \
    >"$work/pipe" 2>"$work/err" &
launcher=$!
wait_until test -s "$work/pids"
sleep 0.5
kill -TERM "$launcher"
# The first one ended the ranks; one that comes when they have left gives up on their output. When that
# is cannot be seen from here.
# shellcheck disable=SC2317 # wait_until calls it
another_ends_it() { launcher_is_gone || ! kill -TERM "$launcher" 2>/dev/null; }
wait_until another_ends_it
finish
expect_rc 143
kill "$reader"
wait "$reader" 2>/dev/null
conclude
