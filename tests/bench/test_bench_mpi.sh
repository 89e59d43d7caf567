#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/mpi.py, and the part `mpi` of `make bench`, in their quick form: every setting has rows with
# all figures, and messages are counted; a program that fails is left out with a note; known rows give
# known figures and verdicts. Where an MPI or hosts are missing, a note says so.
# shellcheck disable=SC2016 # backquotes are Markdown's
# shellcheck source=tests/bench/pages_support.sh
. "$(dirname "$0")/pages_support.sh" "$1"
build=$(dirname "$tally")
compare=(python3 -B "$root/bench/mpi.py" --tally "$tally" --runs 1 --seconds 0.005 --limit 40)

# ---- tiny sizes, all settings ----

"$root/bench/hosts.sh" true >/dev/null
hosts=$?
"${compare[@]}" --ranks 2,3 --bytes 4Ki,64Ki --mb 1 --save "$work/rows" >"$work/out" 2>"$work/err" ||
    complain "the quick run failed: $(cat "$work/err")"
n_mpis=0
for mpi in openmpi mpich; do
    if [ ! -e "$build/bench/mpi_compare_$mpi" ]; then
        holds "$work/err" "$mpi was not here when tally was built"
        continue
    fi
    n_mpis=$((n_mpis + 1))
    for setting in one apart; do
        for ranks in 2 3; do
            holds "$work/rows" "\"setting\": \"$setting\", \"mpi\": \"$mpi\", \"ranks\": $ranks, .*\"mpi_us\": [0-9]"
        done
    done
    holds "$work/rows" "\"setting\": \"one\", \"mpi\": \"$mpi\", .*\"shm_us\": [0-9]"
    if [ $hosts -eq 0 ]; then
        holds "$work/rows" "\"setting\": \"hosts\", \"mpi\": \"$mpi\", \"ranks\": 2, .*\"speed\": [0-9]"
        for what in fp32 MPI_Allreduce bf16 int8; do
            holds "$work/rows" "\"part\": \"mpi_line\", \"mpi\": \"$mpi\", .*\"what\": \"$what\", \"ms\": [0-9]"
        done
        holds "$work/rows" "\"part\": \"links_overlap\", \"mpi\": \"$mpi\", .*\"overlap\": "
    else
        holds "$work/err" 'links are left out: '
    fi
done
if [ $n_mpis -gt 0 ]; then
    holds "$work/rows" '"setting": "shm", "mpi": null, "ranks": 3, .*"backend": "shm", .*"us": [0-9]'
    holds "$work/out" '^[0-9]+ of [0-9]+ goals met\.$'
fi
# Among two ranks, each sends the half that the other sums, and the half that it has summed. Ranks that
# share nothing send it in messages; tally run sends none.
python3 - "$work/rows" <<'END' || complain "figures are not what they should be: $(cat "$work/rows")"
import json, sys
for row in map(json.loads, open(sys.argv[1])):
    if row["part"] != "mpi":
        continue
    assert row["us"] > 0 and row["cpu_ns_per_byte"] >= 0 and row["memory"] in ("group", "heap"), row
    if row["setting"] == "shm":
        assert row["messages"] == 0 and row["mpi_us"] is None, row
    elif row["setting"] != "one":
        least = row["ranks"] - 1 if row["ranks"] == 2 else 1
        assert row["messages"] >= least and row["sent_bytes"] >= row["bytes"], row
        assert row["sent_bytes"] < 2 * row["bytes"] * (row["ranks"] - 1) + 4096, row
END

# A program that fails is started twice, and then left out.
if [ -e "$build/bench/mpi_compare_openmpi" ]; then
    mkdir -p "$work/failing/bench"
    ln -s "$build/src" "$work/failing/src"
    printf '#!/bin/sh\necho "mpi_compare: a result is wrong" >&2\nexit 1\n' \
        >"$work/failing/bench/mpi_compare_openmpi"
    chmod +x "$work/failing/bench/mpi_compare_openmpi"
    "${compare[@]}" --tally "$work/failing/tally" --settings apart --mpi openmpi --ranks 2 --bytes 4Ki \
        --json >"$work/out" 2>"$work/err" || complain "a failing program failed the bench"
    holds "$work/err" 'once more: '
    holds "$work/err" 'apart, openmpi, 2 ranks: left out: '
    ! grep -q '"part": "mpi"' "$work/out" || complain "a failing program has rows: $(cat "$work/out")"
fi

# ---- as a part of make bench ----

