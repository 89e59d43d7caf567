# SPDX-License-Identifier: Apache-2.0
"""report_picture.py TALLY GPT OUTPUT.png: makes the picture of docs/observing.md, from a real run. Two ranks of
examples/06_gpt train, each on its own CPU; after a third of the run a busy program starts on the CPU of rank 1. The
picture is the page of `tally report` about the run. Needs two CPUs without other load, and Chromium."""
import os
import subprocess
import sys
import tempfile

import browser

STEPS = 120


def train(tally, program, trace):
    """Trains, and starts the busy program after a third of the steps."""
    command = [tally, "run", "-n", "2", "--bind", program, "--steps", str(STEPS), "--every", str(STEPS // 3)]
    with subprocess.Popen(command, env={**os.environ, "TALLY_TRACE": trace}, stdout=subprocess.PIPE, text=True) as job:
        busy = None
        try:
            for line in job.stdout:
                print(line, end="")
                if busy is None and line.startswith(f"step {STEPS // 3}:"):
                    cpu = str(os.cpu_count() - 1)
                    busy = subprocess.Popen(["taskset", "-c", cpu, "sh", "-c", "while :; do :; done"])
        finally:
            if busy:
                busy.kill()
                busy.wait()
    assert busy and job.returncode == 0, "the run failed, or its output has changed"


def main():
    """The run, its page, the picture."""
    tally, program, output = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        trace, html = os.path.join(folder, "trace"), os.path.join(folder, "report.html")
        train(tally, program, trace)
        subprocess.run([tally, "report", trace + ".0", trace + ".1", "-o", html], check=True)
        page = browser.Browser()
        try:
            page.prefer("light")
            page.resize(1100, 882)
            page.open(html)
            page.picture(output, whole=False)
        finally:
            page.close()


main()
