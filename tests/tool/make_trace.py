# SPDX-License-Identifier: Apache-2.0
"""make_trace.py OUTPUT [KEY=VALUE...]: writes the trace file OUTPUT.R of each rank R of a run that never happened,
so that tests know every event in it. The layout is that of src/trace/trace_format.h.

Keys: world, steps, buckets, params (per bucket), straggler (a rank), hiccup (a step in which all wait for
rank 0 for a second), cause (computes, lane, link), turns (1: the ranks are late in turn), hosts, odd (1: names that break pages), failed (1: files after a failure, in which the last rank is missing), only (a rank: no other file),
segment (bytes of a segment), ring (segments of the file), worst (a slow step), endless (1: buckets have sent infinitely many bytes), program, later (seconds after other runs), accounts (0: ranks do not add up
how long they waited for each other), choices (1: the hook is auto, and says what it chose)."""
import struct
import sys

START, FORWARD, BACKWARD, EXCHANGE, UPDATE, LATE = 5_000_000_000, 4_000_000, 12_000_000, 900_000, 1_500_000, 6_000_000
CLOCK = 7_000_000_000  # between the clocks of two machines
KINDS = ("none grad_ready launch bucket encode send wait_rank reduce decode update wait step hook error checkpoint").split()
PHASES = KINDS[KINDS.index("encode"):KINDS.index("decode") + 1]
THREAD, BUCKETS, STEP, RANKS, NOTE, ERROR, LINES, CHOICES = range(1, 9)
ODD = '</script><img src=x onerror=alert(1)>\u2028 "quoted" \\ \x01 end'


def text(value, room):
    """A text in its array."""
    return value.encode()[:room - 1].ljust(room, b"\0")