cp "$root"/docs/*.md "$pages"
"${run_all[@]}" --tally "$tally" --quick --only mpi --write "$pages" >"$work/out" 2>"$work/err" ||
    complain "the part mpi failed: $(cat "$work/err")"
[ $n_mpis -eq 0 ] || holds "$pages/performance.md" '^\| one machine, `TALLY_SHARE=0` +\| .* \| 2 +\| 64 KiB'

# 40 us of MPI by 10 of tally are 4 times; 10 by 8 are 1.25 times tally run; 800 ms of line in 850.
row() {
    printf '{"part": "mpi", "setting": "%s", "mpi": %s, "ranks": 2, "cpus": 2, "backend": "x", "memory": "%s", ' "$1" "$2" "$3"
    printf '"bytes": %d, "runs": 5, "us": %s, "mpi_us": %s, "shm_us": %s, "speed": %s, ' "$4" "$5" "$6" "$7" "$8"
    printf '"messages": 3.0, "sent_bytes": 1.0, "cpu_ns_per_byte": 3.0, "mpi_cpu_ns_per_byte": %s}\n' "$9"
}
{
    echo '{"part": "run", "date": "today", "machine": "m", "compiler": "c", "tally": "0", "quick": false, "commands": {}}'
    for memory in group heap; do
        row shm null $memory 65536 8.0 null null null null
        row one '"openmpi"' $memory 65536 10.0 40.0 8.0 4.0 2.0
        row apart '"mpich"' $memory 65536 10.0 8.0 null 0.8 2.0
        row hosts '"mpich"' $memory 1048576 100.0 95.0 null 0.95 2.0
    done
    echo '{"part": "mpi_line", "mpi": "openmpi", "version": "4", "tcp_links": null, "mbit": 1000, "mb": 100, "line_ms": 800, "what": "fp32", "ms": 850.0, "fp32_ms": null}'
    echo '{"part": "mpi_line", "mpi": "openmpi", "version": "4", "tcp_links": null, "mbit": 1000, "mb": 100, "line_ms": 800, "what": "int8", "ms": 250.0, "fp32_ms": 850.0}'
} >"$work/rows"
"${run_all[@]}" --load "$work/rows" >"$work/out" || complain "known rows were refused"
holds "$work/out" '^\| one machine +\| Open MPI +\| 2 +\| 64 KiB +\| 10\.00 +\| 10\.00 +\| 40\.00 +\| 4\.00 +\| 4\.00 +\| 1\.25 +\| 3 +\| 1\.50'
holds "$work/out" 'one, group memory, 64 KiB, 2 ranks, times of tally run +\| 1\.25 +\| at most 1\.15 +\| missed'
holds "$work/out" 'one, group memory, 64 KiB, 2 ranks, times faster than MPI +\| 4\.00 +\| at least 3 +\| met'
holds "$work/out" 'one, heap memory, 64 KiB, 2 ranks, times faster than MPI +\| 4\.00 +\| at least 1\.5 +\| met'
holds "$work/out" "apart, group memory, 64 KiB, 2 ranks, MPI's speed +\| 0\.80 +\| at least 0\.9 +\| missed"
holds "$work/out" "hosts, group memory, 1 MiB, 2 ranks, MPI's CPU time +\| 1\.50 +\| at most 1\.2 +\| missed"
holds "$work/out" 'tally run, 64 KiB, 2 ranks, times of the better MPI +\| 0\.20 +\| at most 1 +\| met'
holds "$work/out" '^\| 1000 +\| Open MPI 4 +\| `fp32` +\| 850 +\| 0\.94 +\| - '
holds "$work/out" 'int8 over Open MPI 4 at 1000 Mbit/s, times faster than fp32 +\| 3\.40 +\| at least 3\.6 +\| missed'

# Parts that were measured one by one.
grep -v '"hosts"' "$work/rows" >"$work/first"
grep -e '"part": "run"' -e '"hosts"' "$work/rows" >"$work/second"
python3 -B "$root/bench/mpi.py" --load "$work/first" "$work/second" --save "$work/merged" >"$work/out" ||
    complain "parts were refused"
[ "$(sort "$work/merged")" = "$(sort "$work/rows")" ] || complain "merged: $(cat "$work/merged")"
holds "$work/out" "hosts, group memory, 1 MiB, 2 ranks, MPI's CPU time +\| 1\.50 +\| at most 1\.2 +\| missed"

rejects "no setting 'two'; available: one, apart, hosts, line" "${compare[@]}" --settings two
rejects "no MPI 'lam'; available: openmpi, mpich" "${compare[@]}" --mpi lam
rejects 'invalid numbers value' "${compare[@]}" --bytes 4Gi

[ "$failures" -eq 0 ] || exit 1
echo "bench_mpi: all good"
