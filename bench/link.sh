#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures tally over links of a given speed between hosts that it makes (hosts.sh), for one MPI.
# Needs root, or a system that lets users make namespaces.
set -euo pipefail

usage() {
    cat <<'END'
usage: bench/link.sh [--mpi openmpi|mpich] [--mbit RATE] [--hosts N] [--ranks R] [--mb N]
                     [--steps N] [--backward-ms MS] [--bucket-mb N] [--hook TEXT]...
                     [--build FOLDER] [--json]
Makes N hosts (2), each with a link of RATE million bits per second (1000; 0: no limit) and R ranks
(1) on it, and runs over them `tally bench hooks` with --mb million bytes of gradients (100), then
`tally bench step` with a backward pass that computes for MS milliseconds (as long as fp32 is on the
line; 0: no such step) and buckets of --bucket-mb million bytes (4), the last of which nothing can
hide. Prints the time of each hook, the part of the line that fp32 uses, the speed of each hook
relative to fp32 in the same run, and the part of fp32's communication that a backward pass hides;
with --json one object per hook, and one for the backward pass. Fails if an interface has sent fewer
bytes than it should have, because then the link was not measured. FOLDER is the build folder of
tally (build). Every host has one CPU, as long as there are enough. Open MPI reads more parameters
from its environment.
Example: bench/link.sh --mpi mpich --mbit 100 --hook bf16 --hook powersgd:rank=1,start=0
         OMPI_MCA_btl_tcp_links=2 bench/link.sh --json --hook int8 --backward-ms 0
END
}

mpi=openmpi mbit=1000 hosts=2 ranks=1 mb=100 steps=5 backward='' bucket=4 build=build json=''
hooks=()
while [ $# -gt 0 ]; do
    case $1 in
    --mpi) mpi=$2 ;;
    --mbit) mbit=$2 ;;
    --hosts) hosts=$2 ;;
    --ranks) ranks=$2 ;;
    --mb) mb=$2 ;;
    --steps) steps=$2 ;;
    --backward-ms) backward=$2 ;;
    --bucket-mb) bucket=$2 ;;
    --build) build=$2 ;;
    --hook) hooks+=("$2") ;;
    --json)
        json=yes
        shift
        continue
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        echo "link.sh: unknown option '$1'" >&2
        usage >&2
        exit 2
        ;;
    esac
    shift 2
done
[ ${#hooks[@]} -gt 0 ] || hooks=(allreduce fp16 bf16 int8 quantize_per_tensor
    'powersgd:rank=1,start=0' 'powersgd:rank=4,start=0')
here=$(cd "$(dirname "$0")" && pwd)
tally=$(cd "$build" && pwd)/tally
export TALLY_MPI=${tally%/*}/src/libtally-$mpi.so
if [ ! -x "$tally" ] || [ ! -e "$TALLY_MPI" ]; then
    echo "link.sh: $tally or $TALLY_MPI does not exist: build tally with this MPI first" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
world=$((hosts * ranks))
# Bytes that a host sends in a step: each of its ranks sends the shards of all ranks on other hosts,
# 1/world of the data each, and its own shard to each of them.
host_mb=$(awk "BEGIN { print 2 * $mb * $ranks * ($world - $ranks) / $world }")
line_ms=$(awk "BEGIN { print ($mbit > 0 ? $host_mb * 8e3 / $mbit : 0) }")
[ -n "$backward" ] || backward=$(awk "BEGIN { ms = $line_ms > 0 ? $line_ms : 200
    printf \"%d\", ms < 10000 ? ms : 10000 }")

# The first fields of every object.
launcher=mpirun.$mpi
[ "$mpi" = openmpi ] || launcher=mpiexec.$mpi
version=$(grep -oEm1 '[0-9]+\.[0-9.]+[a-z0-9]*' <<<"$("$launcher" --version)") || version=unknown
links=null
[ "$mpi" != openmpi ] || links=${OMPI_MCA_btl_tcp_links:-1}
head="\"mpi\": \"$mpi\", \"version\": \"$version\", \"tcp_links\": $links, \"mbit\": $mbit, "
head+="\"hosts\": $hosts, \"ranks_per_host\": $ranks, \"line_ms\": $line_ms"

# field NAME LINE: a number of a JSON object.
field() {
    sed -E "s/.*\"$1\": ([^,}]+).*/\1/" <<<"$2"
}

# The JSON line of a bench over the link. A rank's error text comes last, after the launcher's
# output.
on_hosts() {
    local code=0
    "$here/hosts.sh" --hosts "$hosts" --mbit "$mbit" --sent "$work/sent" \
        "$here/hosts_mpirun.sh" "$mpi" "$ranks" "$tally" "$@" --json --mb "$mb" \
        >"$work/out" 2>"$work/err" || code=$?
    if [ "$code" -ne 0 ] || ! grep '^{' "$work/out"; then
        cat "$work/out" "$work/err" >&2
        echo "link.sh: over $mpi this ended with $code: tally $*:" \
            "$(grep -m1 '^tally' "$work/err" || true)" >&2
        exit $((code > 0 ? code : 1))
    fi
}

# crossed STEPS: every host has sent the bytes of this number of fp32 steps.
crossed() {
    awk -v least="$(awk "BEGIN { print $1 * $host_mb * 1e6 }")" '$1 < least {
        printf "link.sh: host-%d has sent %d bytes, not %d\n", NR - 1, $1, least
        failed = 1
    } END { exit failed }' "$work/sent" >&2
}

