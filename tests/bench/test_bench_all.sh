#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make bench` in its quick form: rows that are JSON, every table in its place in the pages, plots where
# there is gnuplot; a peer that hangs is given up; known rows give known figures. Its parts `links` and
# `mpi` are in test_bench_links.sh and test_bench_mpi.sh.
# shellcheck disable=SC2016 # backquotes are Markdown's
# shellcheck source=tests/bench/pages_support.sh
. "$(dirname "$0")/pages_support.sh" "$1"

# is_json FILE: every line is a JSON object with a part.
is_json() {
    python3 -c 'import json, sys; [json.loads(line)["part"] for line in open(sys.argv[1])]' "$1" ||
        complain "not JSON: $(cat "$1")"
}

# ---- a run of everything but peers, links and mpi, into a copy of the pages ----

parts=(kernels lowrank allreduce allreduce_heap allreduce_loaded many_ranks step updates trace copies hooks wire_bytes checkpoint)

cp "$root"/docs/*.md "$pages"
"${run_all[@]}" --tally "$tally" --quick --only "$(IFS=, && echo "${parts[*]}")" --peers none \
    --save "$work/rows" --write "$pages" >"$work/out" 2>"$work/err" ||
    complain "the quick run failed: $(cat "$work/err")"
is_json "$work/rows"
holds "$work/out" '^These were the smallest cases'
for part in "${parts[@]}"; do
    holds "$work/rows" "^\{\"part\": \"$part\", "
    holds "$work/out" "^== $part ==$"
done
today=$(date '+%-d %B %Y')
written=$(grep -hc "$today" "$pages/performance.md")
[ "$written" -ge 13 ] || complain "only $written tables of performance.md have today's date"
holds "$pages/performance.md" "^\`build/tally bench hooks --ranks 2 --mb 1 --steps 1 --hook HOOK\`, $today:$"
holds "$pages/should-i-compress.md" "^\`build/tally bench hooks --ranks 2 --mb 1 .*, $today:$"
for page in "$pages"/*.md; do
    diff <(grep -v '^|' "$root/docs/$(basename "$page")" | grep -E '^#|<!-- bench') \
        <(grep -E '^#|<!-- bench' "$page") >"$work/diff" ||
        complain "headings or marks of $page have changed: $(cat "$work/diff")"
done
for plot in allreduce_time step_per_hook wire_bytes; do
    if command -v gnuplot >/dev/null; then
        holds "$pages/plots/$plot.svg" '^</svg>'
        holds "$pages/plots/$plot.svg" '<title id="title">.+</title>' # for screen readers
        holds "$pages/plots/$plot.svg" '<desc id="desc">.+</desc>'
        # The page repeats the title: a screen reader does not look into a picture.
        title=$(sed -n 's,<title id="title">\(.*\)</title>$,\1,p' "$pages/plots/$plot.svg")
        grep -qF "![$title](plots/$plot.svg)" "$pages/performance.md" || complain "no picture called '$title'"
        ! grep -F '<title>gnuplot_plot' "$pages/plots/$plot.svg" || complain "a curve of $plot.svg has no name"
    else
        holds "$work/err" 'gnuplot is not here: no plots'
    fi
done

# Kept rows make the same pages; pages without marks are refused.
cp "$pages/performance.md" "$work/first.md"
"${run_all[@]}" --load "$work/rows" --write "$pages" >/dev/null 2>&1 || complain "--load failed"
cmp "$work/first.md" "$pages/performance.md" || complain "kept rows make another page"
mkdir "$work/empty"
"${run_all[@]}" --load "$work/rows" --write "$work/empty" >/dev/null 2>"$work/err" &&
    complain "a folder without pages was accepted"
holds "$work/err" 'has a place for machine, kernels'

# ---- peers ----

# A launcher that never ends, as far as the tally command is concerned.
cat >"$work/tally" <<END
#!/usr/bin/env bash
case "\$*" in *--peer*) echo \$\$ >>"$work/hung"; sleep 300 ;; esac
exec "$tally" "\$@"
END
chmod +x "$work/tally"
"${run_all[@]}" --tally "$work/tally" --quick --only allreduce --peers openmpi,mpich --limit 0.5 --json \
    >"$work/rows" 2>"$work/err" || complain "a peer that hangs failed the run: $(cat "$work/err")"
is_json "$work/rows"
holds "$work/err" 'openmpi is left out: not done after 0.5 s'
holds "$work/err" 'mpich is left out: not done after 0.5 s'
holds "$work/rows" '"part": "allreduce", .*"bytes": 65536, .*"mpich_us": null'
while read -r pid; do
    # The dead that nobody has collected yet do not count. Fields: state, parent, group.
    sed 's/.*) //' /proc/[0-9]*/stat 2>/dev/null |
        awk -v group="$pid" '$3 == group && $1 != "Z" { found = 1 } END { exit !found }' &&
        complain "process group $pid is still there"
done <"$work/hung"

# 80 ms of theirs beside 10 of ours; 75 MB saved for 20 ms more are 30 Gbit/s; 25 MB at 10 Gbit/s are 20 ms.
cat >"$work/rows" <<'END'
{"part": "run", "date": "today", "machine": "m", "compiler": "c", "tally": "0", "quick": false, "commands": {"hooks": "hooks"}}
{"part": "hooks", "hook": "allreduce", "ranks": 2, "mb": 100, "ms": 10.0, "plain_ms": 10.0, "plain_ratio": 1.0, "goal": null, "wire_bytes": 100000000}
{"part": "hooks", "hook": "bf16", "ranks": 2, "mb": 100, "ms": 10.1, "plain_ms": 10.0, "plain_ratio": 1.01, "goal": 2, "wire_bytes": 50000000}
{"part": "hooks", "hook": "int8", "ranks": 2, "mb": 100, "ms": 30.0, "plain_ms": 10.0, "plain_ratio": 4.0, "goal": 3.5, "wire_bytes": 25000000}
{"part": "torch", "hook": "none", "version": "9.9", "ranks": 2, "mb": 100, "steps": 3, "step_ms": 200.0, "noop_ms": 120.0, "comm_ms": 80.0}
END
"${run_all[@]}" --load "$work/rows" >"$work/out" || complain "known rows were refused"
holds "$work/out" '^\| `none` +\| 200 +\| 120 +\| 80\.00 +\| 10\.00 +\| 8\.00 +\| 10 '
holds "$work/out" '^\| `bf16` +\| 50\.0 +\| 0\.1 +\| any '
holds "$work/out" '^\| `int8` +\| 25\.0 +\| 20\.0 +\| 30 +\| 32\.0 +\| 38\.0 +\| 50\.0 +\| 230 '
holds "$work/out" '^Goals missed: int8, in plain steps: 4\.00 \(at most 3\.5\)\.$'
holds "$work/out" '^\| torch +\| none, times less communication +\| 8\.00 +\| at least 10 +\| missed'
holds "$work/out" '^1 of 3 goals met\.$'

rejects "no part 'speed'; available: kernels, lowrank" "${run_all[@]}" --only speed
rejects "no peer 'lam'; available: openmpi, mpich, torch" "${run_all[@]}" --peers lam
rejects 'unrecognized arguments: --fast' "${run_all[@]}" --fast

[ "$failures" -eq 0 ] || exit 1
echo "bench_all: all good"
