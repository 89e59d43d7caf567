# SPDX-License-Identifier: Apache-2.0
"""Starts the programs of `make bench`, each with a time limit, so that nothing of others can hang us.
Prints nothing but notes."""

import contextlib
import json
import os
import signal
import subprocess
import sys


class Failed(Exception):
    """A program that did not do what it should; the text says which and why."""


def note(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def end_on_sigterm():
    """Lets SIGTERM, as timeout(1) sends it, end us as Ctrl-C does: with the programs we have started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def run_text(words, limit_s, env=None):
    """Returns the output of a program, run with additional environment variables. The program
    and all its children are killed when its time is up, and when we are interrupted."""
    line = " ".join(map(str, words))
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env={**os.environ, **(env or {})})
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {limit_s:g} s: {line}") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode != 0:
        last = err.strip().splitlines()[-1:] or [f"exit {process.returncode}"]
        raise Failed(f"{line}: {last[0]}")
    return out


def run_json(words, limit_s, env=None):
    """The JSON objects that a program prints."""
    return [json.loads(text) for text in run_text(words, limit_s, env).splitlines()]


@contextlib.contextmanager
def busy_programs(n):
    """Runs n programs that only compute, beside the block; they end with it, or with this process."""
    program = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10000))"
    started = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(n)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