# The bench's own goals are of shared memory.
print_object() {
    sed -E "s/\"goal\": [^,]+, //; s/^\{(.*)\}\$/{$head, \"sent_bytes\": $(sort -n "$work/sent" |
        head -n 1), \1}/" <<<"$1"
}

print_header() {
    local line_text="links without a limit"
    [ "$mbit" -eq 0 ] ||
        line_text="$mbit Mbit/s each way, so $line_ms ms for the $host_mb MB that fp32 has to send"
    printf '%s %s, %d hosts, %d ranks each, %s MB of gradients; %s; medians of %d steps\n' \
        "$mpi" "$version" "$hosts" "$ranks" "$mb" "$line_text" "$steps"
    printf '%-28s %10s %10s %9s %9s %11s\n' hook ms 'fp32 ms' 'of line' 'speed-up' 'rel error'
}

print_hook() {
    awk -v hook="$1" -v ms="$(field ms "$2")" -v plain="$(field plain_ms "$2")" \
        -v line_ms="$line_ms" -v error="$(field rel_error "$2")" 'BEGIN {
            printf "%-28s %10.1f %10.1f %9s %9.2f %11.1e\n", hook, ms, plain,
                (line_ms > 0 ? sprintf("%.3f", line_ms / plain) : "-"), plain / ms, error }'
}

print_overlap() {
    printf 'fp32 beside a backward pass of %.1f ms: step %.1f ms, one after the other %.1f ms, ' \
        "$(field backward_alone_ms "$1")" "$(field step_ms "$1")" "$(field serial_ms "$1")"
    printf 'overlap %s, backward stretched %.3f times\n' \
        "$(field overlap "$1")" "$(field backward_stretch "$1")"
}

[ -n "$json" ] || print_header
for hook in "${hooks[@]}"; do
    line=$(on_hosts bench hooks --steps "$steps" --hook "$hook")
    # Two steps are not counted, and in all of them fp32 has its turn.
    crossed $((steps + 2))
    if [ -n "$json" ]; then print_object "$line"; else print_hook "$hook" "$line"; fi
done
if [ "$backward" -gt 0 ]; then
    line=$(on_hosts bench step --steps "$steps" --backward-ms "$backward" --bucket-mb "$bucket")
    crossed $((4 * (steps + 2)))
    if [ -n "$json" ]; then print_object "$line"; else print_overlap "$line"; fi
fi
