#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The part `links` of `make bench`, alone and in its quick form: rows, tables in their places, no
# other change of the pages; a measurement counts only if its bytes crossed the link; known rows
# give known figures. If no hosts can be made, the part says so and does not change the pages.
# shellcheck disable=SC2016 # backquotes are Markdown's
# shellcheck source=tests/bench/pages_support.sh
. "$(dirname "$0")/pages_support.sh" "$1"
build=$(dirname "$tally")

# block FILE NAME: what stands between its marks.
block() {
    sed -n "/<!-- bench $2: begin -->/,/<!-- bench $2: end -->/p" "$1"
}

# An MPI is here when tally was built for it.
check_rows() {
    local mpi
    for mpi in openmpi mpich; do
        if [ ! -e "$build/src/libtally-$mpi.so" ]; then
            holds "$work/err" "$mpi was not here when tally was built; links over it are left out"
            continue
        fi
        holds "$work/rows" "\"part\": \"links\", \"mpi\": \"$mpi\", \"version\": \"[0-9.]+\", .*\"plain_ms\": "
        holds "$work/rows" "\"part\": \"links_peers\", \"peer\": \"$mpi\", .*\"hook\": \"allreduce\", \"ms\": "
        holds "$work/page" '^\| 10000 +\| tally over '
        command -v gnuplot >/dev/null && holds "$work/page" '\(plots/links\.svg\)'
    done
    if ! grep -q 'PyTorch is not here' "$work/err"; then
        holds "$work/rows" '"part": "links_peers", "peer": "torch", .*"hook": "none", "ms": '
    fi
}

# Nobody sends anything in these.
check_counters() {
    python3 -B - "$root/bench" "$build/tally" <<'END' || complain "silent hosts were not noticed"
import sys
sys.path.insert(0, sys.argv[1])
import bench_links
from bench_programs import Failed
links = bench_links.Links(sys.argv[2], bench_links.QUICK, (), 60, 60)
try:
    links.on_hosts(0, ["true"], {}, 1000000, 60)
except Failed as failure:
    sys.exit(not str(failure).startswith("host-0 has sent "))
sys.exit(1)
END
    [ -e "$build/src/libtally-openmpi.so" ] || return 0
    mkdir -p "$work/silent"
    ln -sf "$build/src" "$work/silent/src"
    printf '#!/bin/sh\necho "{\\"hook\\": \\"bf16\\", \\"ms\\": 1, \\"plain_ms\\": 1, \\"rel_error\\": 0}"\n' \
        >"$work/silent/tally"
    chmod +x "$work/silent/tally"
    if "$root/bench/link.sh" --build "$work/silent" --mb 1 --mbit 0 --steps 1 --backward-ms 0 --hook bf16 \
        >/dev/null 2>"$work/err"; then
        complain "link.sh accepts figures of what has not crossed the link"
    fi
    holds "$work/err" 'host-0 has sent [0-9]+ bytes, not 3000000$'
}