class Rank:
    """The file of one rank under way."""

    def __init__(self, asked, rank):
        self.asked, self.rank = asked, rank
        self.host = rank * asked["hosts"] // asked["world"]
        self.clock = self.host * CLOCK
        self.segments = []
        self.records = b""
        self.threads = {"main": [], "lane 0": []}

    def record(self, kind, payload):
        """Appends a record, in a new segment if this one is full."""
        assert len(payload) % 8 == 0
        room = self.asked["segment"] - 32
        if self.records and len(self.records) + 8 + len(payload) > room:
            self.flush()
        self.records += struct.pack("<II", kind, len(payload)) + payload
        assert len(self.records) <= room, "a record does not fit"

    def flush(self):
        """Ends a segment; the next one begins with the buckets."""
        head = struct.pack("<QQQQ", len(self.segments) + 1, len(self.records), 0, 0)
        self.segments.append((head + self.records).ljust(self.asked["segment"], b"\0"))
        self.records = b""
        self.tell_buckets()

    def tell_buckets(self):
        """The buckets of ddp 1."""
        n, params = self.asked["buckets"], self.asked["params"]
        payload = struct.pack("<IIII", 1, 1, n, n * params) + text(ODD if self.asked["odd"] else "bf16", 64)
        for b in range(n):
            payload += struct.pack("<QII", 262144, params, 0) + text(f"h.{b}.{ODD}" if self.asked["odd"] else f"h.{b}.weight", 64)
        self.record(BUCKETS, payload)
        if self.asked["choices"]:
            self.tell_choices()

    def tell_choices(self):
        """The choices of auto: int8 for all buckets except the last."""
        n, odd = self.asked["buckets"], self.asked["odd"]
        payload = struct.pack("<IIIIQQd", 1, 1, n, 1, 21, 1 << 20, 0.125)
        for b in range(n):
            exact = b == n - 1
            payload += text(ODD if odd else "allreduce" if exact else "int8", 64) + text("" if exact else "bf16", 64)
            payload += struct.pack("<dddd", 0.004, 0.005, 0 if exact else 0.008, 0 if exact else 0.0125)
            payload += text(ODD if odd else "backward or another bucket hides it" if exact else
                            "the line is 0.94 Gbit/s: 24 ms saved, 2 ms spent", 200)
        self.record(CHOICES, payload)

    def event(self, thread, step, kind, begin, end, bucket=0xffff, size=0, peer=-1):
        """Notes an event, by the clock of this rank's machine."""
        self.threads[thread].append(struct.pack("<QQIfiHBB", begin + self.clock, end + self.clock, step, size, peer,
                                                bucket, KINDS.index(kind), 1))

    def take_threads(self):
        """Writes the events of all threads."""
        for number, (name, events) in enumerate(self.threads.items()):
            if events:
                self.record(THREAD, struct.pack("<QQ", 1000 + number, 0) + text(name, 48) + b"".join(events))
            events.clear()

    def exchange(self, step, bucket, begin):
        """A bucket on the lane: its phases, then itself. Phases alternate: their first moments are close."""
        for i, phase in enumerate(PHASES):
            self.event("lane 0", step, phase, begin + i * 20_000, begin + i * 20_000 + EXCHANGE // 5, bucket,
                       65536 if phase == "send" else 0, self.asked["straggler"] if phase == "wait_rank" else -1)
        self.event("lane 0", step, "bucket", begin, begin + EXCHANGE, bucket, float("inf") if self.asked["endless"] else 131072)

    def step(self, step, begin):
        """All of a step; returns its end."""
        asked, n = self.asked, self.asked["buckets"]
        computes = asked["straggler"] >= 0 and asked["cause"] == "computes"
        slow = (LATE if computes and self.rank == asked["straggler"] else 0) + (3 * BACKWARD if step == asked["worst"] else 0)
        others = LATE if computes and self.rank != asked["straggler"] else 0
        ready = lane = begin + FORWARD
        for b in range(n):
            ready = begin + FORWARD + (BACKWARD + slow) * (b + 1) // n
            for p in range(asked["params"]):
                self.event("main", step, "grad_ready", ready - 1000 * p, ready - 1000 * p, b, 0, b * asked["params"] + p)
            self.event("main", step, "launch", ready, ready, b, 65536)
            lane = max(ready + 20_000 + others * (b + 1) // n, lane)
            self.exchange(step, b, lane)
            lane += EXCHANGE
        called, end = ready + 1000, lane + 2000 + UPDATE
        self.event("main", step, "update", lane + 1000, lane + 1000 + UPDATE)
        self.event("main", step, "wait", called, end)
        self.event("main", step, "step", begin, end)
        self.take_threads()
        self.record(STEP, struct.pack("<IIQQQQQQQQQQdd", 1, 0, step, begin + self.clock, end + self.clock, FORWARD,
                                      called - begin - FORWARD, lane - called, n * EXCHANGE, UPDATE, 131072 * n,
                                      262144 * n, 0, 0.002))
        self.tell_ranks(step)
        return end

    def tell_ranks(self, step):
        """The ranks that were waited for, added up."""
        asked, payload = self.asked, b""
        if not asked["accounts"]:
            return
        for rank in range(asked["world"]):
            late = LATE * step if rank == asked["straggler"] else 20_000 * step
            late += LATE * len(range(rank + 1, step + 1, asked["world"])) if asked["turns"] else 0
            late += 1_000_000_000 if rank == 0 and 0 < asked["hiccup"] <= step else 0
            causes = [late if cause == asked["cause"] else 0 for cause in ("computes", "lane", "link")]
            host = rank * asked["hosts"] // asked["world"]
            payload += struct.pack("<iiQQQQqQ", rank, host != self.host, step * (3 if rank == asked["straggler"] else 1),
                                   *causes, (host - self.host) * CLOCK + 300, 5000)
        self.record(RANKS, struct.pack("<IIQ", 1, asked["world"], step) + payload)

    def fail(self, step, begin):
        """A failure: the last rank never comes."""
        asked, end = self.asked, begin + 30_000_000_000
        if asked["events"]:
            self.event("main", step, "launch", begin + FORWARD, begin + FORWARD, 0)
            self.event("main", step, "wait", begin + FORWARD + 5000, end)
            self.event("main", step, "error", end, end, 0xffff, 0, -6)
        self.take_threads()
        words = f"no sign of rank {asked['world'] - 1} for 30 s in step {step}" + (ODD if asked["odd"] else "")
        self.record(ERROR, struct.pack("<iIQQ", -6, 1, step - 1, end + self.clock) + text(words, 512))
        lines = b""
        for rank in range(asked["world"]):
            missing = rank == asked["world"] - 1
            doing = ODD if asked["odd"] else "computes since step %d" % (step - 1) if missing else "step %d (bucket 0: 'h.0.weight')" % step
            lines += struct.pack("<iIQQ", rank, 0 if missing else 1, 9, 0) + text(doing, 200)
        self.record(LINES, struct.pack("<IIQ", 1, asked["world"], 10) + lines)

    def write(self, path):
        """The whole file. Of a ring, the last segments stay, each in its place."""
        asked, n = self.asked, self.asked["ring"]
        self.tell_buckets()
        self.record(NOTE, text("TALLY_HOOK", 32) + text(ODD if asked["odd"] else "bf16", 224))
        at = START + asked["later"] * 1_000_000_000
        for step in range(1, asked["steps"] + 1):
            at = self.step(step, at)
        if asked["failed"]:
            self.fail(asked["steps"] + 1, at)
        self.flush()
        places = [b""] * min(n, len(self.segments))
        for i, segment in enumerate(self.segments):
            places[i % n] = segment
        head = b"TALLYTRC" + struct.pack("<IIIIQIiiIqqQ", 1, 8 + 64 + 208, 32, 32, asked["segment"], n, self.rank,
                                         asked["world"], asked["failed"], 4000 + asked["later"] + self.rank,
                                         1_700_000_000_000_000_000 - self.clock + 40_000 * self.host, START + self.clock)
        head += text(f"node{self.host}", 64) + text(f"boot-{self.host}", 40) + text("shm", 16) + text("0.9.0", 24)
        head += text(ODD if asked["odd"] else asked["program"], 64)
        with open(path, "wb") as file:
            file.write(head + b"".join(places))


def main():
    """Reads the keys and writes the files."""
    asked = {"world": 2, "accounts": 1, "choices": 0, "steps": 20, "buckets": 4, "params": 3, "straggler": -1, "hiccup": 0, "turns": 0, "events": 1, "cause": "computes", "hosts": 1, "odd": 0,
             "failed": 0, "only": -1, "segment": 1 << 16, "ring": 1000, "worst": -1, "later": 0, "endless": 0, "program": "make_trace"}
    for word in sys.argv[2:]:
        key, value = word.split("=")
        assert key in asked, key
        asked[key] = value if isinstance(asked[key], str) else int(value)
    for rank in range(asked["world"]):
        if asked["only"] in (-1, rank) and not (asked["failed"] and rank == asked["world"] - 1):
            Rank(asked, rank).write(f"{sys.argv[1]}.{rank}")


main()
