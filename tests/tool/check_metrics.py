#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_metrics.py TALLY RUN_LATE: what ranks write to TALLY_METRICS is OpenMetrics text, complete whenever it
is read, with the figures of the run; it is replaced after 15 s; and where it cannot be written, one log line per rank
says so, and training goes on."""
import os
import re
import subprocess
import sys
import tempfile
import time

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? (NaN|[+-]Inf|[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)$")
FAMILIES = {"tally_steps": "counter", "tally_step_seconds": "counter", "tally_exposed_seconds": "counter",
            "tally_wire_bytes": "counter", "tally_late_seconds": "counter", "tally_late_steps": "gauge",
            "tally_skipped_steps": "counter", "tally_loss_scale": "gauge"}


def parse(text):
    """The samples by name and labels. Fails unless the text follows the format: metadata before the samples of a family,
    families in one piece, no sample twice, counters named _total and not negative, EOF at the end."""
    assert text.endswith("# EOF\n"), "no EOF"
    types, helps, samples, closed, current = {}, set(), {}, set(), None
    for line in text[:-len("# EOF\n")].split("\n")[:-1]:
        meta = re.match(rf"# (TYPE|HELP|UNIT) ({NAME}) (.+)$", line)
        if line.startswith("#"):
            assert meta, f"neither metadata nor a sample: {line}"
            name = meta.group(2)
            if name != current:
                assert name not in closed, f"{name} comes twice"
                closed.add(current)
                current = name
            assert not any(of == name for of, _ in samples), f"metadata after samples: {line}"
            if meta.group(1) == "TYPE":
                assert name not in types, line
                types[name] = meta.group(3)
            else:
                assert name not in helps, line
                helps.add(name)
            continue
        sample = SAMPLE.match(line)
        assert sample, f"no sample: {line}"
        family = sample.group(1).removesuffix("_total") if types.get(current) == "counter" else sample.group(1)
        assert family == current, f"{line} is not of {current}"
        assert types[family] == "gauge" or sample.group(1).endswith("_total"), line
        labels = tuple(sorted(re.findall(LABEL, sample.group(2) or "")))
        labels = tuple((key, value) for key, value in labels)
        assert len({key for key, _ in labels}) == len(labels), f"a label twice: {line}"
        key = (family, labels)
        assert key not in samples, f"twice: {line}"
        samples[key] = float(sample.group(sample.lastindex))
        assert types[family] == "gauge" or samples[key] >= 0, line
    assert types == FAMILIES, types
    return samples


def value(samples, family, **labels):
    """The one sample of a family with these labels, besides ddp."""
    found = [figure for (name, of), figure in samples.items()
             if name == family and dict(of) == {**labels, "ddp": "1"}]
    assert len(found) == 1, (family, labels, samples)
    return found[0]


def read(path):
    with open(path, encoding="utf-8") as file:
        return parse(file.read())


def figures_of_a_late_rank(tally, late, folder):
    """A rank that sleeps for 20 ms in ten steps."""
    env = {**os.environ, "TALLY_METRICS": f"{folder}/job.prom"}
    subprocess.run([tally, "run", "-n", "3", late, "computes", "2", "12"], env=env, check=True, stdout=subprocess.DEVNULL)
    assert sorted(os.listdir(folder)) == ["job.0.prom", "job.1.prom", "job.2.prom"], os.listdir(folder)
    for rank in range(3):
        samples = read(f"{folder}/job.{rank}.prom")
        # The file is written at the first step, and not again in this short run.
        assert value(samples, "tally_steps", rank=str(rank)) == 1
        # The first step begins with its first gradient: three of the four sleeps of 3 ms are in it.
        assert value(samples, "tally_step_seconds", rank=str(rank)) >= 0.009
        assert 0 < value(samples, "tally_wire_bytes", rank=str(rank), hook="allreduce") < 1e7
        assert value(samples, "tally_skipped_steps", rank=str(rank)) == 0
        for cause in ("computes", "lane", "link"):
            assert value(samples, "tally_late_seconds", rank=str(rank), cause=cause) >= 0


def replaced_while_it_runs(tally, late, folder):
    """A reader of the file sees a whole one, and after 15 s a later one, which names the late rank and the cause.
    The program's numbers have a comma, if the machine has such a locale."""
    env = {**os.environ, "TALLY_METRICS": f"{folder}/rank%r.prom", "LC_NUMERIC": "comma"}
    with subprocess.Popen([tally, "run", "-n", "2", late, "computes", "1", "3000"], env=env, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as job:
        try:
            deadline = time.monotonic() + 60
            path, steps = f"{folder}/rank1.prom", set()
            while len(steps) < 2 and time.monotonic() < deadline:
                time.sleep(0.02)
                if os.path.exists(path):
                    samples = read(path)
                    steps.add(value(samples, "tally_steps", rank="1"))
            assert len(steps) == 2 and min(steps) == 1, steps
            seconds = value(samples, "tally_step_seconds", rank="1")
            assert seconds > 14, samples
            waited = {cause: value(samples, "tally_late_seconds", rank="1", cause=cause) for cause in ("computes", "lane", "link")}
            assert 0.1 * seconds < waited["computes"] <= seconds and waited["computes"] == max(waited.values()), samples
        finally:
            job.terminate()
    assert [name for name in os.listdir(folder) if not name.endswith(".prom")] == []


def names_of_hooks(tally, late, folder):
    """A hook's name may be any text: readers refuse a file that is not UTF-8."""
    for name, label in ((b'q"\\\n<b>\r\xff\xc3', 'q\\"\\\\\\n<b>???'), ("ä".encode() * 40, "ä" * 31 + "?")):
        env = {**os.environb, b"TALLY_METRICS": f"{folder}/job.prom".encode(), b"RUN_LATE_HOOK": name}
        subprocess.run([tally, "run", "-n", "1", late, "lane", "0", "1"], env=env, check=True, stdout=subprocess.DEVNULL)
        value(read(f"{folder}/job.0.prom"), "tally_wire_bytes", rank="0", hook=label)


def where_it_cannot_be_written(tally, late, folder):
    env = {**os.environ, "TALLY_METRICS": f"{folder}/missing/job.prom", "TALLY_LOG": "warn"}
    done = subprocess.run([tally, "run", "-n", "2", late, "none", "0", "3"], env=env, check=True, text=True,
                          stdout=subprocess.PIPE)
    lines = [line for line in done.stdout.split("\n") if "TALLY_METRICS: cannot write" in line]
    assert len(lines) == 2 and "No such file" in lines[0], done.stdout
    env["TALLY_METRICS"] = folder + "/" + "x" * 2000
    done = subprocess.run([tally, "run", "-n", "1", late, "none", "0", "1"], env=env, check=True, text=True,
                          stdout=subprocess.PIPE)
    assert "the name of the file is too long" in done.stdout, done.stdout
    env["TALLY_METRICS"] = folder + "/"
    done = subprocess.run([tally, "run", "-n", "1", late, "none", "0", "1"], env=env, check=True, text=True,
                          stdout=subprocess.PIPE)
    assert "is a folder; give the name of a file" in done.stdout, done.stdout


def where_a_fifo_or_a_link_is_in_the_way(tally, late, folder):
    in_the_way = [f"job.{rank}.prom.new" for rank in range(3)]
    os.mkfifo(f"{folder}/{in_the_way[0]}")
    os.symlink(f"{folder}/victim", f"{folder}/{in_the_way[1]}")
    os.mkfifo(f"{folder}/{in_the_way[2]}")
    env = {**os.environ, "TALLY_METRICS": f"{folder}/job.prom"}
    reader = os.open(f"{folder}/{in_the_way[2]}", os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = subprocess.run([tally, "run", "-n", "3", late, "none", "0", "3"], env=env, check=True, text=True,
                              stdout=subprocess.PIPE, timeout=60)
        assert os.read(reader, 1) == b"", "figures went to another program"
    finally:
        os.close(reader)
    assert done.stdout.count("TALLY_METRICS: cannot write") == 3, done.stdout
    assert sorted(os.listdir(folder)) == in_the_way, os.listdir(folder)


def main():
    tally, late = sys.argv[1:]
    for case in (figures_of_a_late_rank, where_it_cannot_be_written, where_a_fifo_or_a_link_is_in_the_way, names_of_hooks,
                 replaced_while_it_runs):
        with tempfile.TemporaryDirectory() as folder:
            case(tally, late, folder)
            print(f"{case.__name__}: good")


if __name__ == "__main__":
    main()