cp "$root"/docs/*.md "$pages"
reason=$("$root/bench/hosts.sh" true)
hosts=$?
"${run_all[@]}" --tally "$tally" --quick --only links --save "$work/rows" --write "$pages" \
    >"$work/out" 2>"$work/err" || complain "the quick run failed: $(cat "$work/err")"
block "$pages/performance.md" links >"$work/page"
if [ $hosts -eq 0 ]; then
    check_rows
    check_counters
else
    echo "no hosts here: $reason"
    holds "$work/err" 'links are left out: '
fi
for page in "$pages"/*.md; do
    same=$root/docs/$(basename "$page")
    diff <(sed '/<!-- bench \(links\|machine\).*: begin/,/<!-- bench .*: end/d' "$same") \
        <(sed '/<!-- bench \(links\|machine\).*: begin/,/<!-- bench .*: end/d' "$page") >"$work/diff" ||
        complain "more of $page has changed than links: $(cat "$work/diff")"
done

# 800 ms of line in 1000 are 0.8; 1000 by 50 are 20; 8000 by 125 are 64; the fp32 of two hooks has its median.
cat >"$work/rows" <<'END'
{"part": "run", "date": "today", "machine": "m", "compiler": "c", "tally": "0", "quick": false, "commands": {}}
{"part": "links", "mpi": "openmpi", "version": "4", "tcp_links": 1, "mbit": 1000, "hosts": 2, "line_ms": 800, "mb": 100, "hook": "bf16", "ms": 400.0, "plain_ms": 1000.0}
{"part": "links", "mpi": "openmpi", "version": "4", "tcp_links": 1, "mbit": 1000, "hosts": 2, "line_ms": 800, "mb": 100, "hook": "powersgd:rank=1,start=0", "ms": 50.0, "plain_ms": 1000.0}
{"part": "links", "mpi": "openmpi", "version": "4", "tcp_links": 2, "mbit": 100, "hosts": 2, "line_ms": 8000, "mb": 100, "hook": "powersgd:rank=1,start=0", "ms": 125.0, "plain_ms": 8000.0}
{"part": "links_peers", "peer": "openmpi", "tcp_links": 2, "version": "4", "mbit": 1000, "mb": 100, "hook": "allreduce", "ms": 1600.0, "line_ms": 800.0}
{"part": "links_peers", "peer": "torch", "tcp_links": null, "version": "9.9", "mbit": 1000, "mb": 100, "hook": "none", "ms": 900.0, "line_ms": 800.0}
{"part": "links_peers", "peer": "torch", "tcp_links": null, "version": "9.9", "mbit": 1000, "mb": 100, "hook": "fp16", "ms": 450.0, "line_ms": 800.0}
{"part": "links_overlap", "mpi": "mpich", "version": null, "tcp_links": null, "mbit": 1000, "backward_alone_ms": 800.0, "serial_ms": 1600.0, "step_ms": 1200.0, "exposed_ms": 30.0, "overlap": 0.5}
{"part": "links_overlap", "mpi": "openmpi", "version": "4", "tcp_links": null, "mbit": 1000, "backward_alone_ms": 800.0, "serial_ms": 790.0, "step_ms": 1200.0, "exposed_ms": 30.0, "overlap": null}
END
"${run_all[@]}" --load "$work/rows" >"$work/out" || complain "known rows were refused"
holds "$work/out" '^\| 1000 +\| tally over Open MPI 4 +\| fp32 +\| 1000 +\| 0\.80 +\| - +\| 0\.9 of the line'
holds "$work/out" '^\| 1000 +\| tally over Open MPI 4 +\| `bf16` +\| 400 +\| - +\| 2\.50 +\| 1\.9 times'
holds "$work/out" '^\| 100 +\| tally over Open MPI 4, 2 connections +\| `powersgd:rank=1,start=0` +\| 125 +\| - +\| 64'
holds "$work/out" '^\| 1000 +\| Open MPI 4, 2 connections, `MPI_Allreduce` +\| fp32 +\| 1600 +\| 0\.50'
holds "$work/out" '^\| 1000 +\| PyTorch 9\.9, DDP over Gloo +\| `fp16` +\| 450 +\| - +\| 2\.00'
holds "$work/out" '^\| 1000 +\| MPICH +\| 800 +\| 1600 +\| 1200 +\| 30\.00 +\| 0\.50'
holds "$work/out" '^Goals missed: fp32 over Open MPI 4 at 1000 Mbit/s, part of the line: 0\.80 \(at least 0\.9\); powersgd.* 64\.00'
holds "$work/out" '^Goals missed: overlap over MPICH at 1000 Mbit/s: 0\.50 \(at least 0\.75\); overlap over Open MPI 4.*: - \(at least 0\.75\)\.$'
holds "$work/out" '^2 of 6 goals met\.$'

"$root/bench/link.sh" --help | grep -q -- '--json' || complain "link.sh does not explain --json"

[ "$failures" -eq 0 ] || exit 1
echo "bench_links: all good"
