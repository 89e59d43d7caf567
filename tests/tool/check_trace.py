# SPDX-License-Identifier: Apache-2.0
"""check_trace.py TRACE.json RANKS BUCKETS FIRST_STEP LAST_STEP [TOLERANCE_US]: what `tally trace` wrote is valid JSON with one
event per line, spans nest on every track, phases lie in their bucket, and every bucket of every step is there once per
rank, with one flow from its launch. With a tolerance, the first launch of a step is at the same time on all ranks."""
import collections
import json
import sys


def check_nesting(events):
    """Spans of one track are apart, or one is inside the other."""
    open_ends = []
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        while open_ends and open_ends[-1] <= event["ts"] + 1e-3:  # doubles of large times have few digits
            open_ends.pop()
        end = event["ts"] + event["dur"]
        assert not open_ends or end <= open_ends[-1] + 1e-3, (event, open_ends)
        open_ends.append(end)


def main():
    """Checks the file."""
    path, ranks, buckets, first, last = sys.argv[1], *map(int, sys.argv[2:6])
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    events = json.loads("\n".join(lines))["traceEvents"]
    assert len(events) == len(lines) - 2, "not one event per line"
    for line in lines[1:-1]:
        json.loads(line.rstrip(","))
    tracks, names, seen, launches, flows = collections.defaultdict(list), {}, collections.Counter(), {}, collections.defaultdict(list)
    for event in events:
        track = (event["pid"], event.get("tid"))
        if event["ph"] == "M":
            names[event["name"], *track] = event["args"]
        elif event["ph"] == "X":
            tracks[track].append(event)
            assert event["dur"] >= 0 and event["ts"] > 0, event
        elif event["ph"] in "sf":
            int(event["id"], 16)
            flows[event["name"], event["id"]].append(event)
        if event["ph"] == "X" and event["name"].startswith("bucket "):
            seen[event["pid"], event["args"]["step"], event["name"]] += 1
        if event["ph"] == "X" and event["name"] == "launch 0":
            launches[event["pid"], event["args"]["step"]] = event["ts"]
    for track, spans in tracks.items():
        assert ("thread_name", *track) in names and ("process_name", track[0], None) in names, track
        check_nesting(spans)
    expected = {(r, s, f"bucket {b}"): 1 for r in range(ranks) for s in range(first, last + 1) for b in range(buckets)}
    assert seen == expected, f"{len(seen)} buckets instead of {len(expected)}"
    assert len(flows) == len(expected), "not one flow per bucket"
    for pair in flows.values():
        assert sorted(e["ph"] for e in pair) == ["f", "s"], pair
        start, end = sorted(pair, key=lambda e: e["ph"], reverse=True)
        assert start["ts"] <= end["ts"] and end["bp"] == "e", pair
    if len(sys.argv) > 6:
        for step in range(first, last + 1):
            times = [launches[r, step] for r in range(ranks)]
            assert max(times) - min(times) <= float(sys.argv[6]), (step, times)


main()
